package claims

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/partition/archive"
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
// has not completed.
func WantErased(ctx context.Context, q events.Querier, a *archive.Archive) error {
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
	rows, _ := q.Query(ctx, statements.Get("find erasures that are not complete"), ids)
	numbers, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, fmt.Errorf("compare the erasures of the archive with the database: %w", err)
	}
	incomplete := make([]archive.Erasure, len(numbers))
	for i, number := range numbers {
		incomplete[i] = all[number]
	}
	return incomplete, nil
}

// Complete records in the database that erasures are complete.
func Complete(ctx context.Context, w Writer, erasures []archive.Erasure) error {
	for _, e := range erasures {
		if _, err := w.Exec(ctx, statements.Get("complete an erasure"), [16]byte(e.ID)); err != nil {
			return fmt.Errorf("record what is erased: %w", err)
		}
	}
	return nil
}
