package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/keys"
	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/pubsub"
)

// ErrFenced means that the owner's cached state of the partition is outdated: another
// projector has moved the position, or another program has changed rows or the epoch. The
// batch was rolled back.
var ErrFenced = errors.New("another projector moved the position, or another program changed rows; the partition is read again")

// Batch is a series of consecutive records of one partition, which one transaction folds into
// the tables.
type Batch struct {
	// origin is the partition to which the users belonged before any split.
	origin   int
	From, To logread.Cursor
	// late has the places in the log of the rows whose transactions were pending when the projector
	// passed them. The batch folds their events first, and gives these rows a new place, after the
	// rows that are already folded.
	late []events.Position
	// appends is true if the transaction also appends the events to the log; otherwise the log
	// already has them.
	appends bool
	// Generation is the generation in which the batch stores its event keys. Begins is true if
	// the batch is the first of this generation.
	Generation int
	Begins     bool
	Items      []Item
	Dead       []DeadLetter
	// Events counts the records, including records that became dead letters in an earlier
	// batch.
	Events int
	// Refused has the records of Items that are not folded for some of their users.
	Refused []DeadLetter
	// records has the record of each item.
	records []*events.Record
	// Oldest is the lowest append time of the records. readAt is when the records were read.
	// Both are by the database's clock.
	Oldest, readAt time.Time

	state   *badge.State
	missing Missing
	check   *keys.Check
	known   PartitionState
}

// DeadLetter is a record that cannot be folded, and the reason.
type DeadLetter struct {
	Record events.Record
	Reason string
	// Users are the users for which the record is not folded; nil for all users.
	Users []string
}

// NewBatch decodes the records of a page. partitions is the number of partitions of the log.
// letters has the events of the page that became dead letters before, which happens if the position
// was set back. The batch neither folds these events nor stores them as dead letters again.
func NewBatch(page *logread.Page, letters *Letters, partition, partitions int) *Batch {
	records := page.Records
	b := &Batch{
		From: page.From, To: page.To, late: page.Late, readAt: page.ReadAt, origin: eventlog.Ancestor(partition, partitions),
		Events: len(records), Items: make([]Item, 0, len(records)), Oldest: records[0].AppendedAt,
	}
	for i := range records {
		if at := records[i].AppendedAt; at.Before(b.Oldest) {
			b.Oldest = at
		}
		item, err := letters.Item(&records[i], partition, partitions)
		switch {
		case letters.Buried(records[i].Place):
			continue
		case err != nil:
			b.Dead = append(b.Dead, DeadLetter{Record: records[i], Reason: err.Error()})
			continue
		}
		b.Items, b.records = append(b.Items, item), append(b.records, &records[i])
	}
	return b
}

// NewAppend returns a batch that appends rows to the log and folds their events. `from` is the
// cursor of the partition, appendedAt is the append time. It fails if an event cannot be folded.
func NewAppend(from logread.Cursor, rows *events.Rows, appendedAt time.Time, partition, partitions int) (*Batch, error) {
	b := &Batch{
		From: from, appends: true, readAt: appendedAt, Oldest: appendedAt, origin: eventlog.Ancestor(partition, partitions),
		Events: len(rows.Events), Items: make([]Item, 0, len(rows.Events)),
	}
	for _, e := range rows.Events {
		e.AppendedAt = appendedAt
		item, err := ItemOf(e, partition, partitions)
		if err != nil {
			return nil, fmt.Errorf("event %s cannot be folded: %w", e.Key(), err)
		}
		b.Items = append(b.Items, item)
	}
	return b, nil
}

// Result is the result of a committed batch.
type Result struct {
	Updates Updates
	Folded  int
	// Duplicates counts the events that were not folded, since all their users had them
	// before.
	Duplicates int
	// Leaps counts the events whose seq is far above the last seq (see [badge.Leap]); FirstLeap
	// describes the first of them.
	Leaps     int
	FirstLeap badge.Leap
	// Users and Rooms are the ids of users and rooms in which clients can see a change. Users
	// does not have members whose numbers changed only because their room changed.
	Users, Rooms []string
}

