package badge

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
)

// RangeSet is a set of seqs, stored as ranges: consecutive seqs need one range. The zero value
// is empty and ready to use.
type RangeSet struct {
	// Ranges are in ascending order and neither overlap nor touch.
	Ranges []SeqRange
	size   int64
}

// SeqRange is the seqs from Lo to Hi, both included. Hi is included because a range may end at
// the greatest int64.
type SeqRange struct{ Lo, Hi int64 }

// Seqs returns the seqs from lo to hi, both included, in ascending order. It returns none if
// hi < lo. A loop `for seq := lo; seq <= hi; seq++` would never end if hi is the greatest
// int64, since seq would overflow.
func Seqs(lo, hi int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for seq := lo; seq <= hi && yield(seq) && seq < hi; seq++ {
		}
	}
}

// between returns the seqs of s greater than above and at most upTo, in ascending order.
func (s *RangeSet) between(above, upTo int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for _, r := range s.Ranges {
			if r.Hi <= above {
				continue
			}
			for seq := range Seqs(max(r.Lo, above+1), min(r.Hi, upTo)) {
				if !yield(seq) {
					return
				}
			}
		}
	}
}

// NewRangeSet returns the set with the given ranges, which it does not copy. It fails if a seq
// is negative, or if the ranges are not in ascending order, overlap or touch.
func NewRangeSet(ranges []SeqRange) (s RangeSet, err error) {
	for i, r := range ranges {
		if r.Lo > r.Hi || r.Lo < 0 || i > 0 && r.Lo-1 <= ranges[i-1].Hi {
			return RangeSet{}, errSet
		}
		s.size += r.Hi - r.Lo + 1
	}
	s.Ranges = ranges
	return s, nil
}

// Len returns the number of seqs in the set.
func (s *RangeSet) Len() int64 { return s.size }

// Min returns the least seq of the set, 0 if it is empty.
func (s *RangeSet) Min() int64 {
	if len(s.Ranges) == 0 {
		return 0
	}
	return s.Ranges[0].Lo
}

// Max returns the greatest seq of the set, 0 if it is empty.
func (s *RangeSet) Max() int64 {
	if len(s.Ranges) == 0 {
		return 0
	}
	return s.Ranges[len(s.Ranges)-1].Hi
}

// find returns the index of the first range that ends at or after seq, and len(s.Ranges) if
// every range ends before seq.
func (s *RangeSet) find(seq int64) int {
	// Most messages are delivered in order, so check the last range first.
	if n := len(s.Ranges); n == 0 || s.Ranges[n-1].Hi < seq {
		return n
	}
	i, _ := slices.BinarySearchFunc(s.Ranges, seq, func(r SeqRange, seq int64) int {
		switch {
		case r.Hi < seq:
			return -1
		case r.Hi > seq:
			return 1
		}
		return 0
	})
	return i
}

// Contains reports whether seq is in the set.
func (s *RangeSet) Contains(seq int64) bool {
	i := s.find(seq)
	return i < len(s.Ranges) && s.Ranges[i].Lo <= seq
}

// Add adds seq to the set and reports whether it was new.
func (s *RangeSet) Add(seq int64) bool {
	i := s.find(seq)
	if i < len(s.Ranges) && s.Ranges[i].Lo <= seq {
		return false
	}
	s.size++
	joinsLeft := i > 0 && s.Ranges[i-1].Hi == seq-1
	joinsRight := i < len(s.Ranges) && seq < math.MaxInt64 && s.Ranges[i].Lo == seq+1
	switch {
	case joinsLeft && joinsRight:
		s.Ranges[i-1].Hi = s.Ranges[i].Hi
		s.Ranges = slices.Delete(s.Ranges, i, i+1)
	case joinsLeft:
		s.Ranges[i-1].Hi = seq
	case joinsRight:
		s.Ranges[i].Lo = seq
	default:
		s.Ranges = slices.Insert(s.Ranges, i, SeqRange{seq, seq})
	}
	return true
}

// Remove removes seq from the set and reports whether the set contained it.
func (s *RangeSet) Remove(seq int64) bool {
	i := s.find(seq)
	if i == len(s.Ranges) || s.Ranges[i].Lo > seq {
		return false
	}
	s.size--
	r := s.Ranges[i]
	switch {
	case r.Lo == r.Hi:
		s.Ranges = slices.Delete(s.Ranges, i, i+1)
	case r.Lo == seq:
		s.Ranges[i].Lo++
	case r.Hi == seq:
		s.Ranges[i].Hi--
	default:
		s.Ranges[i].Hi = seq - 1
		s.Ranges = slices.Insert(s.Ranges, i+1, SeqRange{seq + 1, r.Hi})
	}
	return true
}

// RemoveUpTo removes every seq up to and including last, and reports whether it removed any.
func (s *RangeSet) RemoveUpTo(last int64) bool {
	if len(s.Ranges) == 0 || s.Ranges[0].Lo > last {
		return false
	}
	gone := 0
	for gone < len(s.Ranges) && s.Ranges[gone].Hi <= last {
		s.size -= s.Ranges[gone].Hi - s.Ranges[gone].Lo + 1
		gone++
	}
	s.Ranges = slices.Delete(s.Ranges, 0, gone)
	if len(s.Ranges) > 0 && s.Ranges[0].Lo <= last {
		s.size -= last - s.Ranges[0].Lo + 1
		s.Ranges[0].Lo = last + 1
	}
	return true
}

// cut splits s after `last`: it removes the seqs up to and including `last` from s, and returns
// them as another set.
func (s *RangeSet) cut(last int64) (lower RangeSet) {
	n := s.find(last)
	lower.Ranges = slices.Clone(s.Ranges[:n])
	if n < len(s.Ranges) && s.Ranges[n].Lo <= last {
		lower.Ranges = append(lower.Ranges, SeqRange{s.Ranges[n].Lo, last})
	}
	lower.size = s.size
	s.RemoveUpTo(last)
	lower.size -= s.size
	return lower
}

// and returns the union of s and `above`. Every seq in `above` must be greater than every seq in s.
func (s *RangeSet) and(above *RangeSet) RangeSet {
	if len(s.Ranges) == 0 || len(above.Ranges) == 0 {
		return RangeSet{slices.Concat(s.Ranges, above.Ranges), s.size + above.size}
	}
	all, rest := slices.Clone(s.Ranges), above.Ranges
	if last := &all[len(all)-1]; last.Hi+1 == rest[0].Lo {
		last.Hi, rest = rest[0].Hi, rest[1:]
	}
	return RangeSet{append(all, rest...), s.size + above.size}
}

// Rank returns how many seqs of the set are at or below seq.
func (s *RangeSet) Rank(seq int64) (n int64) {
	for _, r := range s.Ranges {
		if r.Lo > seq {
			break
		}
		n += min(r.Hi, seq) - r.Lo + 1
	}
	return n
}

// String returns the set in the form in which Postgres shows an int8multirange, such as
// "{[1,4),[7,8)}".
func (s *RangeSet) String() string {
	var b strings.Builder
	b.WriteByte('{')
	for i, r := range s.Ranges {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "[%d,%d)", r.Lo, uint64(r.Hi)+1) //nolint:gosec // not negative
	}
	b.WriteByte('}')
	return b.String()
}
