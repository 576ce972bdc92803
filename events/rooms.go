package events

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/pgwire"
)

// The directory of rooms says in which partitions a room has or had members. A
// message to a room is appended there. A transaction that appends the first join
// to a partition adds the partition, and nothing removes one. So a message that is
// appended once a join has committed goes to the partition of the new member, behind
// the join.

// directory is the directory of rooms as a call of Append or Publish sees it.
type directory interface {
	// partitionsOf returns the partitions of those rooms that have some, and the
	// timeline of Postgres on which they were read, 0 if that does not matter.
	partitionsOf(ctx context.Context, rooms []string) (known map[string]partitionSet, timeline int64, err error)
	// lastSeqs returns the last message of each room, as far as folded.
	lastSeqs(ctx context.Context, rooms []string) (map[string]int64, error)
}

// routes are the rooms of a call, by their conversation; nil if it names none.
type routes map[string]*route

type route struct {
	// known are the partitions of the room in the directory, and joined those that
	// joins of this call add.
	known, joined partitionSet
	// now are the partitions that the room has behind the events encoded so far.
	now partitionSet
	// lastSeq is the last message of the room there: as far as folded, which is read
	// only if joined is not empty, and as far as encoded.
	lastSeq int64
}

// OfRooms reports whether only rooms have events of the type.
func (t Type) OfRooms() bool { return strings.HasPrefix(string(t), "room.") }

// roomsOf returns the rooms that evs name.
func roomsOf(evs []Event) (rooms []string) {
	for i := range evs {
		if evs[i].Type.OfRooms() {
			rooms = append(rooms, evs[i].Data.ConversationID)
		}
	}
	return rooms
}

// routesOf returns the routes of the rooms that evs name, and the timeline of Postgres on
// which they hold.
func (l *Layout) routesOf(ctx context.Context, d directory, evs []Event) (all routes, timeline int64, err error) {
	all = routes{}
	for i := range evs {
		if evs[i].Type.OfRooms() && evs[i].Type != RoomLeft {
			all[evs[i].Data.ConversationID] = &route{}
		}
	}
	if len(all) == 0 {
		return nil, 0, nil
	}
	known, timeline, err := d.partitionsOf(ctx, slices.Sorted(maps.Keys(all)))
	if err != nil {
		return nil, 0, err
	}
	for room, partitions := range known {
		others := partitions
		if others.removeAll(&l.living); others.len() > 0 {
			return nil, 0, fmt.Errorf("%w: the directory of rooms has others", ErrNotHeld)
		}
		all[room].known, all[room].now = partitions, partitions
	}
	var grow []string
	for i := range evs {
		if evs[i].Type != RoomJoined {
			continue
		}
		room := evs[i].Data.ConversationID
		r := all[room]
		if r.known.len() == l.Len() {
			continue
		}
		before := r.joined
		for _, user := range evs[i].Data.UserIDs {
			if p := l.PartitionOf(user); !r.known.has(p) {
				r.joined.add(p)
			}
		}
		if before.len() == 0 && r.joined.len() > 0 {
			grow = append(grow, room)
		}
	}
	if len(grow) == 0 {
		return all, timeline, nil
	}
	last, err := d.lastSeqs(ctx, grow)
	if err != nil {
		return nil, 0, err
	}
	for _, room := range grow {
		all[room].lastSeq = last[room]
	}
	return all, timeline, nil
}

// lacks returns the partitions of users to which the room has not come yet.
func (r *route) lacks(users [][]string) (partitions partitionSet) {
	for p := range users {
		if len(users[p]) > 0 && !r.now.has(p) {
			partitions.add(p)
		}
	}
	return partitions
}

