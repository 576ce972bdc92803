package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/eventbatch"
	"github.com/badged/badged/internal/pgwire"
)

// ErrNotMigrated is returned if the database has no log.
var ErrNotMigrated = errors.New("the database has no badged schema; run `badged migrate up`")

// Log is the event log of one database: an append-only table per partition,
// which is a watermill-sql topic. It is safe for concurrent use.
type Log struct {
	pool   *pgxpool.Pool
	layout atomic.Pointer[Layout]
	// changing is held while the layout changes, and changed closed when it has.
	changing sync.Mutex
	changed  chan struct{}
	// alone is set if the layout is that of this database by itself, and stale if it must
	// be read again.
	alone bool
	stale atomic.Bool
	// rooms is used by appends in transactions of their own.
	rooms cachedDirectory
}

// Open returns the log in the database of pool. It fails with [ErrNotMigrated] if
// there is none, and with [ErrRestored] if its order cannot be trusted.
func Open(ctx context.Context, pool *pgxpool.Pool) (*Log, error) {
	l := Attach(pool, 1)
	l.alone = true
	if err := l.Refresh(ctx); err != nil {
		return nil, fmt.Errorf("open the event log: %w", err)
	}
	if err := checkOrigin(ctx, pool); err != nil {
		return nil, fmt.Errorf("open the event log: %w", err)
	}
	return l, nil
}

// Attach returns the log in the database of pool, which began with so many partitions,
// without connecting. Before anything folds the log, [Log.Check] must have succeeded; if
// partitions are split, [Log.SetLayout] must say it.
func Attach(pool *pgxpool.Pool, partitions int) *Log {
	queryRow := func(ctx context.Context, query string, dest any, args ...any) error {
		return pool.QueryRow(ctx, query, args...).Scan(dest)
	}
	l := &Log{
		pool: pool, changed: make(chan struct{}),
		rooms: cachedDirectory{storedDirectory: storedDirectory{queryRow}, rooms: map[string]partitionSet{}},
	}
	l.layout.Store(NewLayout(partitions, nil))
	return l
}

// Check fails as [Open] does, and if the log began with another number of partitions than
// it was attached with.
func (l *Log) Check(ctx context.Context) error {
	stored, err := readLayout(func(dest any) error { return l.pool.QueryRow(ctx, layoutSQL).Scan(dest) })
	if err != nil {
		return fmt.Errorf("open the event log: %w", err)
	}
	if n := l.Partitions(); stored.First() != n {
		return fmt.Errorf("open the event log: it began with %d partitions, not with %d", stored.First(), n)
	}
	if err := checkOrigin(ctx, l.pool); err != nil {
		return fmt.Errorf("open the event log: %w", err)
	}
	return nil
}

// AskForRooms makes joins learn the last messages of rooms, as far as folded, from ask
// instead of this database: other databases may have members of a room too. Call it
// before anything is appended.
func (l *Log) AskForRooms(ask func(ctx context.Context, rooms []string) (map[string]int64, error)) {
	l.rooms.ask = ask
}

// LastOfRooms returns the last message of each room in this database, as far as folded.
// Rooms without members here are left out.
func (l *Log) LastOfRooms(ctx context.Context, rooms []string) (map[string]int64, error) {
	return l.rooms.storedDirectory.lastSeqs(ctx, rooms)
}

// Partitions returns with how many partitions the log began: see [Layout].
func (l *Log) Partitions() int { return l.Layout().First() }

// Layout returns in which partition each user is, as last known.
func (l *Log) Layout() *Layout { return l.layout.Load() }

