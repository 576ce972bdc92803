package claims

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pg/query"
)

// Secret is a random key that a database and its copies share. Only the owner of the schema and
// the role of the servers may read it.
type Secret []byte

// ReadSecret reads the secret of a database.
func ReadSecret(ctx context.Context, q events.Querier) (Secret, error) {
	return query.One[Secret](ctx, q, "read the secret of the database", statements.Get("read the secret"))
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
