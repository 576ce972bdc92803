package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pgwire"
	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/pubsub"
)

// Errors of a batch whose owner's knowledge of the partition is outdated. The
// batch was rolled back.
var (
	// ErrFenced: another writer has moved the position or the generation of
	// keys.
	ErrFenced = errors.New("another projector moved the position; the partition is read again")
	// ErrRevised: another program has changed rows, or Postgres was restarted or
	// promoted and may have lost some.
	ErrRevised = errors.New("another program changed rows, or Postgres was restarted; the partition is read again")
)

// Batch is a run of records of one partition on its way into the tables.
type Batch struct {
	from, To events.Position
	// Generation is the generation that takes the keys. The batch begins it if
	// Begins is set.
	Generation int
	Begins     bool
	Items      []Item
	Dead       []deadLetter
	// Oldest is when the first of the records was appended.
	Oldest time.Time
}

// deadLetter is a record that cannot be folded, and why.
type deadLetter struct {
	record events.Record
	reason string
}

// NewBatch decodes records that follow position from in a log of so many
// partitions.
func NewBatch(from events.Position, records []events.Record, partition, partitions int) *Batch {
	b := &Batch{
		from:   from,
		To:     records[len(records)-1].Position,
		Items:  make([]Item, 0, len(records)),
		Oldest: records[0].AppendedAt,
	}
	for i := range records {
		if at := records[i].AppendedAt; at.Before(b.Oldest) {
			b.Oldest = at
		}
		it, err := NewItem(&records[i], partition, partitions)
		if err != nil {
			b.Dead = append(b.Dead, deadLetter{record: records[i], reason: err.Error()})
			continue
		}
		b.Items = append(b.Items, it)
	}
	return b
}

// Result is the result of a committed batch.
type Result struct {
	Updates []pubsub.Update
	Folded  int
	// Duplicates counts the events that were repeated for all their users.
	Duplicates int
}

// PartitionState is the state of a partition that its owner knows, besides the
// position.
type PartitionState struct {
	Epoch string
	// revision counts how often another program changed rows.
	revision int64
	// Generation is the present generation of keys.
	Generation int
	// SameLife is set if the epoch began since Postgres last started; see
	// IncarnationSQL.
	SameLife bool
	// readAt is when this was read, by the database's clock.
	readAt time.Time
}

// Targets returns the scan targets for StateSQL.
func (s *PartitionState) Targets() []any {
	return []any{&s.Epoch, &s.revision, &s.Generation, &s.SameLife, &s.readAt}
}

// Commit folds b into the tables in one transaction: the keys, the
// conversation and user rows, the dead letters and the position. It takes two
// round trips. It returns ErrFenced or ErrRevised if the partition is not in
// the state known, and ErrRepeated if an event that is not a suspect came
// before. It does not load rows that c holds. The result has updates only for
// users with subscribers; hasSubscribers is called after the commit. After an
// error the caller must clear c and close conn, which may be inside a
// transaction; releasing it to its pool does that.
func (b *Batch) Commit(ctx context.Context, conn *pgx.Conn, t *Tables, c *Cache, known PartitionState, hasSubscribers func(pubsub.User) bool) (Result, error) {
	users, missing := UsersIn(b.Items, c)
	state, err := b.load(ctx, conn, t, known, users, missing)
	if err != nil {
		return Result{}, err
	}
	r := Result{}
	for i := range b.Items {
		it := &b.Items[i]
		if !state.repeats.first(it) {
			r.Duplicates++
			continue
		}
		r.Folded++
		Fold(&it.Event, users)
	}

	touched := Sorted(users)
	var writes pgx.Batch
	size := t.QueueWrites(&writes, touched) + state.repeats.queue(&writes, t.partition, b.Generation)
	for _, d := range b.Dead {
		writes.Queue(buryDeadLetterSQL, t.partition, d.record.Position.TransactionID, d.record.Position.Offset,
			d.record.UUID, textOrNull(d.record.Payload), d.reason)
	}
	b.queueLateFold(&writes, t.partition, state.readAt)
	writes.Queue(`COMMIT`)
	pgwire.Reserve(conn, size)
	if err := conn.SendBatch(ctx, &writes).Close(); err != nil {
		return Result{}, fmt.Errorf("write: %w", err)
	}
	r.Updates = ClientUpdates(touched, t.partition, state.Epoch, hasSubscribers)
	c.Keep(touched)
	return r, nil
}