// SetLayout says that the log has another layout, as where its database is one of several
// shards.
func (l *Log) SetLayout(layout *Layout) {
	l.changing.Lock()
	defer l.changing.Unlock()
	if before := l.layout.Swap(layout); before != nil && !before.Equal(layout) {
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

// Changed is closed once the layout is another than now.
func (l *Log) Changed() <-chan struct{} {
	l.changing.Lock()
	defer l.changing.Unlock()
	return l.changed
}

// PartitionOf returns the partition of a user, as last known.
func (l *Log) PartitionOf(userID string) int { return l.Layout().PartitionOf(userID) }

// Route returns the partition of a user before any was split, which never changes: updates
// for clients are routed by it.
func (l *Log) Route(userID string) int { return PartitionOf(userID, l.Partitions()) }

// layoutSQL returns with how many partitions the log began, and the living ones, null if
// none was split: as JSON, since database/sql cannot scan arrays.
const layoutSQL = `SELECT json_build_object('first', partitions, 'living', badged.living_partitions())::text FROM badged.settings`

func readLayout(scan func(dest any) error) (*Layout, error) {
	var text string
	if err := scan(&text); err != nil {
		return nil, notMigrated(err)
	}
	var stored struct {
		First  int
		Living []int
	}
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return nil, fmt.Errorf("read the layout of the log: %w", err)
	}
	return NewLayout(stored.First, stored.Living), nil
}

// Refresh reads the layout again, unless [Log.SetLayout] says what it is.
func (l *Log) Refresh(ctx context.Context) error {
	if !l.alone {
		return nil
	}
	stored, err := readLayout(func(dest any) error { return l.pool.QueryRow(ctx, layoutSQL).Scan(dest) })
	if err != nil {
		return err
	}
	l.SetLayout(stored)
	return nil
}

// follow reads the layout again after an append was refused with err, and reports whether
// it is another now.
func (l *Log) follow(ctx context.Context, err error) bool {
	if !l.alone || !errors.Is(err, ErrNotHeld) {
		return false
	}
	before := l.Layout()
	return l.Refresh(ctx) == nil && !before.Equal(l.Layout())
}

// ErrNotHeld is returned if a database does not hold a partition: it is on another shard,
// or was split.
var ErrNotHeld = errors.New("the partition is not in this database any more")

// codeNotHeld is the code of the error by which a shard refuses events of such a
// partition.
const codeNotHeld = "BD100"

// notHeld turns the refusal of a shard into ErrNotHeld.
func notHeld(err error) error {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == codeNotHeld {
		return fmt.Errorf("%w (%w)", ErrNotHeld, err)
	}
	return err
}

// notMigrated turns Postgres's word for a missing table or schema into
// ErrNotMigrated.
func notMigrated(err error) error {
	const undefinedTable, invalidSchemaName = "42P01", "3F000"
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && (pgErr.Code == undefinedTable || pgErr.Code == invalidSchemaName) {
		return fmt.Errorf("%w (%s)", ErrNotMigrated, pgErr.Message)
	}
	return err
}

// Receipt describes an append.
type Receipt struct {
	// TransactionID is the transaction that appended. All its events have been
	// folded once every partition's position has passed it.
	TransactionID int64
	// Timeline is the timeline of Postgres then, 0 if it is not known.
	Timeline int64
	// Partitions are those that hold some of the events, in ascending order,
	// except where the same transaction has folded them: the projectors of these are
	// to be woken.
	Partitions []int
	// Shards is what publishers get to name the position of the append, if the events
	// went to one or more of several databases. Otherwise it is "".
	Shards string
}

// Position names the position of the append for publishers.
func (r Receipt) Position() string {
	if r.Shards != "" {
		return r.Shards
	}
	return strconv.FormatInt(int64(r.Token()), 10)
}

// Append validates evs and appends them in a transaction of its own: all or none.
// If the connection breaks during the commit, it returns an error although the
// events may be durable; append them again, since repeated events count once.
//
// Append accepts also what only badged may write, see [Event.CheckPublished]. To append
// in a transaction of your own, use [Publish].
//
// It returns a [*BatchError] if events are invalid, and otherwise wraps the error of
// Postgres.
func (l *Log) Append(ctx context.Context, evs ...Event) (Receipt, error) {
	if len(evs) == 0 {
		return Receipt{}, nil
	}
	return l.AppendWith(ctx, nil, evs...)
}

// AppendWith is like [Log.Append], but the same transaction first runs the statements
// that queue adds, unless it is nil. They run also without events. It may be called
// several times, each time for another attempt.
func (l *Log) AppendWith(ctx context.Context, queue func(*pgx.Batch), evs ...Event) (Receipt, error) {
	retried := false
	for {
		rows, err := l.Rows(ctx, evs...)
		if l.alone && !retried && errors.Is(err, ErrNotHeld) {
			if retried, err = true, l.Refresh(ctx); err == nil {
				continue
			}
		}
		if err != nil || len(rows) == 0 && queue == nil {
			return Receipt{}, err
		}
		r, err := l.appendRows(ctx, queue, rows)
		var pgErr *pgconn.PgError
		switch {
		case err == nil:
			return r, nil
		case l.follow(ctx, err): // the partition was split
		case !errors.As(err, &pgErr) || pgErr.Code != codeOutdated: // outdated rows are made again
			return Receipt{}, fmt.Errorf("append %d events: %w", len(evs), err)
		}
	}
}

// AppendRows is like Append for what [Log.Rows] returned, which must not be
// empty. It fails if a room has got members in a partition since.
func (l *Log) AppendRows(ctx context.Context, rows []Rows) (Receipt, error) {
	return l.appendRows(ctx, nil, rows)
}

func (l *Log) appendRows(ctx context.Context, queue func(*pgx.Batch), rows []Rows) (Receipt, error) {
	// A pipeline without BEGIN is one implicit transaction in one round trip.
	var r Receipt
	var batch pgx.Batch
	if queue != nil {
		queue(&batch)
	}
	size := 0
	for _, part := range rows {
		r.Partitions = append(r.Partitions, part.Partition)
		size += part.Queue(&batch)
	}
	batch.Queue(tokenSQL).QueryRow(r.scanToken)
	if err := l.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		pgwire.Reserve(conn.Conn(), size)
		return conn.SendBatch(ctx, &batch).Close()
	}); err != nil {
		if len(rows) > 0 && rows[0].changes != nil {
			l.rooms.forget(rows[0].changes.all)
		}
		return Receipt{}, notHeld(notMigrated(err))
	}
	return r, nil
}

