package claims

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/badged/badged/events"
)

// Secret is a random key that a database and its copies share. Only the owner of the schema and
// the role of the servers may read it.
type Secret []byte

// ReadSecret reads the secret of a database.
func ReadSecret(ctx context.Context, q events.Querier) (s Secret, err error) {
	if err := q.QueryRow(ctx, statements.Get("read the secret")).Scan(&s); err != nil {
		return nil, fmt.Errorf("read the secret of the database: %w", err)
	}
	return s, nil
}

// Sign returns a keyed hash of a text. The SQL function badged.archive_proves accepts the hash as
// proof that a database with this secret has signed the text.
func (s Secret) Sign(text string) string {
	inner := sha256.Sum256(append(s[:len(s):len(s)], text...))
	outer := sha256.Sum256(append(s[:len(s):len(s)], inner[:]...))
	return hex.EncodeToString(outer[:])
}

// Digest returns the hash that replaces the id of an erased user in an archive.
func (s Secret) Digest(userID string) string { return s.Sign("user " + userID) }