// MarkSuspects marks the events whose keys recent knows as suspects, or every
// event if all is set.
func (b *Batch) MarkSuspects(recent *KeyCache, all bool) {
	recent.Turn()
	for i := range b.Items {
		it := &b.Items[i]
		it.Suspect = recent.Note(it.Key) || all
	}
}

// Keys returns the keys of the events that are most likely new, with their
// users, and those of the suspects.
func (b *Batch) Keys() (likelyNew keyRows, suspects *repeats) {
	likelyNew = make(keyRows, 0, len(b.Items)) // nearly all are new
	suspects = &repeats{}
	for i := range b.Items {
		if it := &b.Items[i]; it.Suspect {
			suspects.add(it.Key)
		} else {
			likelyNew = append(likelyNew, keyRow{it.Key, it.Users})
		}
	}
	return likelyNew, suspects
}

// loaded is what a batch reads from the tables at its start, besides the rows.
type loaded struct {
	PartitionState
	// repeats are the keys of the suspects.
	repeats *repeats
}

// load begins the transaction, moves the position, inserts the keys and fills
// users from the missing rows, all in one round trip. It moves the position
// first, so that a second writer waits here until the first has committed and
// then finds itself fenced.
func (b *Batch) load(ctx context.Context, conn *pgx.Conn, t *Tables, known PartitionState, users map[string]*badge.User, m Missing) (loaded, error) {
	state := loaded{}
	var reads pgx.Batch
	reads.Queue(`BEGIN`)
	reads.Queue(t.moveSQL, events.ProjectorGroup, b.from.TransactionID, b.from.Offset, b.To.TransactionID, b.To.Offset).
		Exec(func(tag pgconn.CommandTag) error {
			if tag.RowsAffected() == 0 {
				return ErrFenced
			}
			return nil
		})
	reads.Queue(t.StateSQL).QueryRow(func(row pgx.Row) error {
		switch err := row.Scan(state.Targets()...); {
		case err != nil:
			return err
		case state.Generation != known.Generation:
			return ErrFenced
		case state.revision != known.revision, state.Epoch != known.Epoch, !state.SameLife:
			return ErrRevised
		}
		return nil
	})
	if b.Begins {
		reads.Queue(beginGenerationSQL, t.partition, b.Generation, b.from.TransactionID, b.from.Offset)
	}
	likelyNew, suspects := b.Keys()
	state.repeats = suspects
	if len(suspects.had) > 0 { // before inserting the new keys, which may be the same
		reads.Queue(FindKeysSQL(t.partition, b.Generation), suspects.Keys()).Query(suspects.scan)
	}
	if len(likelyNew) > 0 {
		keys, users := likelyNew.Arrays()
		reads.Queue(RememberNewKeysSQL(t.partition, b.Generation), keys, users).Exec(expectNewKeys(len(keys)))
	}
	if len(m.Users) > 0 {
		reads.Queue(t.LoadUsersSQL, m.Users).
			Query(func(rows pgx.Rows) error { return ScanUsers(rows, users) })
	}
	if len(m.PairUsers) > 0 {
		reads.Queue(t.LoadConversationsSQL, m.PairUsers, m.PairConversations).
			Query(func(rows pgx.Rows) error { return ScanConversations(rows, users) })
	}
	if len(m.ReadAll) > 0 {
		reads.Queue(t.LoadUnreadSQL, m.ReadAll).
			Query(func(rows pgx.Rows) error { return ScanConversations(rows, users) })
	}
	const key, id, rest = 20 + 12, 32, 4096 // bytes, roughly
	pgwire.Reserve(conn, key*len(b.Items)+id*(len(m.Users)+len(m.PairUsers)+len(m.PairConversations)+len(m.ReadAll))+rest)
	if err := conn.SendBatch(ctx, &reads).Close(); err != nil {
		return loaded{}, fmt.Errorf("load: %w", repeated(err))
	}
	return state, nil
}

// textOrNull returns nil for a nil payload.
func textOrNull(payload []byte) *string {
	if payload == nil {
		return nil
	}
	s := string(payload)
	return &s
}