// Rows are events as rows of the log of one partition.
type Rows struct {
	Partition int
	// events has a row an event.
	events, rows *eventbatch.Columns
	// changes are those of the whole call, in the first of its rows.
	changes *directoryChanges
}

// Rows validates evs and encodes them, by partition in ascending order, for a
// transaction that does more than append. It needs them all, since the first also
// record what the others are based on. It reads the database if evs name rooms that
// no recent call has. Errors are those of [Log.Append].
func (l *Log) Rows(ctx context.Context, evs ...Event) ([]Rows, error) {
	inserts, changes, err := l.Layout().prepare(ctx, &l.rooms, evs, true)
	if errors.Is(err, ErrNotHeld) { // the layout or the directory of rooms is of before a split
		l.rooms.forget(roomsOf(evs))
	}
	if err != nil {
		return nil, err
	}
	all := make([]Rows, len(inserts))
	for i, in := range inserts {
		all[i] = Rows{Partition: in.partition, events: in.events, rows: in.rows}
	}
	if len(all) > 0 {
		all[0].changes = changes
	}
	return all, nil
}

// Queue adds the statements that append the rows to batch, and returns roughly how
// many bytes they take on the wire.
func (r *Rows) Queue(batch *pgx.Batch) int {
	sql, args := r.rows.Insert(Topic(r.Partition))
	args[0] = r.rows.Leading()
	return r.queue(batch, sql, args)
}

