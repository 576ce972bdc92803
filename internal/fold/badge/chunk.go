package badge

import "slices"

// Chunk has the messages of a room between two seqs, stored as one row. A room whose seqs have no
// gaps has one chunk. With gaps, each message is a range of its own. If a room had a single row,
// each new message would rewrite the ranges of all earlier messages. So older messages are stored
// in closed chunks, and a new message writes only the newest chunk, the open chunk.
type Chunk struct {
	// Bound is the greatest seq that belongs to the chunk. The chunk begins after the bound of
	// the previous chunk. The open chunk has no bound.
	Bound int64
	// Live has the messages that were posted and not recalled. All has the messages in Live
	// that mention everybody.
	Live, All RangeSet
	// Recalled has the recalled messages, posted or not.
	Recalled RangeSet

	// Touched is true if the chunk changed since its row was read or written.
	Touched bool
	// Stored is true if the chunk has a row.
	Stored bool
}

// The greatest number of ranges in each set of a chunk.
const (
	// MaxOpenRanges limits the open chunk, which each new message writes. Beyond the limit,
	// the lower half of the open chunk becomes a closed chunk.
	MaxOpenRanges = 128
	// MaxMergedRanges limits merging: when a chunk is closed, it is merged with the closed
	// chunk before it, unless the result would have more ranges than this. Two rows with this
	// number of ranges fit into a Postgres page.
	MaxMergedRanges = 448
	// MaxClosedRanges limits each set of a closed chunk. Late messages, changes and recalls can add
	// ranges to a closed chunk; a chunk with a larger set is split in the middle.
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

// cut splits c after seq: it removes the messages up to and including seq from c, and returns them
// as a new chunk.
func (c *Chunk) cut(seq int64) *Chunk {
	lower := &Chunk{Bound: seq, Live: c.Live.cut(seq), All: c.All.cut(seq), Recalled: c.Recalled.cut(seq), Touched: true}
	c.Touched = true
	return lower
}

// chunk returns the chunk to which seq belongs. If that chunk has a row, it must be loaded. The
// closed chunks have all seqs up to r.Since. If no closed chunk has seq, another program has
// deleted rows; then chunk creates a closed chunk.
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

// closedAt returns the index of the first closed chunk whose bound is at or above seq, and
// len(r.Closed) if there is none.
func (r *Room) closedAt(seq int64) int {
	i, _ := slices.BinarySearchFunc(r.Closed, seq, func(c *Chunk, seq int64) int {
		if c.Bound < seq {
			return -1
		}
		return 1
	})
	return i
}

// split divides a chunk that has too many ranges. The point of division depends on the
// messages only, so a replay of the log gives the same chunks.
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

// merge moves the messages of the last closed chunk into c, a chunk above it that has just
// been closed. It does nothing if c would then have too many ranges. Merging saves rows: each
// chunk is a row, and reading a badge loads every chunk above the read position.
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

// MayClose reports whether the open chunk may become too large if `events` messages and
// recalls are folded. Its lower half then becomes a closed chunk, and is merged with the last
// closed chunk. So if MayClose returns true, load the last closed chunk before folding.
func (r *Room) MayClose(events int) bool {
	return r.Since > 0 && len(r.Open.widest())+events > MaxOpenRanges
}

// AddClosed adds a closed chunk that was loaded. It does nothing if r already has the chunk.
func (r *Room) AddClosed(c *Chunk) {
	if i := r.closedAt(c.Bound); i == len(r.Closed) || r.Closed[i].Bound != c.Bound {
		r.Closed = slices.Insert(r.Closed, i, c)
	}
}
