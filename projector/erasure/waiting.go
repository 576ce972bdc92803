package erasure

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pgsession"
)

// waitingPage is how many calls that wait are rewritten in one transaction.
const waitingPage = 200

// waitingNow is a database that messages to rooms wait in.
type waitingNow interface {
	events.Querier
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Waiting erases a user from the messages to rooms that wait in a database for other
// shards, as [Erase] does too. Of several databases, call it for each before the first
// Erase: otherwise a message that names the user could still come to a log in which Erase
// has found all others.
//
// It fails with an [*pgsession.OwnerError] if the role of the pool may not erase. It can be repeated.
func Waiting(ctx context.Context, pool *pgxpool.Pool, userID string) (Counts, error) {
	counts, err := Counts{}, pgsession.CheckOwner(ctx, pool, "erase users")
	if err == nil {
		counts, err = eraseWaiting(ctx, pool, userID)
	}
	if err != nil {
		return counts, fmt.Errorf("erase a user from messages that wait for shards: %w", err)
	}
	return counts, nil
}

// WaitingMayName reports whether messages to rooms that wait in a database may name a user.
func WaitingMayName(ctx context.Context, q events.Querier, userID string) (bool, error) {
	found, err := findWaiting(ctx, q, userID, 0, 1)
	return len(found) > 0, err
}

// eraseWaiting erases a user from what waits. It repeats as long as others deliver
// meanwhile: what they cannot deliver waits again, behind what was read.
func eraseWaiting(ctx context.Context, db waitingNow, userID string) (sum Counts, err error) {
	for again := true; again; {
		again = false
		pass := rewriter{userID: userID}
		for after := int64(0); ; {
			ids, err := findWaiting(ctx, db, userID, after, waitingPage)
			if err != nil {
				return sum, err
			}
			if len(ids) == 0 {
				break
			}
			after = ids[len(ids)-1]
			locked, err := pass.waiting(ctx, db, ids)
			if err != nil {
				return sum, fmt.Errorf("rewrite messages that wait for shards: %w", err)
			}
			again = again || locked < len(ids)
		}
		sum.Kept = 0
		sum.add(pass.counts)
	}
	return sum, nil
}

// findWaiting returns the ids of up to limit calls behind one that may name a user.
func findWaiting(ctx context.Context, q events.Querier, userID string, after int64, limit int) ([]int64, error) {
	rows, _ := q.Query(ctx, statements.Get("find waiting messages"), userID, after, limit)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("search messages that wait for shards: %w", err)
	}
	return ids, nil
}

// waiting takes the user out of the messages of some calls, and returns how many of these
// still waited. It waits for a process that delivers them.
func (w *rewriter) waiting(ctx context.Context, db waitingNow, ids []int64) (locked int, err error) {
	counts := w.counts
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		var writes pgx.Batch
		var id int64
		var text string
		rows, _ := tx.Query(ctx, statements.Get("lock waiting messages"), ids)
		if _, err := pgx.ForEachRow(rows, []any{&id, &text}, func() error {
			locked++
			rest, changed, err := w.call([]byte(text))
			if err != nil {
				return fmt.Errorf("call %d: %w", id, err)
			}
			if changed {
				writes.Queue(statements.Get("rewrite waiting messages"), id, string(rest))
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

// call takes the user out of the messages of a call that waits.
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
