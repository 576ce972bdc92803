package eventlog

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrRevoked means that a transaction would have written on behalf of a user whose token was
// revoked or has expired. Nothing was written.
var ErrRevoked = errors.New("the token of the user was revoked or has expired")

// Right is a token of a user on whose behalf a transaction writes.
type Right struct {
	UserID string
	// IssuedAt is zero if the token does not contain it.
	IssuedAt, ExpiresAt time.Time
}

type rightsKey struct{}

// WithRights returns a context with tokens. A transaction with this context fails with
// ErrRevoked if one of the tokens is revoked or has expired.
func WithRights(ctx context.Context, rights ...Right) context.Context {
	if len(rights) == 0 {
		return ctx
	}
	return context.WithValue(ctx, rightsKey{}, rights)
}

// RightsOf returns the tokens of a context. When badged itself or a backend writes, the context
// has no tokens.
func RightsOf(ctx context.Context) []Right {
	rights, _ := ctx.Value(rightsKey{}).([]Right)
	return rights
}

// codeRevoked is the SQLSTATE with which the database refuses a revoked token.
const codeRevoked = "BD101"

// QueueRights adds a statement to a batch that fails if a token of ctx is revoked. It must be the
// last statement of the batch, and the batch must be the whole transaction: then Postgres commits
// directly after the check, without waiting for this process. If a token has expired, QueueRights
// itself fails with ErrRevoked.
func QueueRights(ctx context.Context, batch *pgx.Batch) error {
	rights := RightsOf(ctx)
	if len(rights) == 0 {
		return nil
	}
	userIDs, issuedAt := make([]string, len(rights)), make([]*time.Time, len(rights))
	for i := range rights {
		r := &rights[i]
		if !r.ExpiresAt.IsZero() && !time.Now().Before(r.ExpiresAt) {
			return ErrRevoked
		}
		if userIDs[i] = r.UserID; !r.IssuedAt.IsZero() {
			issuedAt[i] = &r.IssuedAt
		}
	}
	batch.Queue("SELECT badged.refuse_revoked($1, $2)", userIDs, issuedAt)
	return nil
}

// Revoked replaces the error with which Postgres refuses a token by ErrRevoked.
func Revoked(err error) error {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == codeRevoked {
		return ErrRevoked
	}
	return err
}
