package store

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/badged/badged/internal/fold/badge"
)

// How many key columns the rows have, not counting the partition. The key columns come first.
const (
	RoomKey  = 1
	ChunkKey = 2
	MarkKey  = 3
)

// RoomRow is a row of badged.rooms.
type RoomRow struct {
	id                                   string
	changes, lastSeq, since              int64
	closedLive, closedAll, closedChanges int64
	members, deliveredHour               int64
	category                             string
	resets, revisions                    seqSet
	messages                             chunkColumns
}

// Columns returns the columns of r. They point into r: scanning writes to r, and writing reads
// from r.
func (r *RoomRow) Columns() []Column {
	return append([]Column{
		{Name: "conversation_id", target: &r.id},
		{Name: "changes", target: &r.changes},
		{Name: "last_seq", target: &r.lastSeq},
		{Name: "since", target: &r.since},
		{Name: "closed_live", target: &r.closedLive},
		{Name: "closed_all", target: &r.closedAll},
		{Name: "closed_changes", target: &r.closedChanges},
		{Name: "members", target: &r.members},
		{Name: "delivered_hour", target: &r.deliveredHour},
		{Name: "category", target: &r.category},
		{Name: "resets", target: &r.resets, usual: "", null: true},
		{Name: "revisions", target: &r.revisions, usual: "", null: true},
	}, r.messages.columns()...)
}

// Set sets r to the row of a room.
func (r *RoomRow) Set(room *badge.Room) {
	*r = RoomRow{
		id: room.ID, changes: room.Changes, lastSeq: room.LastSeq, since: room.Since,
		closedLive: room.ClosedLive, closedAll: room.ClosedAll, closedChanges: room.ClosedChanges,
		members: room.Members, deliveredHour: room.DeliveredHour, category: room.Category, resets: seqSet(room.Resets), revisions: seqSet(room.Revisions.Encode()), messages: columnsOf(&room.Open),
	}
}

// room returns the room that the row describes.
func (r *RoomRow) room() (*badge.Room, error) {
	room := &badge.Room{
		ID: r.id, Changes: r.changes, LastSeq: r.lastSeq, Since: r.since,
		ClosedLive: r.closedLive, ClosedAll: r.closedAll, ClosedChanges: r.closedChanges,
		Members: r.members, DeliveredHour: r.deliveredHour, Category: r.category, Resets: string(r.resets),
	}
	var err error
	if room.Revisions, err = badge.DecodeRevisions(string(r.revisions)); err == nil {
		err = r.messages.restore(&room.Open)
	}
	if err != nil {
		return nil, fmt.Errorf("room %q: %w", r.id, err)
	}
	return room, nil
}

// ChunkRow is a row of badged.room_chunks.
type ChunkRow struct {
	room              string
	bound             int64
	live, mentionsAll int64
	messages          chunkColumns
}

// Columns returns the columns of r. They point into r: scanning writes to r, and writing reads
// from r.
func (r *ChunkRow) Columns() []Column {
	return append([]Column{
		{Name: "conversation_id", target: &r.room},
		{Name: "bound", target: &r.bound},
		{Name: "live", target: &r.live, derived: true},
		{Name: "mentions_all", target: &r.mentionsAll, derived: true},
	}, r.messages.columns()...)
}

// Set sets r to the row of a closed chunk of a room.
func (r *ChunkRow) Set(room string, c *badge.Chunk) {
	*r = ChunkRow{room: room, bound: c.Bound, live: c.Live.Len(), mentionsAll: c.All.Len(), messages: columnsOf(c)}
}

// chunk returns the chunk that the row describes.
func (r *ChunkRow) chunk() (*badge.Chunk, error) {
	c := &badge.Chunk{Bound: r.bound}
	if err := r.messages.restore(c); err != nil {
		return nil, fmt.Errorf("chunk %d of room %q: %w", r.bound, r.room, err)
	}
	return c, nil
}

// MarkRow is a row of badged.room_marks.
type MarkRow struct {
	room, user string
	seq        int64
	own        bool
}

// Columns returns the columns of r. They point into r: scanning writes to r, and writing reads
// from r.
func (r *MarkRow) Columns() []Column {
	return []Column{
		{Name: "conversation_id", target: &r.room}, {Name: "seq", target: &r.seq}, {Name: "user_id", target: &r.user}, {Name: "own", target: &r.own},
	}
}

