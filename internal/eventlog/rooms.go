package eventlog

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/pgwire"
)

// The directory of rooms says in which partitions a room has or had members. A
// message to a room is appended there. A transaction that appends the first join
// to a partition adds the partition, and nothing removes one that the database holds. So a
// message that is appended once a join has committed goes to the partition of the new
// member, behind the join. While a partition moves or is split, the table has rows of
// others beside its own, which the view badged.room_directory leaves out: they count from
// the transaction on that makes the database hold the partition.

// Directory is the directory of rooms as one append sees it.
type Directory interface {
	// PartitionsOf returns the partitions of those rooms that have some, and the
	// timeline of Postgres on which they were read, 0 if that does not matter.
	PartitionsOf(ctx context.Context, rooms []string) (known map[string]Set, timeline int64, err error)
	// LastSeqs returns the last message of each room, as far as folded. It has every room
	// with members in databases other than this.
	LastSeqs(ctx context.Context, rooms []string) (map[string]int64, error)
}

// Changes are what a transaction that appends must check and write in the directory.
type Changes struct {
	// timeline is that of Postgres on which the directory was read.
	timeline int64
	// expected is nil if the database is not one of several.
	expected *Expected
	// all are the rooms of the call.
	all []string
	// rooms are in counts partitions, unless the directory has grown.
	rooms, counts []string
	// joined are new in partitions.
	joined, partitions []string
}

// NewChanges returns changes on top of a directory that was read on a timeline, for a call
// that expects partitions unless that is nil.
func NewChanges(timeline int64, expected *Expected) *Changes {
	return &Changes{timeline: timeline, expected: expected}
}

// Add adds a room that is known to be in some partitions of a layout, and gets into others.
func (c *Changes) Add(room string, known, joined *Set, l *Layout) {
	c.all = append(c.all, room)
	if n := known.Len(); n < l.Len() {
		c.rooms, c.counts = append(c.rooms, room), append(c.counts, fmt.Sprint(n))
	}
	for p := range joined.All() {
		c.joined, c.partitions = append(c.joined, room), append(c.partitions, fmt.Sprint(p))
	}
}

// codeOutdated is the code of the error of a transaction that was prepared with an
// outdated directory. Postgres leaves class BD to its users.
const codeOutdated = "BD003"

const (
	// grownSQL finds rooms that are not in so many partitions. Those that were known are
	// still among them, or refuse the events: they have moved or were split.
	grownSQL = `SELECT FROM unnest($1::text[], $2::integer[]) AS known (room, partitions)
WHERE known.partitions <> (SELECT count(DISTINCT p.partition_id) FROM badged.room_directory AS p WHERE p.conversation_id = known.room)`
	checkDirectorySQL = `SELECT badged.refuse_batch('` + codeOutdated + `') WHERE EXISTS (` + grownSQL + `)`
	// checkTimelineSQL fails if Postgres is on another timeline: a failover may have lost
	// a join, and with it what was known of the room.
	checkTimelineSQL = `SELECT badged.refuse_batch('` + codeOutdated + `') WHERE ` + timelineSQL + ` <> $1`
	addPartitionsSQL = `SELECT badged.add_room_partitions($1::text[], $2::smallint[])`
	partitionsOfSQL  = `SELECT coalesce(json_object_agg(conversation_id, partitions), '{}')::text
FROM (
    SELECT conversation_id, array_agg(DISTINCT partition_id) AS partitions
    FROM badged.room_directory WHERE conversation_id = ANY ($1::text[])
    GROUP BY conversation_id
) AS room`
	lastSeqsSQL = `SELECT badged.room_last_seqs($1::text[])::text`
	// lastOfRoomsSQL also has the rooms of which nothing is folded yet.
	lastOfRoomsSQL = `SELECT ((
    SELECT coalesce(jsonb_object_agg(conversation_id, -1), '{}')
    FROM badged.room_directory WHERE conversation_id = ANY ($1::text[])
) || badged.room_last_seqs($1::text[]))::text`
)

