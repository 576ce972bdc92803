package erasure

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/pg/query"
)

// hintPage is the number of hints that one transaction rewrites.
const hintPage = 200

// hintStore is a pool or a connection to a database with hints.
type hintStore interface {
	events.Querier
	Begin(ctx context.Context) (pgx.Tx, error)
}

// EraseHints erases a user from the hints that a database stores for other databases. If there
// are several databases, call EraseHints for each of them before the first [Erase]. Otherwise
// a hint that names the user could be replayed into a log from which the user is already
// erased.
//
// It fails with an [*pgsession.OwnerError] if the role of the pool may not erase. It is
// idempotent.
func EraseHints(ctx context.Context, pool *pgxpool.Pool, userID string) (Counts, error) {
	counts, err := Counts{}, pgsession.CheckOwner(ctx, pool, "erase users")
	if err == nil {
		counts, err = eraseHints(ctx, pool, userID)
	}
	if err != nil {
		return counts, fmt.Errorf("erase a user from the hints for other databases: %w", err)
	}
	return counts, nil
}

// HintsMayName reports whether hints of a database may name a user.
func HintsMayName(ctx context.Context, q events.Querier, userID string) (bool, error) {
	found, err := findHints(ctx, q, userID, 0, 1)
	return len(found) > 0, err
}

// eraseHints erases a user from all hints. It starts again if another process has replayed
// hints meanwhile: that process stores events that it cannot append as new hints, which may
// name the user.
func eraseHints(ctx context.Context, db hintStore, userID string) (sum Counts, err error) {
	for again := true; again; {
		again = false
		pass := rewriter{userID: userID}
		for after := int64(0); ; {
			ids, err := findHints(ctx, db, userID, after, hintPage)
			if err != nil {
				return sum, err
			}
			if len(ids) == 0 {
				break
			}
			after = ids[len(ids)-1]
			locked, err := pass.hints(ctx, db, ids)
			if err != nil {
				return sum, fmt.Errorf("rewrite hints: %w", err)
			}
			again = again || locked < len(ids)
		}
		sum.Kept = 0
		sum.add(pass.counts)
	}
	return sum, nil
}

// findHints returns ids of hints that may name a user: at most `limit` ids, all greater than
// `after`.
func findHints(ctx context.Context, q events.Querier, userID string, after int64, limit int) ([]int64, error) {
	return query.All(ctx, q, "search hints", pgx.RowTo[int64], statements.Get("find hints"), userID, after, limit)
}

// hints removes the user from the hints with these ids. locked is how many of the hints still
// existed. hints blocks while another process replays the hints.
func (w *rewriter) hints(ctx context.Context, db hintStore, ids []int64) (locked int, err error) {
	counts := w.counts
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		var writes pgx.Batch
		var id int64
		var text string
		rows, _ := tx.Query(ctx, statements.Get("lock hints"), ids)
		if _, err := pgx.ForEachRow(rows, []any{&id, &text}, func() error {
			locked++
			rest, changed, err := w.call([]byte(text))
			if err != nil {
				return fmt.Errorf("hint %d: %w", id, err)
			}
			if changed {
				writes.Queue(statements.Get("rewrite hints"), id, string(rest))
			}
			return nil
		}); err != nil {
			return err
		}
		return tx.SendBatch(ctx, &writes).Close()
	})
	if err != nil {
		w.counts = counts
	}
	return locked, err
}

// call removes the user from the events of a hint.
func (w *rewriter) call(text []byte) (rest []byte, changed bool, err error) {
	var all, left []json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, false, err
	}
	for _, one := range all {
		message, differs, err := w.record(&events.Record{Payload: one})
		if err != nil {
			return nil, false, err
		}
		changed = changed || differs
		if string(message) != "null" {
			left = append(left, message)
		}
	}
	if left == nil {
		left = []json.RawMessage{}
	}
	rest, err = encode(left)
	return rest, changed, err
}