// PartitionState is the stored state of a partition, without the position, as the owner of the
// partition last read it.
type PartitionState struct {
	Epoch string
	// revision is raised when another program changes rows, and when a new epoch begins.
	revision int64
	// Generation is the present generation of event keys.
	Generation int
	// Incarnation identifies the incarnation of Postgres in which the epoch began: see
	// IncarnationSQL.
	Incarnation string
	// SameLife is true if Incarnation is the present one: Postgres has not been restarted or
	// promoted since the epoch began.
	SameLife bool
	// ReadAt is when this state was read, by the database's clock.
	ReadAt time.Time
	// Rooms is true if the partition has rooms. Otherwise a batch without events of rooms skips
	// the queries about rooms.
	Rooms bool
	// Moves counts the moves of the partition between databases; it is 0 if there is only one
	// database.
	Moves int64
}

// Same reports whether rows that were cached in state s are still valid in state t.
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

// Commit folds b into the tables. It needs one round trip to load the rows that the cache c does
// not have, a second one if the first rows show that further rows are needed, and one for the
// transaction. known is the state of the partition as the caller has read it; if the state has
// changed since, the error is ErrFenced. If the window w is outdated, the error is
// [keys.ErrOutdated]. The result has updates only for users and rooms with subscribers.
// hasSubscribers is called after the commit.
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
	b.QueueWrites(&writes, t)
	if err := conn.SendBatch(ctx, &writes).Close(); err != nil {
		return Result{}, fmt.Errorf("write: %w", Outcome(err))
	}
	b.Finish(&r, t, c, hasSubscribers)
	return r, nil
}

// QueueLoads adds to `loads` the statements that load the rows that the batch needs and the cache c
// does not have. The statements need no transaction: at the commit, the fence proves that no other
// program has written meanwhile.
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

// QueueMoreLoads adds to `loads` the statements that load further rows. Call it after the
// statements of QueueLoads have run, since the rows that they load show which further rows the
// batch needs. Most batches need none.
func (b *Batch) QueueMoreLoads(loads *pgx.Batch, t *Tables) {
	t.QueueMoreLoads(loads, b.Items, b.state)
}

// batchSender is a connection or a transaction.
type batchSender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Load calls the steps in order. After each step, it sends the statements that the step has
// queued, in one round trip. A step that queues no statement costs no round trip.
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

// Fold folds the events in memory. The rows that they need must be loaded. If the batch appends
// events, and an event must not be folded for some of its users, Fold fails with a [*RefusedError].
func (b *Batch) Fold() (r Result, err error) {
	var refused RefusedError
	for i := range b.Items {
		item := &b.Items[i]
		if !fresh(item, b.check) {
			r.Duplicates++
			continue
		}
		if members := item.Refuse(b.state); members != nil {
			why := refusal(&item.Event, members)
			if b.appends {
				refused = append(refused, Refused{item.Key, why})
				continue
			}
			b.Refused = append(b.Refused, DeadLetter{*b.records[i], why.Error(), members})
		}
		remember(item, b.check)
		r.Folded++
		b.state.FoldErased(item.Erased)
		b.state.Fold(&item.Event)
	}
	r.Leaps, r.FirstLeap = b.state.Leaps, b.state.FirstLeap
	if len(refused) > 0 {
		return Result{}, &refused
	}
	return r, nil
}

// RefusedError lists events of an append that use the id of a room for an ordinary
// conversation, or the reverse. If they were appended, they would become dead letters.
type RefusedError []Refused

// Refused is the key of an event in a [RefusedError], and the reason.
type Refused struct {
	Key uuid.UUID
	Why events.FieldError
}

// Error implements error.
func (e *RefusedError) Error() string { return (*e)[0].Why.Error() }

// refusal returns the error that the publisher gets: the reason why e is not folded for the users
// in `members`.
func refusal(e *events.Event, members []string) events.FieldError {
	message := func(format string, args ...any) events.FieldError {
		return events.FieldError{Field: "conversation_id", Message: fmt.Sprintf(format, args...)}
	}
	const limit = 10
	named := make([]string, 0, limit)
	for _, id := range members[:min(limit, len(members))] {
		named = append(named, strconv.Quote(id))
	}
	if more := len(members) - len(named); more > 0 {
		named = append(named, fmt.Sprintf("%d others", more))
	}
	room := fmt.Sprintf("%q is a room of which %s are members", e.Data.ConversationID, strings.Join(named, ", "))
	if e.Data.FromSeq > 0 {
		return message("%q is no room of which %s are members: publish %s with seqs instead of from_seq", e.Data.ConversationID, strings.Join(named, ", "), e.Type)
	}
	if e.Type == events.ConversationMarkedUnread {
		return message("%s: publish %s with from_seq instead of seqs", room, e.Type)
	}
	instead := map[events.Type]events.Type{
		events.MessageDelivered: events.RoomPosted, events.MessageChanged: events.RoomChanged, events.MessageRecalled: events.RoomRecalled, events.ConversationLeft: events.RoomLeft,
	}[e.Type]
	return message("%s: publish %s instead of %s", room, instead, e.Type)
}

