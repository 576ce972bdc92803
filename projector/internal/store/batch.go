package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/eventlog"
	"github.com/badged/badged/internal/pgwire"
	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/projector/internal/keys"
	"github.com/badged/badged/projector/internal/logread"
	"github.com/badged/badged/pubsub"
)

// ErrFenced is the error of a batch whose owner's knowledge of the partition is
// outdated: another projector has moved the position, or another program has
// changed rows or the epoch. The batch was rolled back.
var ErrFenced = errors.New("another projector moved the position, or another program changed rows; the partition is read again")

// Batch is a run of records of one partition on its way into the tables.
type Batch struct {
	// origin is the partition of the users before any was split.
	origin   int
	From, To logread.Cursor
	// late are the places of late records, which are the first, before the batch
	// moves them.
	late []events.Position
	// appended are the rows that the batch itself appends to the log; nil if its
	// records are there.
	appended *eventlog.Rows
	// Generation is the one that remembers the events. The batch begins it if
	// Begins is set.
	Generation int
	Begins     bool
	Items      []Item
	Dead       []DeadLetter
	// Events counts the records, also those that are dead letters already.
	Events int
	// Refused are records of Items that are not folded for some of their users.
	Refused []DeadLetter
	// records are those of Items.
	records []*events.Record
	// Oldest is when the first of the records was appended, readAt when they
	// were read, both by the database's clock.
	Oldest, readAt time.Time

	state   *badge.State
	missing Missing
	check   *keys.Check
	known   PartitionState
}

// DeadLetter is a record that cannot be folded, and why.
type DeadLetter struct {
	Record events.Record
	Reason string
	// Users are those that it cannot be folded for; nil if it can for none.
	Users []string
}

// NewBatch decodes the records of a page of a log that has a number of partitions. Dead
// letters among letters were buried before the position was set back, and are not buried
// again.
func NewBatch(page *logread.Page, letters *Letters, partition, partitions int) *Batch {
	b := &Batch{From: page.From, To: page.To, late: page.Late, readAt: page.ReadAt}
	b.decode(page.Records, letters, partition, partitions)
	return b
}

// NewAppend returns a batch that appends rows to the log behind position from
// and folds them. It fails if one of them cannot be folded.
func NewAppend(from logread.Cursor, rows *eventlog.Rows, at time.Time, partition, partitions int) (*Batch, error) {
	b := &Batch{From: from, appended: rows, readAt: at}
	b.decode(records(rows, at), &Letters{}, partition, partitions)
	if len(b.Dead) > 0 {
		return nil, fmt.Errorf("event %s cannot be folded: %s", b.Dead[0].Record.UUID, b.Dead[0].Reason)
	}
	return b, nil
}

// records returns the events of rows as they are read once they are appended at a time,
// without places.
func records(rows *eventlog.Rows, at time.Time) []events.Record {
	all := make([]events.Record, len(rows.Events.UUIDs))
	for i := range all {
		all[i] = events.Record{UUID: rows.Events.UUIDs[i], Payload: []byte(rows.Events.Payloads[i]), AppendedAt: at, Own: rows.Events.IsOwn(i)}
	}
	return all
}

func (b *Batch) decode(records []events.Record, letters *Letters, partition, partitions int) {
	b.Events = len(records)
	b.origin = eventlog.Ancestor(partition, partitions)
	b.Items, b.Oldest = make([]Item, 0, len(records)), records[0].AppendedAt
	for i := range records {
		if at := records[i].AppendedAt; at.Before(b.Oldest) {
			b.Oldest = at
		}
		it, err := letters.Item(&records[i], partition, partitions)
		switch {
		case letters.Buried(records[i].Place):
			continue
		case err != nil:
			b.Dead = append(b.Dead, DeadLetter{Record: records[i], Reason: err.Error()})
			continue
		}
		b.Items, b.records = append(b.Items, it), append(b.records, &records[i])
	}
}

// Result is the result of a committed batch.
type Result struct {
	Updates Updates
	Folded  int
	// Duplicates counts the events that were repeated for all their users.
	Duplicates int
	// Leaps counts the events whose seqs are far ahead, and FirstLeap is the first.
	Leaps     int
	FirstLeap badge.Leap
	// Users and Rooms have changed, as clients see it. Members of a room have
	// changed with it and are not among them.
	Users, Rooms []string
}

// PartitionState is the state of a partition that its owner knows, besides the
// position.
type PartitionState struct {
	Epoch string
	// revision counts how often another program changed rows, and new epochs.
	revision int64
	// Generation is the present generation of keys.
	Generation int
	// Incarnation is that of the Postgres in which the epoch began.
	Incarnation string
	// SameLife is set if the epoch began since Postgres last started; see
	// IncarnationSQL.
	SameLife bool
	// ReadAt is when this was read, by the database's clock.
	ReadAt time.Time
	// Rooms is set if the partition has rooms. Others cost nothing then.
	Rooms bool
	// Moves counts the moves of the partition between shards; 0 without shards.
	Moves int64
}