// The same for a call that expects partitions, each in one statement: what the database
// holds must be the same for both parts.
var (
	checkExpectedSQL = `SELECT badged.refuse_batch(CASE WHEN EXISTS (` + expecting("$3", "$4") + `) THEN '` + codeNotHeld + `' ELSE '` + codeOutdated + `' END)
WHERE EXISTS (` + expecting("$3", "$4") + `) OR EXISTS (` + grownSQL + `)`
	partitionsExpectedSQL = `SELECT CASE WHEN EXISTS (` + expecting("$2", "$3") + `) THEN badged.refuse_batch('` + codeNotHeld + `')::text ELSE (` + partitionsOfSQL + `) END`
)

func expecting(partitions, revisions string) string {
	return strings.NewReplacer("$EXPECTED", partitions, "$REVISIONS", revisions).Replace(notExpectedSQL)
}

// queue adds the statements to batch. The check comes before the rows: once a join
// has committed, messages have greater transaction ids than the join.
func (c *Changes) queue(batch *pgx.Batch) {
	if c == nil {
		return
	}
	batch.Queue(checkTimelineSQL, c.timeline)
	switch {
	case len(c.rooms) == 0: // each is in all partitions, which refuse for themselves
	case c.expected == nil:
		batch.Queue(checkDirectorySQL, pgwire.ArrayLiteral(c.rooms), pgwire.ArrayLiteral(c.counts))
	default:
		batch.Queue(checkExpectedSQL, pgwire.ArrayLiteral(c.rooms), pgwire.ArrayLiteral(c.counts), c.expected.partitions, c.expected.revisionsOf)
	}
	if len(c.joined) > 0 {
		batch.Queue(addPartitionsSQL, pgwire.ArrayLiteral(c.joined), pgwire.ArrayLiteral(c.partitions))
	}
}

// Write executes the statements in the caller's transaction, which has read the
// directory itself.
func (c *Changes) Write(ctx context.Context, exec func(ctx context.Context, query string, args ...any) error) error {
	if c == nil || len(c.joined) == 0 {
		return nil
	}
	if err := exec(ctx, addPartitionsSQL, pgwire.ArrayLiteral(c.joined), pgwire.ArrayLiteral(c.partitions)); err != nil {
		return fmt.Errorf("add partitions to rooms: %w", err)
	}
	return nil
}

// Directory returns the directory for appends in transactions of their own. It remembers
// rooms, and may be outdated: the transactions check it.
func (l *Log[E]) Directory() Directory { return &l.rooms }

// PartitionsOfRoom returns the partitions of a room as far as remembered.
func (l *Log[E]) PartitionsOfRoom(room string) (partitions Set, ok bool) {
	l.rooms.mu.Lock()
	defer l.rooms.mu.Unlock()
	partitions, ok = l.rooms.rooms[room]
	return partitions, ok
}

// Forget makes the log read the directory of rooms again: what it remembers is of before
// a split.
func (l *Log[E]) Forget(rooms []string) { l.rooms.forget(rooms) }

// AskForRooms makes joins learn the last messages of rooms, as far as folded, from ask
// instead of this database: other databases may have members of a room too. Call it
// before anything is appended.
func (l *Log[E]) AskForRooms(ask func(ctx context.Context, rooms []string) (map[string]int64, error)) {
	l.rooms.ask = ask
}

// LastOfRooms returns the last message of each room in this database, as far as folded, and
// -1 if nothing of the room is. Rooms without members here are left out.
func (l *Log[E]) LastOfRooms(ctx context.Context, rooms []string) (map[string]int64, error) {
	return l.rooms.lastSeqs(ctx, lastOfRoomsSQL, rooms)
}

// StoredDirectory is the directory in the tables.
type StoredDirectory struct{ QueryRow QueryRow }

// PartitionsOf implements [Directory].
func (d StoredDirectory) PartitionsOf(ctx context.Context, rooms []string) (known map[string]Set, timeline int64, err error) {
	var found map[string][]int
	query, args := partitionsOfSQL, []any(nil)
	if e := ExpectedBy(ctx); e != nil {
		query, args = partitionsExpectedSQL, []any{e.partitions, e.revisionsOf}
	}
	if err := d.read(ctx, query, &found, rooms, args...); err != nil {
		return nil, 0, fmt.Errorf("read the partitions of rooms: %w", err)
	}
	sets := make(map[string]Set, len(found))
	for room, partitions := range found {
		var set Set
		for _, p := range partitions {
			set.Add(p)
		}
		sets[room] = set
	}
	return sets, 0, nil
}