// OfRooms reports whether the batch had to query the tables of rooms.
func (b *Batch) OfRooms() bool { return b.missing.InRooms }

// QueueWrites adds the statements of the transaction to writes. They fail if the partition is no
// longer in the state for which the batch was made. Pass their error to [Outcome].
//
// The fence is the first statement. If two writers commit at the same time, the second blocks
// in the fence until the first has committed, and then fails. ADR 1 explains the fence.
func (b *Batch) QueueWrites(writes *pgx.Batch, t *Tables) {
	b.QueueFence(writes, t)
	b.queueRows(writes, t)
}

// QueueFence adds only the fence to writes.
func (b *Batch) QueueFence(writes *pgx.Batch, t *Tables) {
	if !b.appends {
		writes.Queue(t.moveSQL, b.From.TransactionID, b.From.Offset, b.To.TransactionID, b.To.Offset, b.To.PendingArg(), b.Events, b.known.revision)
	} else {
		move := t.moveAppendedSoleSQL
		if len(b.From.Pending) > 0 {
			move = t.moveAppendedSQL
		}
		writes.Queue(move, uint64(b.From.TransactionID), b.From.Offset, b.Events, b.known.revision).QueryRow(func(row pgx.Row) error { //nolint:gosec // ids are not negative
			return row.Scan(nil, &b.To.TransactionID, &b.To.Offset, &b.To.Pending)
		})
	}
}

// queueRows adds the statements after the fence.
func (b *Batch) queueRows(writes *pgx.Batch, t *Tables) {
	if len(b.late) > 0 {
		ids, offsets := make([]int64, len(b.late)), make([]int64, len(b.late))
		for i, p := range b.late {
			ids[i], offsets[i] = p.TransactionID, p.Offset
		}
		writes.Queue(statements.Get("move late events"), t.partition, ids, offsets, b.From.TransactionID, b.From.Offset)
	}
	if b.Begins {
		writes.Queue(statements.Get("begin a generation"), t.partition, b.Generation, b.From.TransactionID, b.From.Offset)
	}
	b.check.QueueWrites(writes)
	t.QueueWrites(writes, Sorted(b.state.Users), b.state.Rooms)
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
}

// sweptAge is the greatest age of an event that a batch folds without resetting the expiry sweep.
// If the event is older, the sweep may have passed the hour in which the event was appended.
// Younger events need no reset, since each sweep checks the last two hours again.
const sweptAge = time.Hour

// Finish computes the result of a batch after its commit, and stores in the cache c the users and
// rooms that the batch has written.
func (b *Batch) Finish(r *Result, t *Tables, c *Cache, hasSubscribers func(pubsub.Address) bool) {
	touched := Sorted(b.state.Users)
	r.Updates = ClientUpdates(touched, b.state.Rooms, t.partition, b.origin, b.known.Epoch, hasSubscribers)
	r.Users, r.Rooms = changed(touched, b.state.Rooms)
	c.Keep(touched, b.state.Rooms)
	b.check.Commit()
}

// Abandon undoes a failed batch in memory: it removes the batch's users and rooms from the cache
// c, and the batch's event keys from the dedup window.
func (b *Batch) Abandon(c *Cache) {
	if b.state != nil {
		c.Drop(b.state)
	}
	if b.check != nil {
		b.check.Abandon()
	}
}

// codeFenced is the SQLSTATE that the fence raises in store.sql. Postgres itself does not use
// class BD.
const codeFenced = "BD001"

// Outcome returns ErrFenced if err shows that the fence of a batch failed, else err.
func Outcome(err error) error {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == codeFenced {
		return ErrFenced
	}
	return err
}