// QueueAt is like Queue, and sets the time at which the rows were appended.
func (r *Rows) QueueAt(batch *pgx.Batch, at time.Time) int {
	sql, args := r.rows.InsertAt(Topic(r.Partition), at)
	return r.queue(batch, sql, args)
}

func (r *Rows) queue(batch *pgx.Batch, sql string, args []any) int {
	r.changes.queue(batch)
	batch.Queue(sql, args...)
	return r.rows.Size()
}

// Records returns the events as they are read once they are appended at a time,
// without places. The payloads must not be changed.
func (r *Rows) Records(at time.Time) []Record {
	records := make([]Record, len(r.events.UUIDs))
	for i := range records {
		records[i] = Record{UUID: r.events.UUIDs[i], Payload: []byte(r.events.Payloads[i]), AppendedAt: at, Own: r.events.IsOwn(i)}
	}
	return records
}

// tokenSQL returns the token of the transaction that runs it.
var tokenSQL = fmt.Sprintf(`SELECT pg_current_xact_id()::text::bigint | (%s << %d)`, timelineSQL, timelineShift)

func (r *Receipt) scanToken(row pgx.Row) error {
	var t Token
	err := row.Scan(&t)
	r.setToken(t)
	return err
}

func (r *Receipt) setToken(t Token) { r.Timeline, r.TransactionID = t.Timeline(), t.TransactionID() }

// Token returns the position of the append.
func (r Receipt) Token() Token { return NewToken(r.Timeline, r.TransactionID) }

// insert is the part of an append that goes to one partition.
type insert struct {
	partition int
	// events has a row an event; rows are what is inserted.
	events, rows *eventbatch.Columns
}

func receiptOf(inserts []insert) Receipt {
	var r Receipt
	for _, in := range inserts {
		r.Partitions = append(r.Partitions, in.partition)
	}
	return r
}

// BatchError lists the invalid events of a call. None of its events was appended.
type BatchError struct {
	Events []IndexedError
}

// IndexedError is the error of the event at Index.
type IndexedError struct {
	Index int
	Err   *InvalidError
}

// Error implements error.
func (e *BatchError) Error() string {
	first := e.Events[0]
	if len(e.Events) == 1 {
		return fmt.Sprintf("event %d: %v", first.Index, first.Err)
	}
	return fmt.Sprintf("%d events are invalid; event %d: %v", len(e.Events), first.Index, first.Err)
}

// prepare validates evs and encodes them as rows by partition, in ascending order,
// with the partitions of rooms as d has them. Unless own is set, it rejects what only
// badged may write.
func (l *Layout) prepare(ctx context.Context, d directory, evs []Event, own bool) ([]insert, *directoryChanges, error) {
	rooms, err := checkAll(evs, own)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	enc := encoder{layout: l, expect: len(evs)/l.Len() + 1, byPartition: make([]*eventbatch.Columns, l.numbers)}
	var timeline int64
	if rooms {
		if enc.routes, timeline, err = l.routesOf(ctx, d, evs); err != nil {
			return nil, nil, err
		}
	}
	var e Event
	for i := range evs {
		e = evs[i] // a copy: the caller's keeps its zero time
		if e.Time.IsZero() {
			e.Time = now
		}
		if err := enc.encode(&e); err != nil {
			return nil, nil, fmt.Errorf("encode event %d: %w", i, err)
		}
	}
	var inserts []insert
	for p, events := range enc.byPartition {
		if events == nil {
			continue
		}
		rows, err := events.Packed()
		if err != nil {
			return nil, nil, err
		}
		inserts = append(inserts, insert{partition: p, events: events, rows: rows})
	}
	return inserts, enc.routes.changes(l.Len(), timeline), nil
}

// Check returns a [*BatchError] if events are invalid, as [Log.Append] does.
func Check(evs []Event) error {
	_, err := checkAll(evs, true)
	return err
}