// Same reports whether rows read in state s may be used in state t.
func (s *PartitionState) Same(t *PartitionState) bool {
	return s.Epoch == t.Epoch && s.revision == t.revision && s.Generation == t.Generation && s.SameLife && t.SameLife
}

// LoadState reads the state of a partition.
func LoadState(ctx context.Context, q events.Querier, partition int) (s PartitionState, err error) {
	err = q.QueryRow(ctx, statements.Of(partition, "read the state"), partition).Scan(&s.Epoch, &s.revision, &s.Generation, &s.Incarnation, &s.SameLife, &s.ReadAt, &s.Rooms, &s.Moves)
	if err != nil {
		return s, fmt.Errorf("read the state of partition %d: %w", partition, err)
	}
	return s, nil
}

// Commit folds b into the tables in one transaction, which it sends in one
// round trip, after one to load rows that c does not hold. The error is
// ErrFenced if the partition is not in the state known, and [keys.ErrOutdated] if
// w is not. The result has updates only for users with
// subscribers; hasSubscribers is called after the commit.
func (b *Batch) Commit(ctx context.Context, conn *pgx.Conn, t *Tables, c *Cache, w *keys.Window, known PartitionState, hasSubscribers func(pubsub.Address) bool) (r Result, err error) {
	defer func() {
		if err != nil {
			b.Abandon(c)
		}
	}()
	queue := func(loads *pgx.Batch) { b.QueueLoads(loads, t, c, w, known) }
	more := func(loads *pgx.Batch) { b.QueueMoreLoads(loads, t) }
	if err := Load(ctx, conn, queue, more); err != nil {
		return Result{}, fmt.Errorf("load: %w", err)
	}
	var writes pgx.Batch
	if r, err = b.Fold(); err != nil {
		return Result{}, err
	}
	size := b.QueueWrites(&writes, t)
	pgwire.Reserve(conn, size)
	if err := conn.SendBatch(ctx, &writes).Close(); err != nil {
		return Result{}, fmt.Errorf("write: %w", Outcome(err))
	}
	b.Finish(&r, t, c, hasSubscribers)
	return r, nil
}

// QueueLoads adds to loads the statements that load what the batch needs and c
// does not hold. They need no transaction: the fence proves at the commit that
// there was no other writer since.
func (b *Batch) QueueLoads(loads *pgx.Batch, t *Tables, c *Cache, w *keys.Window, known PartitionState) {
	b.known = known
	b.state, b.missing = StateOf(b.Items, c, known.Rooms)
	b.check = w.Check(b.Generation)
	for i := range b.Items {
		if !b.Items[i].ToRoom() {
			b.check.Ask(b.Items[i].Key)
		}
	}
	b.check.QueueLoads(loads)
	t.QueueLoads(loads, &b.missing, b.state, c)
}

// QueueMoreLoads adds to loads the statements that load what the batch needs according
// to the rows that QueueLoads has loaded. Few batches need any.
func (b *Batch) QueueMoreLoads(loads *pgx.Batch, t *Tables) {
	t.QueueMoreLoads(loads, b.Items, b.state)
}