// Set sets r to the row of a mark, which records that a member sent a message of a room (own),
// or is mentioned in it by name.
func (r *MarkRow) Set(room string, seq int64, user string, own bool) {
	*r = MarkRow{room, user, seq, own}
}

// chunkColumns has the columns for the messages of a chunk. Arrays are passed as text, since a
// statement for many rows has one array parameter per column, and the elements cannot be
// arrays of different lengths in Postgres.
type chunkColumns struct {
	liveStarts, liveBefore string
	allStarts, allBefore   string
	recalledSet            seqSet
}

func (r *chunkColumns) columns() []Column {
	const array = "bigint[]"
	return []Column{
		{Name: "live_starts", target: &r.liveStarts, kind: array, usual: "", null: true},
		{Name: "live_before", target: &r.liveBefore, kind: array, usual: "", null: true},
		{Name: "all_starts", target: &r.allStarts, kind: array, usual: "", null: true},
		{Name: "all_before", target: &r.allBefore, kind: array, usual: "", null: true},
		{Name: "recalled_set", target: &r.recalledSet, usual: "", null: true},
	}
}

func columnsOf(c *badge.Chunk) (r chunkColumns) {
	r.liveStarts, r.liveBefore = arraysOf(&c.Live)
	r.allStarts, r.allBefore = arraysOf(&c.All)
	r.recalledSet = seqSet(c.Recalled.Encode())
	return r
}

// restore sets the messages of c from the columns.
func (r *chunkColumns) restore(c *badge.Chunk) (err error) {
	if c.Live, err = rangesOf(r.liveStarts, r.liveBefore); err != nil {
		return err
	}
	if c.All, err = rangesOf(r.allStarts, r.allBefore); err != nil {
		return err
	}
	recalled, err := badge.DecodeSet([]byte(r.recalledSet))
	c.Recalled = recalled.RangeSet
	return err
}

// arraysOf returns a set as the two arrays that the SQL function badged.rank expects, "" for null.
// starts has the first seq of each range. before has, for each range, the number of seqs in earlier
// ranges; its last element is the number of all seqs. before is null if each range has one seq.
func arraysOf(s *badge.RangeSet) (starts, before string) {
	if len(s.Ranges) == 0 {
		return "", ""
	}
	from, sizes := []byte{'{'}, []byte("{0")
	n := int64(0)
	for i, r := range s.Ranges {
		if i > 0 {
			from = append(from, ',')
		}
		from = strconv.AppendInt(from, r.Lo, 10)
		n += r.Hi - r.Lo + 1
		sizes = strconv.AppendInt(append(sizes, ','), n, 10)
	}
	if starts = string(append(from, '}')); n == int64(len(s.Ranges)) {
		return starts, ""
	}
	return starts, string(append(sizes, '}'))
}

// errArrays means that arrays do not describe a set.
var errArrays = errors.New("not the arrays of a set of seqs")

// rangesOf parses the result of arraysOf.
func rangesOf(starts, before string) (s badge.RangeSet, err error) {
	if starts == "" && before == "" {
		return s, nil
	}
	from, sizes := numbersOf(starts), numbersOf(before)
	if len(from) == 0 || len(sizes) != len(from)+1 && before != "" {
		return s, fmt.Errorf("%.100s and %.100s: %w", starts, before, errArrays)
	}
	ranges := make([]badge.SeqRange, len(from))
	for i, lo := range from {
		ranges[i] = badge.SeqRange{Lo: lo, Hi: lo}
		if before != "" {
			ranges[i].Hi += sizes[i+1] - sizes[i] - 1
		}
	}
	if s, err = badge.NewRangeSet(ranges); err != nil {
		return s, fmt.Errorf("%.100s and %.100s: %w", starts, before, err)
	}
	return s, nil
}

// numbersOf parses an array of numbers in the form in which Postgres prints it. It returns nil
// if an element is not a number.
func numbersOf(array string) []int64 {
	items := strings.Split(strings.Trim(array, "{}"), ",")
	numbers := make([]int64, len(items))
	for i, item := range items {
		n, err := strconv.ParseInt(item, 10, 64)
		if err != nil {
			return nil
		}
		numbers[i] = n
	}
	return numbers
}
