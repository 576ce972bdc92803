package badge

import "slices"

// Chunk is the messages of a room between two seqs. A room without gaps between its
// seqs has one chunk; with gaps each message is a range, and a post must not write
// all of them.
type Chunk struct {
	// Bound is the greatest seq that belongs to the chunk; the chunk before ends
	// below. The open chunk has none.
	Bound int64
	// Live are the messages that are not recalled, and All those of them that
	// mention everybody.
	Live, All RangeSet
	// Recalled are the recalled messages, posted or not.
	Recalled RangeSet

	// Touched is set if anything changed since the row was read or written.
	Touched bool
	// Stored is set if there is a row.
	Stored bool
}

// The most ranges that a set of a chunk has.
const (
	// MaxOpenRanges is that of the open chunk, which each post writes. Beyond, the
	// lowest half is closed.
	MaxOpenRanges = 128
	// MaxMergedRanges is the limit of the last closed chunk: what is closed behind it is
	// merged with it up to here. Two rows of such chunks fit into a page.
	MaxMergedRanges = 448
	// MaxClosedRanges is that of a closed chunk, which late messages and recalls
	// write. Beyond, it is split in the middle.
	MaxClosedRanges = 480
)

// widest returns the set of c with the most ranges.
func (c *Chunk) widest() []SeqRange {
	widest := c.Live.Ranges
	for _, s := range []*RangeSet{&c.All, &c.Recalled} {
		if len(s.Ranges) > len(widest) {
			widest = s.Ranges
		}
	}
	return widest
}

// cut takes the messages up to a seq out of c, and returns them as a chunk.
func (c *Chunk) cut(at int64) *Chunk {
	lower := &Chunk{Bound: at, Live: c.Live.cut(at), All: c.All.cut(at), Recalled: c.Recalled.cut(at), Touched: true}
	c.Touched = true
	return lower
}

// chunk returns the chunk of a seq, which is loaded if it has a row. It has none only
// if something other than badged has deleted it.
func (r *Room) chunk(seq int64) *Chunk {
	if seq > r.Since {
		return &r.Open
	}
	i := r.closedAt(seq)
	if i == len(r.Closed) {
		r.Closed = append(r.Closed, &Chunk{Bound: r.Since})
	}
	return r.Closed[i]
}

// closedAt returns the index of the first closed chunk that ends at or after seq.
func (r *Room) closedAt(seq int64) int {
	i, _ := slices.BinarySearchFunc(r.Closed, seq, func(c *Chunk, seq int64) int {
		if c.Bound < seq {
			return -1
		}
		return 1
	})
	return i
}

// split divides a chunk that has become too wide. Where it does depends on the
// messages only, so that replaying the log gives the same chunks.
func (r *Room) split(c *Chunk) {
	if c == &r.Open {
		if w := c.widest(); len(w) > MaxOpenRanges {
			closed := c.cut(w[MaxOpenRanges/2-1].Hi)
			r.ClosedLive += closed.Live.Len()
			r.ClosedAll += closed.All.Len()
			r.merge(closed)
			r.Since = closed.Bound
			r.Closed = append(r.Closed, closed)
		}
		return
	}
	if w := c.widest(); len(w) > MaxClosedRanges {
		lower := c.cut(w[len(w)/2-1].Hi)
		r.Closed = slices.Insert(r.Closed, r.closedAt(c.Bound), lower)
	}
}

// merge moves the messages of the last closed chunk into c, which is closed behind it,
// unless that makes c too wide: each chunk is a row, and a badge counts those above the
// read position.
func (r *Room) merge(c *Chunk) {
	n := len(r.Closed) - 1
	if n < 0 || r.Closed[n].Bound != r.Since || len(r.Closed[n].widest())+len(c.widest()) > MaxMergedRanges {
		return
	}
	last := r.Closed[n]
	if last.Stored {
		r.Merged = append(r.Merged, last.Bound)
	}
	c.Live, c.All, c.Recalled = last.Live.and(&c.Live), last.All.and(&c.All), last.Recalled.and(&c.Recalled)
	r.Closed = r.Closed[:n]
}

// MayClose reports whether a number of messages and recalls may close the lower half of
// the open chunk. Then the last closed chunk must be loaded.
func (r *Room) MayClose(events int) bool {
	return r.Since > 0 && len(r.Open.widest())+events > MaxOpenRanges
}

// AddClosed adds a closed chunk that was loaded, unless it is there.
func (r *Room) AddClosed(c *Chunk) {
	if i := r.closedAt(c.Bound); i == len(r.Closed) || r.Closed[i].Bound != c.Bound {
		r.Closed = slices.Insert(r.Closed, i, c)
	}
}
