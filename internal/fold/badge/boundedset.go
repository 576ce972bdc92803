package badge

import (
	"fmt"
	"math/bits"
	"slices"
)

// MaxRanges is the maximum number of ranges in a set of one conversation, unless the set
// needs at most maxWords words (bitmaps of 64 seqs; see words.go). If seqs are far apart, each
// message is a range; without the limit, the row of a user who never reads would grow forever.
const MaxRanges = 1000

// maxKnown is the maximum number of seqs that a set stores of its bulk.
const maxKnown = 64

// BoundedSet is a RangeSet with a size limit. Beyond the limit, the oldest seqs form the bulk. The
// set stores how many seqs the bulk has, and only a few of the seqs themselves. So the set is
// approximate in the bulk: Add assumes that Count includes every seq within the bounds of the
// bulk, a recall subtracts one, and a read of a part of the bulk subtracts the same fraction of
// Count. A read of the whole bulk makes the set exact again.
type BoundedSet struct {
	RangeSet
	bulk bulk
	// known has the few stored seqs of the bulk, in ascending order. Until seqs of the bulk
	// are recalled or read, known has the least and the greatest seq of the bulk, and seqs at
	// about equal distances between them.
	known []int64
}

// bulk is the oldest part of a set: Count seqs between Lo and Hi, all less than the seqs of the
// ranges. The set stores Count, but only a few of the seqs. Count is 0 if there is no bulk.
type bulk struct{ Lo, Hi, Count int64 }

// Len returns the number of seqs in the set.
func (s *BoundedSet) Len() int64 { return s.RangeSet.Len() + s.bulk.Count }

// Counted returns the number of seqs in the bulk, 0 if there is no bulk.
func (s *BoundedSet) Counted() int64 { return s.bulk.Count }

// Min returns the least seq that the set stores, 0 if the set is empty. If every stored seq of
// the bulk was recalled or read, Min returns the first seq of the ranges; if there are no
// ranges, it returns the start of the bulk.
func (s *BoundedSet) Min() int64 {
	switch {
	case s.bulk.Count == 0:
		return s.RangeSet.Min()
	case len(s.known) > 0:
		return s.known[0]
	case len(s.Ranges) > 0:
		return s.RangeSet.Min()
	}
	return s.bulk.Lo
}

// Add adds seq to the set and reports whether it was new.
func (s *BoundedSet) Add(seq int64) bool {
	if b := &s.bulk; b.Count > 0 && seq <= b.Hi {
		if seq >= b.Lo {
			return false
		}
		b.Lo = seq
		b.Count++
		s.known = slices.Insert(s.known, 0, seq)
		s.thin()
		return true
	}
	if !s.RangeSet.Add(seq) {
		return false
	}
	s.shrink()
	return true
}

// shrink moves the oldest ranges into the bulk until the set is within the limit.
func (s *BoundedSet) shrink() {
	for len(s.Ranges) > MaxRanges && countWords(s.Ranges) > maxWords {
		oldest := s.dropOldest()
		if s.bulk.Count == 0 {
			s.bulk.Lo = oldest.Lo
		}
		s.bulk.Hi = oldest.Hi
		s.bulk.Count += oldest.Hi - oldest.Lo + 1
		s.known = append(s.known, oldest.Lo)
		if oldest.Hi > oldest.Lo {
			s.known = append(s.known, oldest.Hi)
		}
		s.thin()
	}
}

// thin removes seqs from known until at most maxKnown remain. It first removes the seq whose
// two neighbours are nearest to each other, and never removes the least or the greatest seq.
func (s *BoundedSet) thin() {
	for len(s.known) > maxKnown {
		nearest := 1
		for i := 2; i < len(s.known)-1; i++ {
			if s.known[i+1]-s.known[i-1] < s.known[nearest+1]-s.known[nearest-1] {
				nearest = i
			}
		}
		s.known = slices.Delete(s.known, nearest, nearest+1)
	}
}

// Remove removes seq from the set and reports whether the set contained it. If seq is within
// the bounds of the bulk, Remove assumes that the bulk contains seq: it subtracts one from
// the count and returns true.
func (s *BoundedSet) Remove(seq int64) bool {
	if b := &s.bulk; b.Count > 0 && b.Lo <= seq && seq <= b.Hi {
		b.Count--
		if i, ok := slices.BinarySearch(s.known, seq); ok {
			s.known = slices.Delete(s.known, i, i+1)
		}
		s.settleBulk()
		return true
	}
	if !s.RangeSet.Remove(seq) {
		return false
	}
	s.shrink() // one range may have become two
	return true
}

