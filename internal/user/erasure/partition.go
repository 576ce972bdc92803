package erasure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/keys"
	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/log/tombstones"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/pg/query"
)

// plan has the rows to write to the user's partition of the log: each row that names the user and
// was folded when the plan was made, now without the user. position is the position of the
// projector when the plan was made.
type plan struct {
	rewriter
	position events.Position
	// horizon is the next transaction id when the plan was made. All events of transactions
	// with lower ids must be erased, even if they are folded later.
	horizon int64
	rows    []*row
}

// add adds a row to the plan if it names the user.
func (p *plan) add(records []events.Record) error {
	r, err := p.row(records)
	if r != nil {
		p.rows = append(p.rows, r)
	}
	return err
}

// Errors of a plan that cannot be carried out yet.
var (
	errUnfolded  = errors.New("an event that names the user is not folded yet")
	errOvertaken = errors.New("the user has joined or left a room meanwhile")
)

// partition erases the user from the user's partition.
func (e *eraser) partition(ctx context.Context, deadline time.Time) error {
	for {
		left, err := e.leaveRooms(ctx)
		for err == nil && left {
			if err = e.wait(ctx, deadline); err == nil {
				var rooms []string
				rooms, err = e.rooms(ctx)
				left = len(rooms) > 0
			}
		}
		if err != nil {
			return err
		}
		p, err := e.plan(ctx)
		if err != nil {
			return err
		}
		for err = e.carryOut(ctx, p); errors.Is(err, errUnfolded); err = e.carryOut(ctx, p) {
			if err := e.wait(ctx, deadline); err != nil {
				return err
			}
		}
		if !errors.Is(err, errOvertaken) {
			return err
		}
	}
}

// rooms returns the rooms in which the user is a member.
func (e *eraser) rooms(ctx context.Context) ([]string, error) {
	return query.All(ctx, e.conn, "read the rooms of the user", pgx.RowTo[string], statements.Of(e.result.Partition, "read the rooms of the user"), e.cfg.UserID)
}

// plan makes a plan: it searches the whole partition for folded events that name the user, in
// one snapshot and without locks.
func (e *eraser) plan(ctx context.Context) (p *plan, err error) {
	partition := e.result.Partition
	p = &plan{rewriter: rewriter{userID: e.cfg.UserID}}
	err = replay.WithSnapshot(ctx, e.cfg.Pool, partition, e.cfg.Log.Partitions(), func(snapshot *replay.Snapshot) (err error) {
		p.position = snapshot.Position
		if p.horizon, err = query.One[int64](ctx, snapshot.Tx, "read the next transaction id", statements.Get("read the next transaction id")); err != nil {
			return err
		}
		if p.memberships, err = snapshot.MembershipChanges(ctx, e.cfg.UserID); err != nil {
			return err
		}
		return eachRow(ctx, snapshot.Tx, partition, e.cfg.UserID, events.Position{}, func(records []events.Record) error {
			if !isFolded(snapshot.Cursor, records[0].Position) {
				return nil // carryOut waits until the row is folded
			}
			return p.add(records)
		})
	})
	return p, err
}

// isFolded reports whether a projector with this cursor has folded the row at a position.
func isFolded(cursor logread.Cursor, p events.Position) bool {
	return !cursor.Before(p) && !slices.Contains(cursor.Pending, p.TransactionID)
}

// carryOut writes a plan in one transaction. It locks the position of the partition, so that
// no projector commits a batch meanwhile. If it fails with errUnfolded, the caller must call
// it again later with the same plan. If it fails with errOvertaken, the caller must make a new
// plan.
func (e *eraser) carryOut(ctx context.Context, planned *plan) error {
	p := *planned // a retry reads the tail again
	p.rows, p.keys = slices.Clone(p.rows), slices.Clone(p.keys)
	partition := e.result.Partition
	err := pgx.BeginFunc(ctx, e.conn, func(tx pgx.Tx) error {
		e.result.DeadLetters = 0
		// Wait for index builds before the position is locked, since that lock blocks the
		// projector.
		if err := query.Exec(ctx, tx, "lock the log", statements.Of(partition, "wait for indexes")); err != nil {
			return err
		}
		cursor, err := logread.Load(ctx, tx, partition, "FOR UPDATE")
		if err != nil {
			return err
		}
		if err := e.addTail(ctx, tx, &p, cursor); err != nil {
			return err
		}
		if err := writeRows(ctx, tx, partition, p.rows); err != nil {
			return err
		}
		e.result.Conversations, err = query.One[int64](ctx, tx, "erase the rows of the user", statements.Of(partition, "erase the rows of the user"), e.cfg.UserID)
		if err != nil {
			return err
		}
		if err := e.forget(ctx, tx, p.keys); err != nil {
			return err
		}
		if err := e.letters(ctx, tx, &partition); err != nil {
			return err
		}
		// The owner of the partition may have cached the rows. When it sees the new revision,
		// it drops its cache.
		return query.Exec(ctx, tx, "raise the revision", statements.Get("raise the revision"), partition)
	})
	if err == nil {
		e.result.Counts = p.counts
	}
	return err
}

