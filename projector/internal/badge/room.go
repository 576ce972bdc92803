package badge

import (
	"math"
	"strings"
	"time"

	"github.com/badged/badged/events"
)

// Room is the state of a room that its members in a partition share.
type Room struct {
	ID string
	// Changes grows by one with every event that changes what a member can see.
	Changes int64
	// LastSeq is the greatest seq posted, recalled or not.
	LastSeq int64
	// Category is that of the last message.
	Category string
	// DeliveredHour is when the latest message was appended, in hours since 1970.
	DeliveredHour int64
	// Members is how many users of the partition are members.
	Members int64

	// Open has the messages above Since, and Closed the others, in ascending order
	// of their bounds, as far as they are loaded.
	Open   Chunk
	Since  int64
	Closed []*Chunk
	// ClosedLive and ClosedAll count the messages up to Since: those that are live,
	// and those of them that mention everybody. ClosedChanges grows by one with
	// every event that changes one of them.
	ClosedLive, ClosedAll, ClosedChanges int64
	// Merged are the bounds of chunks whose rows are to be deleted, since their messages
	// are in another chunk now.
	Merged []int64

	// Resets are the keys of the last events that reset the room.
	Resets string
	// Revisions are of the last messages that were changed, or recalled with a revision.
	Revisions Revisions
	// Ended is set if the room was reset since the rows were read or written. Those of
	// closed chunks that end at EndedAt or above are to be deleted, and those of marks
	// above it. Otherwise the closed chunks of a batch that resets a room are all there.
	Ended   bool
	EndedAt int64

	// Marks are by seq: the members who sent the message or are mentioned in it by
	// name, as far as they are loaded.
	Marks map[int64]map[string]*Mark

	// Touched is set if the row changed, other than by messages of the open chunk.
	Touched bool
	// StoredChanges is Changes in the row, and Stored whether there is one.
	StoredChanges int64
	Stored        bool
	// ChangedAt is when the first event that changed the room since the row was
	// read or written was appended, in microseconds since 1970; 0 if none did.
	ChangedAt int64
	// Weight is roughly how many bytes the room takes in a cache.
	Weight int
}

// Mark says that a member sent a message or is mentioned in it by name, and that
// the message is in Own, or in Mentions or NamedAll of the membership. A mark at or below the
// read position says nothing.
type Mark struct {
	// Own is set if the member sent the message.
	Own bool
	// Touched is set if the mark is new or changed, Gone if it is to be deleted.
	Touched, Gone bool
}

// RoomWeight is the rough memory use of a room with few ranges, in bytes.
const RoomWeight = 500

// NewRoom returns a room to which nothing was posted.
func NewRoom(id string) *Room {
	return &Room{ID: strings.Clone(id), Category: events.DefaultCategory}
}

// Admit adds a member.
func (r *Room) Admit() {
	r.Members++
	r.Touched = true
}

// Dismiss takes a member away.
func (r *Room) Dismiss() {
	r.Members--
	r.Touched = true
}

// Message reports whether a message is live, whether it mentions everybody, and
// whether it was recalled. Its chunk must be loaded.
func (r *Room) Message(seq int64) (live, all, recalled bool) {
	c := r.chunk(seq)
	return c.Live.Contains(seq), c.All.Contains(seq), c.Recalled.Contains(seq)
}

// LiveAbove returns how many messages above seq are not recalled, and how many of
// these mention everybody. Every closed chunk above seq must be loaded.
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

// firsts calls yield with the live messages above seq in ascending order, until it
// returns false. Every closed chunk above seq must be loaded.
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

// moved follows a change of how many live messages c has, and how many that mention
// everybody.
func (r *Room) moved(c *Chunk, live, all int64) {
	c.Touched = true
	if c != &r.Open && (live != 0 || all != 0) {
		r.ClosedLive += live
		r.ClosedAll += all
		r.ClosedChanges++
	}
}

// changed counts an event that changes what members can see.
func (r *Room) changed(at time.Time) {
	r.Changes++
	r.Touched = true
	if r.ChangedAt == 0 {
		r.ChangedAt = at.UnixMicro()
	}
}

// mark returns the mark of a member at a message, nil if there is none.
func (r *Room) mark(seq int64, user string) *Mark {
	if m := r.Marks[seq][user]; m != nil && !m.Gone {
		return m
	}
	return nil
}

// AddMark adds a mark, which was loaded or is new.
func (r *Room) AddMark(seq int64, user string, m Mark) {
	if r.Marks == nil {
		r.Marks = map[int64]map[string]*Mark{}
	}
	if r.Marks[seq] == nil {
		r.Marks[seq] = map[string]*Mark{}
	}
	r.Marks[seq][user] = &m
}

// Exists reports whether r has a row, or is to get one: not if an event only named
// it.
func (r *Room) Exists() bool { return r.Stored || r.Touched || r.Open.Touched }

// Settle records that the rows were written as r is now. Only the open chunk is
// kept.
func (r *Room) Settle() {
	r.Stored = r.Exists()
	r.Touched, r.Open.Touched, r.StoredChanges, r.ChangedAt = false, false, r.Changes, 0
	r.Closed, r.Merged, r.Marks, r.Ended = nil, nil, nil, false
	r.Weight = RoomWeight + RangeWeight*(len(r.Open.Live.Ranges)+len(r.Open.All.Ranges)+len(r.Open.Recalled.Ranges))
}