// LastSeqs implements [Directory].
func (d StoredDirectory) LastSeqs(ctx context.Context, rooms []string) (map[string]int64, error) {
	return d.lastSeqs(ctx, lastSeqsSQL, rooms)
}

func (d StoredDirectory) lastSeqs(ctx context.Context, query string, rooms []string) (last map[string]int64, err error) {
	if err := d.read(ctx, query, &last, rooms); err != nil {
		return nil, fmt.Errorf("read the last messages of rooms: %w", err)
	}
	return last, nil
}

// read reads a JSON object: database/sql cannot scan arrays.
func (d StoredDirectory) read(ctx context.Context, query string, object any, rooms []string, args ...any) error {
	var text string
	if err := d.QueryRow(ctx, query, &text, append([]any{pgwire.ArrayLiteral(rooms)}, args...)...); err != nil {
		return Refusal(err)
	}
	return json.Unmarshal([]byte(text), object)
}

// cachedDirectory remembers the partitions of rooms. What it says may be outdated,
// so the transaction that appends checks it.
type cachedDirectory struct {
	StoredDirectory
	// ask, if not nil, returns the last messages of rooms in all databases.
	ask func(ctx context.Context, rooms []string) (map[string]int64, error)

	mu    sync.Mutex
	rooms map[string]Set
	// timeline is that of Postgres on which rooms were read; 0 if Postgres may be on
	// another since.
	timeline int64
	// before is the last timeline that was known.
	before int64
}

// cachedRooms is the most rooms that are remembered: about 20 MB.
const cachedRooms = 100_000

// PartitionsOf implements [Directory].
func (d *cachedDirectory) PartitionsOf(ctx context.Context, rooms []string) (known map[string]Set, timeline int64, err error) {
	known, missing, timeline := d.look(rooms)
	if timeline == 0 {
		if err := d.learn(ctx); err != nil {
			return nil, 0, err
		}
		known, missing, timeline = d.look(rooms)
	}
	if len(missing) == 0 {
		return known, timeline, nil
	}
	stored, _, err := d.StoredDirectory.PartitionsOf(ctx, missing)
	if err != nil {
		return nil, 0, err
	}
	maps.Copy(known, stored)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timeline != timeline {
		return known, timeline, nil // the transaction fails if it matters
	}
	for room, partitions := range stored {
		if _, ok := d.rooms[room]; !ok && len(d.rooms) >= cachedRooms {
			for other := range d.rooms { // any one
				delete(d.rooms, other)
				break
			}
		}
		d.rooms[room] = partitions
	}
	return known, timeline, nil
}

// LastSeqs implements [Directory].
func (d *cachedDirectory) LastSeqs(ctx context.Context, rooms []string) (map[string]int64, error) {
	if d.ask != nil {
		return d.ask(ctx, rooms)
	}
	return d.StoredDirectory.LastSeqs(ctx, rooms)
}

// learn reads the timeline of Postgres, and forgets all rooms if it is another.
func (d *cachedDirectory) learn(ctx context.Context) error {
	var timeline int64
	if err := d.QueryRow(ctx, `SELECT `+timelineSQL, &timeline); err != nil {
		return fmt.Errorf("read the timeline of Postgres: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.before != timeline {
		clear(d.rooms)
	}
	d.timeline, d.before = timeline, timeline
	return nil
}

// look returns what is remembered of rooms, the other rooms, and the timeline.
func (d *cachedDirectory) look(rooms []string) (known map[string]Set, missing []string, timeline int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known = make(map[string]Set, len(rooms))
	for _, room := range rooms {
		if partitions, ok := d.rooms[room]; ok {
			known[room] = partitions
		} else {
			missing = append(missing, room)
		}
	}
	return known, missing, d.timeline
}

// forget forgets rooms after a transaction has failed, perhaps since Postgres is on
// another timeline.
func (d *cachedDirectory) forget(rooms []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.timeline = 0
	for _, room := range rooms {
		delete(d.rooms, room)
	}
}
