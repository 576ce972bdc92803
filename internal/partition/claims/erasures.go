package claims

import (
	"context"
	"fmt"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/pg/query"
)

// IncompleteError is returned while the archive lists erasures that the database does not record
// as complete: they were interrupted, or the database was restored to an earlier time.
type IncompleteError struct {
	// Path names the archive.
	Path     string
	Erasures []archive.Erasure
}

// Error implements error.
func (e *IncompleteError) Error() string {
	what := "an erasure"
	if n := len(e.Erasures); n > 1 {
		what = fmt.Sprintf("%d erasures", n)
	}
	return fmt.Sprintf("the archive %s lists %s of users, the last of %s, that this database has not completed: the database was restored to an earlier time, or the erasure was interrupted; run `badged archive --take-over --to DIR`, which erases these users again",
		e.Path, what, e.Erasures[len(e.Erasures)-1].At.UTC().Format(time.RFC3339))
}

// WantErased fails with an [*IncompleteError] if the archive lists an erasure that the database
// has not completed. If a is nil, it returns nil.
func WantErased(ctx context.Context, q events.Querier, a *archive.Archive) error {
	if a == nil {
		return nil
	}
	incomplete, err := Incomplete(ctx, q, a)
	if err == nil && len(incomplete) > 0 {
		err = &IncompleteError{a.Path(), incomplete}
	}
	return err
}

// Incomplete returns the erasures that the archive lists and the database has not completed.
func Incomplete(ctx context.Context, q events.Querier, a *archive.Archive) ([]archive.Erasure, error) {
	all := a.Erasures()
	ids := make([][16]byte, len(all))
	for i, e := range all {
		ids[i] = e.ID
	}
	var incomplete []archive.Erasure
	var number int
	err := query.Each(ctx, q, "compare the erasures of the archive with the database",
		statements.Get("find erasures that are not complete"), []any{ids}, []any{&number}, func() error {
			incomplete = append(incomplete, all[number])
			return nil
		})
	return incomplete, err
}

// Complete records in the database that erasures are complete.
func Complete(ctx context.Context, w Writer, erasures []archive.Erasure) error {
	for _, e := range erasures {
		if err := query.Exec(ctx, w, "record what is erased", statements.Get("complete an erasure"), [16]byte(e.ID)); err != nil {
			return err
		}
	}
	return nil
}