// checkAll validates evs, and reports whether any is about a room.
func checkAll(evs []Event, own bool) (rooms bool, err error) {
	var bad BatchError
	for i := range evs {
		err := evs[i].Validate()
		if err == nil && !own {
			err = evs[i].CheckPublished()
		}
		if invalid, ok := errors.AsType[*InvalidError](err); ok {
			bad.Events = append(bad.Events, IndexedError{Index: i, Err: invalid})
		}
		rooms = rooms || evs[i].Type.OfRooms()
	}
	if len(bad.Events) > 0 {
		return false, &bad
	}
	return rooms, nil
}

// encoder encodes events for each partition.
type encoder struct {
	layout *Layout
	routes routes
	// expect is about how many events a partition will have.
	expect      int
	byPartition []*eventbatch.Columns
	payload     []byte // buffer, reused for each row
}

// encode adds e to each partition of its users, with only the users of that
// partition: a message to a large group is one event per partition.
func (enc *encoder) encode(e *Event) error {
	key := e.Key()
	metadata, err := e.metadata()
	if err != nil {
		return err
	}
	switch {
	case len(e.Data.UserIDs) == 0:
		return enc.encodeForRoom(e, key, metadata)
	case len(e.Data.UserIDs) == 1 && e.Type != RoomJoined: // by far the most frequent
		return enc.add(enc.layout.PartitionOf(e.Data.UserIDs[0]), e, &e.Data, key, metadata)
	}
	users := enc.layout.groups(e.Data.UserIDs)
	mentioned := enc.layout.groups(e.Data.MentionedUserIDs)
	var joined partitionSet
	var r *route
	if e.Type == RoomJoined {
		r = enc.routes[e.Data.ConversationID]
		joined = r.lacks(users)
	}
	for p := range users {
		if len(users[p]) == 0 {
			continue
		}
		data := e.Data
		data.UserIDs, data.MentionedUserIDs = users[p], mentioned[p]
		if joined.has(p) {
			// Otherwise nothing in the partition says what the last message is.
			data.Seq = max(data.Seq, r.lastSeq)
		}
		if err := enc.add(p, e, &data, key, metadata); err != nil {
			return err
		}
	}
	if joined.len() > 0 {
		r.now.addAll(&joined)
		r.lastSeq = max(r.lastSeq, e.Data.Seq, e.Data.UpToSeq)
	}
	return nil
}

// encodeForRoom adds e to each partition of its room, with only the mentioned users
// of that partition.
func (enc *encoder) encodeForRoom(e *Event, key uuid.UUID, metadata string) error {
	r := enc.routes[e.Data.ConversationID]
	if e.Type == RoomPosted && r.now.len() > 0 {
		r.lastSeq = max(r.lastSeq, e.Data.Seq)
	}
	data := e.Data
	var mentioned [][]string
	if len(data.MentionedUserIDs) > 0 {
		mentioned = enc.layout.groups(data.MentionedUserIDs)
	}
	for p := range r.now.all() {
		if mentioned != nil {
			data.MentionedUserIDs = mentioned[p]
		}
		if err := enc.add(p, e, &data, key, metadata); err != nil {
			return err
		}
	}
	return nil
}

// add adds e with data in place of its own to a partition.
func (enc *encoder) add(partition int, e *Event, data *Data, key uuid.UUID, metadata string) (err error) {
	if enc.payload, err = appendEvent(enc.payload[:0], e, data); err != nil {
		return err
	}
	if enc.byPartition[partition] == nil {
		enc.byPartition[partition] = eventbatch.NewColumns(enc.expect + enc.expect/4)
	}
	enc.byPartition[partition].Add(key, string(enc.payload), metadata)
	if e.Type == ConversationExpired {
		enc.byPartition[partition].MarkOwn()
	}
	return nil
}

// groups groups users by partition.
func (l *Layout) groups(users []string) [][]string {
	groups := make([][]string, l.numbers)
	for _, u := range users {
		p := l.PartitionOf(u)
		groups[p] = append(groups[p], u)
	}
	return groups
}