// counts reports whether seq is within the bounds of the bulk.
func (s *BoundedSet) counts(seq int64) bool {
	return s.bulk.Count > 0 && s.bulk.Lo <= seq && seq <= s.bulk.Hi
}

// restore undoes a Remove of a seq within the bounds of the bulk: it adds one to the count.
// It does nothing for other seqs, which the caller adds with Add.
func (s *BoundedSet) restore(seq int64) {
	if s.counts(seq) {
		s.bulk.Count++
	}
}

// take removes seq, unless seq is within the bounds of the bulk: there it is unknown whether the
// set contains seq.
func (s *BoundedSet) take(seq int64) {
	if !s.counts(seq) {
		s.Remove(seq)
	}
}

// settleBulk removes the bulk if its count is 0.
func (s *BoundedSet) settleBulk() {
	if s.bulk.Count == 0 {
		s.bulk, s.known = bulk{}, nil
	}
}

// RemoveUpTo removes every seq up to and including last, and reports whether it removed any.
func (s *BoundedSet) RemoveUpTo(last int64) bool {
	b := &s.bulk
	switch {
	case b.Count == 0 || last < b.Lo:
		return s.RangeSet.RemoveUpTo(last)
	case last >= b.Hi:
		*b, s.known = bulk{}, nil
		s.RangeSet.RemoveUpTo(last)
	default: // assume that the seqs are spread evenly; count at least the known seqs
		width, rest := uint64(b.Hi-b.Lo)+1, uint64(b.Hi-last) //nolint:gosec // lo <= last < hi
		high, low := bits.Mul64(uint64(b.Count), rest)        //nolint:gosec // a count is positive
		part, remainder := bits.Div64(high, low, width)
		if remainder > 0 {
			part++
		}
		read, _ := slices.BinarySearch(s.known, last+1)
		s.known = slices.Delete(s.known, 0, read)
		b.Lo, b.Count = last+1, min(b.Count, max(int64(part), int64(len(s.known)))) //nolint:gosec // at most count
	}
	return true
}

// Above returns how many seqs of the set are greater than seq.
func (s *BoundedSet) Above(seq int64) int64 {
	if s.bulk.Count == 0 || seq >= s.bulk.Hi {
		return s.RangeSet.Len() - s.Rank(seq)
	}
	rest := BoundedSet{bulk: s.bulk, known: slices.Clone(s.known)}
	rest.RemoveUpTo(seq)
	return s.RangeSet.Len() + rest.Len()
}

// RemoveAbove removes every seq greater than last.
func (s *BoundedSet) RemoveAbove(last int64) {
	rest := *s
	if s.RangeSet = s.cut(last); s.bulk.Count == 0 || last >= s.bulk.Hi {
		return
	}
	// On a copy of the bulk, RemoveUpTo(last) estimates how many seqs of the bulk are above last.
	// Subtract this number from the count of the bulk.
	rest.known = slices.Clone(s.known)
	rest.RangeSet = RangeSet{}
	rest.RemoveUpTo(last)
	n, _ := slices.BinarySearch(s.known, last+1)
	s.known = s.known[:n]
	s.bulk.Hi, s.bulk.Count = last, max(s.bulk.Count-rest.bulk.Count, int64(n))
	s.settleBulk()
}

// raise makes Len at least n: it raises the count of the bulk. Without a bulk it does
// nothing.
func (s *BoundedSet) raise(n int64) {
	if lack := n - s.Len(); lack > 0 && s.bulk.Count > 0 {
		s.bulk.Count += lack
	}
}

// lower makes Len at most n if it can: it lowers the count of the bulk, at least to 0.
func (s *BoundedSet) lower(n int64) {
	if excess := s.Len() - n; excess > 0 {
		s.bulk.Count -= min(excess, s.bulk.Count)
		s.settleBulk()
	}
}

// String returns the set as text for people: the bulk, then the ranges.
func (s *BoundedSet) String() string {
	if s.bulk.Count == 0 {
		return s.RangeSet.String()
	}
	return fmt.Sprintf("%d of [%d,%d] and %s", s.bulk.Count, s.bulk.Lo, s.bulk.Hi, s.RangeSet.String())
}

// dropOldest removes the first range from the set and returns it.
func (s *RangeSet) dropOldest() SeqRange {
	oldest := s.Ranges[0]
	// slices.Delete would move every range; append reallocates anyway.
	s.Ranges = s.Ranges[1:]
	s.size -= oldest.Hi - oldest.Lo + 1
	return oldest
}
