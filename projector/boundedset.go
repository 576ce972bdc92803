package projector

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// maxRanges is the most ranges that a set of one conversation keeps. A room
// whose seqs are not dense costs a range a message, and a user who never reads
// it must not grow a row without limit.
const maxRanges = 1000

// boundedSet is a rangeSet whose oldest part, past maxRanges, is only counted.
// What is in that block cannot be told any more, so there it errs: a message
// that comes late is taken to be counted already, a recall to take one away, a
// read of half of it to take half. A read of all of it makes the set exact
// again.
type boundedSet struct {
	rangeSet
	block block
}

// block is the counted part of a set: so many seqs from lo to hi, all below the
// ranges. Without any, it is not there.
type block struct{ lo, hi, count int64 }

func (s *boundedSet) len() int64 { return s.rangeSet.len() + s.block.count }

// min returns the least seq of the set, as far as it is known; 0 where the set
// is empty.
func (s *boundedSet) min() int64 {
	if s.block.count > 0 {
		return s.block.lo
	}
	return s.rangeSet.min()
}

// add puts seq into the set and reports whether it was not there.
func (s *boundedSet) add(seq int64) bool {
	if b := &s.block; b.count > 0 && seq <= b.hi {
		if seq >= b.lo {
			return false
		}
		b.lo = seq
		b.count++
		return true
	}
	if !s.rangeSet.add(seq) {
		return false
	}
	s.shrink()
	return true
}

// shrink moves the oldest ranges past maxRanges into the block.
func (s *boundedSet) shrink() {
	for len(s.ranges) > maxRanges {
		oldest := s.dropOldest()
		if s.block.count == 0 {
			s.block.lo = oldest.lo
		}
		s.block.hi = oldest.hi
		s.block.count += oldest.hi - oldest.lo + 1
	}
}

// remove takes seq out of the set and reports whether it was there.
func (s *boundedSet) remove(seq int64) bool {
	if b := &s.block; b.count > 0 && b.lo <= seq && seq <= b.hi {
		if b.count--; b.count == 0 {
			*b = block{}
		}
		return true
	}
	if !s.rangeSet.remove(seq) {
		return false
	}
	s.shrink() // what was one range may be two
	return true
}

// removeUpTo takes every seq up to and including last out of the set and
// reports whether there was one.
func (s *boundedSet) removeUpTo(last int64) bool {
	b := &s.block
	switch {
	case b.count == 0 || last < b.lo:
		return s.rangeSet.removeUpTo(last)
	case last >= b.hi:
		*b = block{}
		s.rangeSet.removeUpTo(last)
	default: // as if they were spread evenly; hi itself is always one of them
		width, rest := uint64(b.hi-b.lo)+1, uint64(b.hi-last) //nolint:gosec // lo <= last < hi
		high, low := bits.Mul64(uint64(b.count), rest)        //nolint:gosec // a count is positive
		part, remainder := bits.Div64(high, low, width)
		if remainder > 0 {
			part++
		}
		b.lo, b.count = last+1, int64(part) //nolint:gosec // at most count
	}
	return true
}

// raise makes the set count at least n, where its block errs below that.
func (s *boundedSet) raise(n int64) {
	if lack := n - s.len(); lack > 0 && s.block.count > 0 {
		s.block.count += lack
	}
}

// lower makes the set count at most n, where its block errs above that.
func (s *boundedSet) lower(n int64) {
	if excess := s.len() - n; excess > 0 {
		if s.block.count -= min(excess, s.block.count); s.block.count == 0 {
			s.block = block{}
		}
	}
}

// String returns the block as a Postgres bigint array, "" where there is none.
func (b block) String() string {
	if b.count == 0 {
		return ""
	}
	return fmt.Sprintf("{%d,%d,%d}", b.lo, b.hi, b.count)
}

// parseBlock reads what String returns.
func parseBlock(literal string) (block, error) {
	if literal == "" {
		return block{}, nil
	}
	var n [3]int64
	parts := strings.Split(strings.Trim(literal, "{}"), ",")
	if len(parts) != len(n) {
		return block{}, fmt.Errorf("%q is not a block", literal)
	}
	for i, p := range parts {
		var err error
		if n[i], err = strconv.ParseInt(p, 10, 64); err != nil {
			return block{}, fmt.Errorf("%q is not a block: %w", literal, err)
		}
	}
	return block{n[0], n[1], n[2]}, nil
}

// dropOldest takes the first range out of the set and returns it.
func (s *rangeSet) dropOldest() seqRange {
	oldest := s.ranges[0]
	// Not slices.Delete: the array is left behind, which append does anyway.
	s.ranges = s.ranges[1:]
	s.size -= oldest.hi - oldest.lo + 1
	return oldest
}
