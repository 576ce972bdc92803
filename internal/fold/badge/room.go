package badge

import (
	"math"
	"strings"
	"time"

	"github.com/badged/badged/events"
)

// Room is the state of a room, in one partition: the members in this partition share it.
type Room struct {
	ID string
	// Changes counts the events that changed what members can see.
	Changes int64
	// LastSeq is the greatest seq posted, recalled or not.
	LastSeq int64
	// Category is the category of the message with the greatest seq.
	Category string
	// DeliveredHour is when the latest message was appended, in hours since 1970.
	DeliveredHour int64
	// Members is the number of members in the partition.
	Members int64

	// Open is the open chunk, which has the messages above Since. Closed has those closed
	// chunks that are loaded, by ascending bound; closed chunks have the messages up to Since.
	Open   Chunk
	Since  int64
	Closed []*Chunk
	// ClosedLive counts the live (posted and not recalled) messages up to Since. ClosedAll
	// counts the live messages up to Since that mention everybody. ClosedChanges counts the
	// events that changed ClosedLive or ClosedAll.
	ClosedLive, ClosedAll, ClosedChanges int64
	// Merged has the bounds of stored chunks whose messages were moved into another chunk. The
	// next write deletes the rows of these chunks.
	Merged []int64

	// Resets has the event keys of the last events that reset the room.
	Resets string
	// Revisions has the last messages that were changed, or recalled with a revision number.
	Revisions Revisions
	// Ended is true if the room was reset since its rows were read or written. The next write
	// then deletes the rows of closed chunks whose bound is at or above EndedAt, and the rows
	// of marks above EndedAt. All closed chunks are loaded before a reset is folded.
	Ended   bool
	EndedAt int64

	// Marks has the loaded marks. Its keys are the seq of a message, and the id of a member who
	// sent this message or is mentioned in it by name.
	Marks map[int64]map[string]*Mark

	// Touched is true if a column of the room's row changed that does not belong to the open
	// chunk. Open has its own Touched.
	Touched bool
	// StoredChanges is the value of Changes in the room's row. Stored is true if the room has a
	// row.
	StoredChanges int64
	Stored        bool
	// ChangedAt is the append time, in microseconds since 1970, of the first event that
	// changed the room since its row was read or written; 0 if no event did.
	ChangedAt int64
	// Weight is the room's approximate memory use in a cache, in bytes.
	Weight int
}

// Mark records that a member sent a message or is mentioned in it by name. When the message is
// changed or recalled, its marks show which members have it in Own, Mentions or NamedAll, so that
// the fold updates only their memberships. A mark at or below the member's read position has no
// effect.
type Mark struct {
	// Own is true if the member sent the message.
	Own bool
	// Touched is true if the mark is new or changed. Gone is true if the next write must delete the
	// mark.
	Touched, Gone bool
}

// RoomWeight is the approximate memory use of a room with few ranges, in bytes.
const RoomWeight = 500

// NewRoom returns a room without messages.
func NewRoom(id string) *Room {
	return &Room{ID: strings.Clone(id), Category: events.DefaultCategory}
}

// Admit adds a member to the count.
func (r *Room) Admit() {
	r.Members++
	r.Touched = true
}

// Dismiss subtracts a member from the count.
func (r *Room) Dismiss() {
	r.Members--
	r.Touched = true
}

// Message reports whether a message is live, whether it mentions everybody, and whether it was
// recalled. The chunk of the message must be loaded.
func (r *Room) Message(seq int64) (live, all, recalled bool) {
	c := r.chunk(seq)
	return c.Live.Contains(seq), c.All.Contains(seq), c.Recalled.Contains(seq)
}

// LiveAbove returns how many live messages are above seq, and how many of those messages
// mention everybody. Every closed chunk above seq must be loaded.
func (r *Room) LiveAbove(seq int64) (live, all int64) {
	count := func(c *Chunk) {
		live += c.Live.Len() - c.Live.Rank(seq)
		all += c.All.Len() - c.All.Rank(seq)
	}
	for _, c := range r.Closed {
		count(c)
	}
	count(&r.Open)
	return live, all
}

// firsts calls yield with each live message above seq in ascending order, until yield returns
// false. Every closed chunk above seq must be loaded.
func (r *Room) firsts(seq int64, yield func(int64) bool) {
	for i := range len(r.Closed) + 1 {
		c := &r.Open
		if i < len(r.Closed) {
			c = r.Closed[i]
		}
		for n := range c.Live.between(seq, math.MaxInt64) {
			if !yield(n) {
				return
			}
		}
	}
}

// moved records a change of messages in chunk c. live is the change in the number of live
// messages. all is the change in the number of live messages that mention everybody. Both may
// be negative.
func (r *Room) moved(c *Chunk, live, all int64) {
	c.Touched = true
	if c != &r.Open && (live != 0 || all != 0) {
		r.ClosedLive += live
		r.ClosedAll += all
		r.ClosedChanges++
	}
}

// changed adds one to Changes, for an event that changes what members can see. appendedAt is the
// time when the event was appended.
func (r *Room) changed(appendedAt time.Time) {
	r.Changes++
	r.Touched = true
	if r.ChangedAt == 0 {
		r.ChangedAt = appendedAt.UnixMicro()
	}
}

// mark returns the mark of a member at a message, nil if there is none.
func (r *Room) mark(seq int64, user string) *Mark {
	if m := r.Marks[seq][user]; m != nil && !m.Gone {
		return m
	}
	return nil
}

// AddMark stores a mark that is new or was loaded.
func (r *Room) AddMark(seq int64, user string, m Mark) {
	if r.Marks == nil {
		r.Marks = map[int64]map[string]*Mark{}
	}
	if r.Marks[seq] == nil {
		r.Marks[seq] = map[string]*Mark{}
	}
	r.Marks[seq][user] = &m
}

// Exists reports whether r has a row or needs one. An event may name a room without changing
// it; such a room gets no row.
func (r *Room) Exists() bool { return r.Stored || r.Touched || r.Open.Touched }

// Settle records that the rows of r were written. It drops all loaded chunks and marks except
// the open chunk, and computes Weight.
func (r *Room) Settle() {
	r.Stored = r.Exists()
	r.Touched, r.Open.Touched, r.StoredChanges, r.ChangedAt = false, false, r.Changes, 0
	r.Closed, r.Merged, r.Marks, r.Ended = nil, nil, nil, false
	r.Weight = RoomWeight + RangeWeight*(len(r.Open.Live.Ranges)+len(r.Open.All.Ranges)+len(r.Open.Recalled.Ranges))
}