// changes returns what a transaction with these routes must check and write, nil for
// nothing.
func (all routes) changes(partitions int, timeline int64) *directoryChanges {
	c := directoryChanges{timeline: timeline}
	for _, room := range slices.Sorted(maps.Keys(all)) {
		r := all[room]
		c.all = append(c.all, room)
		if n := r.known.len(); n < partitions {
			c.rooms, c.counts = append(c.rooms, room), append(c.counts, fmt.Sprint(n))
		}
		for p := range r.joined.all() {
			c.joined, c.partitions = append(c.joined, room), append(c.partitions, fmt.Sprint(p))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return &c
}

// directoryChanges are what a transaction that appends must check and write in the
// directory.
type directoryChanges struct {
	// timeline is that of Postgres on which the directory was read.
	timeline int64
	// all are the rooms of the call.
	all []string
	// rooms are in counts partitions, unless the directory has grown.
	rooms, counts []string
	// joined are new in partitions.
	joined, partitions []string
}

// codeOutdated is the code of the error of a transaction that was prepared with an
// outdated directory. Postgres leaves class BD to its users.
const codeOutdated = "BD003"

const (
	// checkDirectorySQL fails unless rooms are in so many partitions each. Nothing is
	// ever removed, so that they are then in the partitions that were known.
	checkDirectorySQL = `SELECT badged.refuse_batch('` + codeOutdated + `')
FROM unnest($1::text[], $2::integer[]) AS known (room, partitions)
WHERE known.partitions <> (SELECT count(DISTINCT p.partition_id) FROM badged.room_partitions AS p WHERE p.conversation_id = known.room)
LIMIT 1`
	// checkTimelineSQL fails if Postgres is on another timeline: a failover may have lost
	// a join, and with it what was known of the room.
	checkTimelineSQL = `SELECT badged.refuse_batch('` + codeOutdated + `') WHERE ` + timelineSQL + ` <> $1`
	addPartitionsSQL = `SELECT badged.add_room_partitions($1::text[], $2::smallint[])`
	partitionsOfSQL  = `SELECT coalesce(json_object_agg(conversation_id, partitions), '{}')::text
FROM (
    SELECT conversation_id, array_agg(DISTINCT partition_id) AS partitions
    FROM badged.room_partitions WHERE conversation_id = ANY ($1::text[])
    GROUP BY conversation_id
) AS room`
	lastSeqsSQL = `SELECT badged.room_last_seqs($1::text[])::text`
)

// queue adds the statements to batch. The check comes before the rows: once a join
// has committed, messages have greater transaction ids than the join.
func (c *directoryChanges) queue(batch *pgx.Batch) {
	if c == nil {
		return
	}
	batch.Queue(checkTimelineSQL, c.timeline)
	if len(c.rooms) > 0 {
		batch.Queue(checkDirectorySQL, pgwire.ArrayLiteral(c.rooms), pgwire.ArrayLiteral(c.counts))
	}
	if len(c.joined) > 0 {
		batch.Queue(addPartitionsSQL, pgwire.ArrayLiteral(c.joined), pgwire.ArrayLiteral(c.partitions))
	}
}

// write executes the statements in the caller's transaction, which has read the
// directory itself.
func (c *directoryChanges) write(ctx context.Context, tx transaction) error {
	if c == nil || len(c.joined) == 0 {
		return nil
	}
	if err := tx.exec(ctx, addPartitionsSQL, pgwire.ArrayLiteral(c.joined), pgwire.ArrayLiteral(c.partitions)); err != nil {
		return fmt.Errorf("add partitions to rooms: %w", err)
	}
	return nil
}

// storedDirectory is the directory in the tables.
type storedDirectory struct {
	queryRow func(ctx context.Context, query string, dest any, args ...any) error
}

func (d storedDirectory) partitionsOf(ctx context.Context, rooms []string) (known map[string]partitionSet, timeline int64, err error) {
	var found map[string][]int
	if err := d.read(ctx, partitionsOfSQL, rooms, &found); err != nil {
		return nil, 0, fmt.Errorf("read the partitions of rooms: %w", err)
	}
	sets := make(map[string]partitionSet, len(found))
	for room, partitions := range found {
		var set partitionSet
		for _, p := range partitions {
			set.add(p)
		}
		sets[room] = set
	}
	return sets, 0, nil
}

func (d storedDirectory) lastSeqs(ctx context.Context, rooms []string) (last map[string]int64, err error) {
	if err := d.read(ctx, lastSeqsSQL, rooms, &last); err != nil {
		return nil, fmt.Errorf("read the last messages of rooms: %w", err)
	}
	return last, nil
}

// read reads a JSON object: database/sql cannot scan arrays.
func (d storedDirectory) read(ctx context.Context, query string, rooms []string, object any) error {
	var text string
	if err := d.queryRow(ctx, query, &text, pgwire.ArrayLiteral(rooms)); err != nil {
		return notMigrated(err)
	}
	return json.Unmarshal([]byte(text), object)
}

// cachedDirectory remembers the partitions of rooms. What it says may be outdated,
// so the transaction that appends checks it.
type cachedDirectory struct {
	storedDirectory
	// ask, if not nil, returns the last messages of rooms of all databases.
	ask func(ctx context.Context, rooms []string) (map[string]int64, error)

	mu    sync.Mutex
	rooms map[string]partitionSet
	// timeline is that of Postgres on which rooms were read; 0 if Postgres may be on
	// another since.
	timeline int64
	// before is the last timeline that was known.
	before int64
}

// cachedRooms is the most rooms that are remembered: about 20 MB.
const cachedRooms = 100_000

func (d *cachedDirectory) partitionsOf(ctx context.Context, rooms []string) (known map[string]partitionSet, timeline int64, err error) {
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
	stored, _, err := d.storedDirectory.partitionsOf(ctx, missing)
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

func (d *cachedDirectory) lastSeqs(ctx context.Context, rooms []string) (map[string]int64, error) {
	if d.ask != nil {
		return d.ask(ctx, rooms)
	}
	return d.storedDirectory.lastSeqs(ctx, rooms)
}

// learn reads the timeline of Postgres, and forgets all rooms if it is another.
func (d *cachedDirectory) learn(ctx context.Context) error {
	var timeline int64
	if err := d.queryRow(ctx, `SELECT `+timelineSQL, &timeline); err != nil {
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
func (d *cachedDirectory) look(rooms []string) (known map[string]partitionSet, missing []string, timeline int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known = make(map[string]partitionSet, len(rooms))
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