// addTail adds to a plan the events that were folded after the plan was made. It fails with
// errUnfolded if an event of a transaction before p.horizon is not folded yet, since folding
// may still move the row of the event. It fails with errOvertaken if the user has joined or
// left a room after the plan was made, since the memberships of the plan are then outdated. It
// ignores unfolded events of transactions from p.horizon on: they belong to a new user with
// the same id.
func (e *eraser) addTail(ctx context.Context, tx pgx.Tx, p *plan, cursor logread.Cursor) error {
	var waiting error
	visit := func(records []events.Record) error {
		if !isFolded(cursor, records[0].Position) {
			probe := rewriter{userID: e.cfg.UserID}
			r, err := probe.row(records)
			if r != nil && r.TransactionID < p.horizon {
				waiting = errUnfolded
			}
			return err
		}
		before := len(p.rows)
		err := p.add(records)
		if len(p.rows) > before && waiting == nil && slices.ContainsFunc(records, e.changesMembership) {
			waiting = errOvertaken
		}
		return err
	}
	if err := eachRow(ctx, tx, e.result.Partition, e.cfg.UserID, p.position, visit); err != nil {
		return err
	}
	if err := eachLateRow(ctx, tx, e.result.Partition, e.cfg.UserID, cursor.Pending, visit); err != nil {
		return err
	}
	return waiting
}

// changesMembership reports whether a record may begin or end a room membership of the user.
func (e *eraser) changesMembership(r events.Record) bool {
	event, err := events.Decode(tombstones.EventIn(r.Payload))
	return err == nil && (event.Type == events.RoomJoined || event.Type == events.RoomLeft || event.Type == events.UserLeftAll) && slices.Contains(event.Data.UserIDs, e.cfg.UserID)
}

// writeRows writes rewritten rows to the log. It fails with errMoved if a row is no longer at
// its place.
func writeRows(ctx context.Context, tx pgx.Tx, partition int, rows []*row) error {
	sql := statements.Of(partition, "rewrite a row")
	for some := range slices.Chunk(rows, rowsAtOnce) {
		var writes pgx.Batch
		for _, r := range some {
			writes.Queue(sql, r.TransactionID, r.Offset, r.payload, r.whole)
		}
		results := tx.SendBatch(ctx, &writes)
		for _, r := range some {
			if tag, err := results.Exec(); err != nil {
				return errors.Join(fmt.Errorf("rewrite the row at %s of the log: %w", r.Position, err), results.Close())
			} else if tag.RowsAffected() != 1 {
				return errors.Join(errMoved, results.Close())
			}
		}
		if err := results.Close(); err != nil {
			return fmt.Errorf("rewrite rows of the log: %w", err)
		}
	}
	return nil
}

// rowsAtOnce is the number of rows written in one round trip.
const rowsAtOnce = 500

// errMoved means that a row is no longer at its place in the log. The transaction that appended the
// row committed after the projector's cursor had passed the transaction's id. So the projector has
// moved the row behind the rows that it had folded before.
var errMoved = errors.New("a row of the log has moved")

// forget erases the event keys of the user's events. Otherwise, if such an event were
// published again, the projector would ignore it as a duplicate, but a replay of the log would
// fold it.
func (e *eraser) forget(ctx context.Context, tx pgx.Tx, had []uuid.UUID) error {
	partition, user := e.result.Partition, store.SetOf(e.cfg.UserID)
	var writes pgx.Batch
	var key [16]byte
	var generation int
	var users []byte
	if err := query.Each(ctx, tx, "read the keys of the baseline", statements.Of(partition, "read the keys of the baseline"), []any{[]byte(user)}, []any{&key, &generation, &users}, func() error {
		rest, is := store.UserSet(users).Minus(user)
		if !is {
			return nil
		}
		had = append(had, key)
		if rest == "" {
			writes.Queue(statements.Of(partition, "erase a key of the baseline"), key, generation)
		} else {
			writes.Queue(statements.Of(partition, "rewrite a key of the baseline"), key, generation, []byte(rest))
		}
		return nil
	}); err != nil {
		return err
	}
	if err := tx.SendBatch(ctx, &writes).Close(); err != nil {
		return fmt.Errorf("erase keys of the baseline: %w", err)
	}
	entries := make([]keys.Entry, len(had))
	for i, key := range had {
		entries[i] = store.EntryOf(key, e.cfg.UserID)
	}
	return keys.Erase(ctx, tx, partition, entries)
}

// others erases the user from a partition to which the user does not belong: events there name
// the user as sender. others does not lock the position, since no number depends on senders.
// If a projector moves one of the rows meanwhile, others starts again.
func (e *eraser) others(ctx context.Context, partition int) error {
	if partition == e.result.Partition {
		return nil
	}
	for {
		w := rewriter{userID: e.cfg.UserID}
		var rows []*row
		if err := eachRow(ctx, e.conn, partition, e.cfg.UserID, events.Position{}, func(records []events.Record) error {
			r, err := w.row(records)
			if r != nil {
				rows = append(rows, r)
			}
			return err
		}); err != nil {
			return err
		}
		err := pgx.BeginFunc(ctx, e.conn, func(tx pgx.Tx) error {
			if err := writeRows(ctx, tx, partition, rows); err != nil {
				return err
			}
			return e.letters(ctx, tx, &partition)
		})
		if errors.Is(err, errMoved) {
			continue
		}
		if err == nil {
			e.result.add(w.counts)
		}
		return err
	}
}