// batchSender is a connection or a transaction.
type batchSender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Load sends what each step queues, in a round trip of its own unless that is nothing.
func Load(ctx context.Context, conn batchSender, steps ...func(*pgx.Batch)) error {
	for _, queue := range steps {
		var loads pgx.Batch
		if queue(&loads); loads.Len() > 0 {
			if err := conn.SendBatch(ctx, &loads).Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Fold folds the events in memory, once their rows are loaded. It fails with
// [ErrRefused] if the batch appends an event that is refused for some of its users.
func (b *Batch) Fold() (r Result, err error) {
	for i := range b.Items {
		it := &b.Items[i]
		if !fresh(it, b.check) {
			r.Duplicates++
			continue
		}
		if members := it.Refuse(b.state); members != nil {
			if b.appended != nil {
				return Result{}, ErrRefused
			}
			b.Refused = append(b.Refused, DeadLetter{*b.records[i], refusal(&it.Event, members), members})
		}
		remember(it, b.check)
		r.Folded++
		b.state.FoldErased(it.Erased)
		b.state.Fold(&it.Event)
	}
	r.Leaps, r.FirstLeap = b.state.Leaps, b.state.FirstLeap
	return r, nil
}

// ErrRefused is returned for an event that must become a dead letter for some of
// its users.
var ErrRefused = errors.New("an event takes a room for an ordinary conversation, or the reverse")

// refusal says why an event is not folded for members of a room.
func refusal(e *events.Event, members []string) string {
	const most = 10
	named := make([]string, 0, most)
	for _, id := range members[:min(most, len(members))] {
		named = append(named, strconv.Quote(id))
	}
	if more := len(members) - len(named); more > 0 {
		named = append(named, fmt.Sprintf("%d others", more))
	}
	room := fmt.Sprintf("conversation_id: %q is a room of which %s are members", e.Data.ConversationID, strings.Join(named, ", "))
	if e.Data.FromSeq > 0 {
		return fmt.Sprintf("conversation_id: %q is no room of which %s are members: publish %s with seqs instead of from_seq", e.Data.ConversationID, strings.Join(named, ", "), e.Type)
	}
	if e.Type == events.ConversationMarkedUnread {
		return fmt.Sprintf("%s: publish %s with from_seq instead of seqs", room, e.Type)
	}
	instead := map[events.Type]events.Type{
		events.MessageDelivered: events.RoomPosted, events.MessageChanged: events.RoomChanged, events.MessageRecalled: events.RoomRecalled, events.ConversationLeft: events.RoomLeft,
	}[e.Type]
	return fmt.Sprintf("%s: publish %s instead of %s", room, instead, e.Type)
}

// OfRooms reports whether the batch has folded events of rooms.
func (b *Batch) OfRooms() bool { return b.missing.InRooms }

// QueueWrites adds to writes the statements of the transaction, which fail
// unless the partition is in the state that the batch was made for. It returns
// roughly how many bytes they take on the wire. [Outcome] tells what an error
// means.
//
// The fence comes first: a second writer waits there until the first has
// committed, and then fails. ADR 1 explains the fence.
func (b *Batch) QueueWrites(writes *pgx.Batch, t *Tables) int {
	size := 0
	if b.appended == nil {
		writes.Queue(t.moveSQL, b.From.TransactionID, b.From.Offset, b.To.TransactionID, b.To.Offset, numbers(b.To.Pending), b.Events, b.known.revision)
	} else {
		move := t.moveAppendedSoleSQL
		if len(b.From.Pending) > 0 {
			move = t.moveAppendedSQL
		}
		writes.Queue(move, uint64(b.From.TransactionID), b.From.Offset, b.Events, b.known.revision).QueryRow(func(row pgx.Row) error { //nolint:gosec // ids are not negative
			return row.Scan(nil, &b.To.TransactionID, &b.To.Offset, &b.To.Pending)
		})
	}
	if len(b.late) > 0 {
		ids, offsets := make([]int64, len(b.late)), make([]int64, len(b.late))
		for i, p := range b.late {
			ids[i], offsets[i] = p.TransactionID, p.Offset
		}
		size += 2 * (8 + 4) * len(b.late)
		writes.Queue(statements.Get("move late events"), t.partition, ids, offsets, b.From.TransactionID, b.From.Offset)
	}
	if b.Begins {
		writes.Queue(statements.Get("begin a generation"), t.partition, b.Generation, b.From.TransactionID, b.From.Offset)
	}
	size += b.check.QueueWrites(writes)
	size += t.QueueWrites(writes, Sorted(b.state.Users), b.state.Rooms)
	for _, letters := range [][]DeadLetter{b.Dead, b.Refused} {
		for _, d := range letters {
			writes.Queue(statements.Get("bury a dead letter"), t.partition, d.Record.TransactionID, d.Record.Offset,
				d.Record.Index, d.Record.UUID, d.Record.Payload, d.Reason, d.Users)
		}
	}
	b.queueLateFold(writes, t.partition)
	if b.readAt.Sub(b.Oldest) > sweptAge {
		writes.Queue(ResetExpirySQL, t.partition)
	}
	return size
}

// sweptAge is the age of events of which a sweep for stale conversations may
// have looked for the deliveries already. It looks at two hours again.
const sweptAge = time.Hour

// Finish completes the result of a batch that is committed, and keeps its rows
// in c.
func (b *Batch) Finish(r *Result, t *Tables, c *Cache, hasSubscribers func(pubsub.Address) bool) {
	touched := Sorted(b.state.Users)
	r.Updates = ClientUpdates(touched, b.state.Rooms, t.partition, b.origin, b.known.Epoch, hasSubscribers)
	r.Users, r.Rooms = changed(touched, b.state.Rooms)
	c.Keep(touched, b.state.Rooms)
	b.check.Commit()
}

// Abandon takes the users of a batch that failed out of c, and its events out of
// the window: they are folded in memory only.
func (b *Batch) Abandon(c *Cache) {
	if b.state != nil {
		c.Drop(b.state)
	}
	if b.check != nil {
		b.check.Abandon()
	}
}

// codeFenced is the code of the error that the fence raises, as in store.sql.
// Postgres leaves class BD to its users.
const codeFenced = "BD001"

// Outcome returns err as ErrFenced if the fence of a batch failed.
func Outcome(err error) error {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == codeFenced {
		return ErrFenced
	}
	return err
}

// numbers returns a list that is not null.
func numbers(n []int64) []int64 {
	if n == nil {
		return []int64{}
	}
	return n
}
