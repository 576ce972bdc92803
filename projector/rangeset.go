package projector

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// rangeSet is a set of seqs, kept as ranges so that dense runs cost nothing.
// Its text form is the literal of a Postgres int8multirange. The zero value is
// empty and ready to use.
type rangeSet struct {
	// ranges are in ascending order, and neither overlap nor touch.
	ranges []seqRange
	size   int64
}

// seqRange is the seqs from lo to hi, both included: so that the greatest
// int64 needs no special case.
type seqRange struct{ lo, hi int64 }

// len returns how many seqs the set holds.
func (s *rangeSet) len() int64 { return s.size }

// min returns the least seq of the set, 0 where it is empty.
func (s *rangeSet) min() int64 {
	if len(s.ranges) == 0 {
		return 0
	}
	return s.ranges[0].lo
}

// find returns the index of the first range that ends at or after seq.
func (s *rangeSet) find(seq int64) int {
	// Messages mostly come in order, at or behind the end.
	if n := len(s.ranges); n == 0 || s.ranges[n-1].hi < seq {
		return n
	}
	i, _ := slices.BinarySearchFunc(s.ranges, seq, func(r seqRange, seq int64) int {
		switch {
		case r.hi < seq:
			return -1
		case r.hi > seq:
			return 1
		}
		return 0
	})
	return i
}

func (s *rangeSet) contains(seq int64) bool {
	i := s.find(seq)
	return i < len(s.ranges) && s.ranges[i].lo <= seq
}

// add puts seq into the set and reports whether it was not there.
func (s *rangeSet) add(seq int64) bool {
	i := s.find(seq)
	if i < len(s.ranges) && s.ranges[i].lo <= seq {
		return false
	}
	s.size++
	joinsLeft := i > 0 && s.ranges[i-1].hi == seq-1
	joinsRight := i < len(s.ranges) && seq < math.MaxInt64 && s.ranges[i].lo == seq+1
	switch {
	case joinsLeft && joinsRight:
		s.ranges[i-1].hi = s.ranges[i].hi
		s.ranges = slices.Delete(s.ranges, i, i+1)
	case joinsLeft:
		s.ranges[i-1].hi = seq
	case joinsRight:
		s.ranges[i].lo = seq
	default:
		s.ranges = slices.Insert(s.ranges, i, seqRange{seq, seq})
	}
	return true
}

// remove takes seq out of the set and reports whether it was there.
func (s *rangeSet) remove(seq int64) bool {
	i := s.find(seq)
	if i == len(s.ranges) || s.ranges[i].lo > seq {
		return false
	}
	s.size--
	r := s.ranges[i]
	switch {
	case r.lo == r.hi:
		s.ranges = slices.Delete(s.ranges, i, i+1)
	case r.lo == seq:
		s.ranges[i].lo++
	case r.hi == seq:
		s.ranges[i].hi--
	default:
		s.ranges[i].hi = seq - 1
		s.ranges = slices.Insert(s.ranges, i+1, seqRange{seq + 1, r.hi})
	}
	return true
}

// removeUpTo takes every seq up to and including last out of the set and
// reports whether there was one.
func (s *rangeSet) removeUpTo(last int64) bool {
	if len(s.ranges) == 0 || s.ranges[0].lo > last {
		return false
	}
	gone := 0
	for gone < len(s.ranges) && s.ranges[gone].hi <= last {
		s.size -= s.ranges[gone].hi - s.ranges[gone].lo + 1
		gone++
	}
	s.ranges = slices.Delete(s.ranges, 0, gone)
	if len(s.ranges) > 0 && s.ranges[0].lo <= last {
		s.size -= last - s.ranges[0].lo + 1
		s.ranges[0].lo = last + 1
	}
	return true
}

// emptySet is the literal of an empty set.
const emptySet = "{}"

// String returns the set as an int8multirange literal, such as "{[1,4),[7,8)}".
func (s *rangeSet) String() string {
	if len(s.ranges) == 0 {
		return emptySet
	}
	var few [64]byte // which most sets fit, and which costs no memory
	b := few[:0]
	if need := 24 * len(s.ranges); need > len(few) {
		b = make([]byte, 0, need)
	}
	for i, r := range s.ranges {
		b = append(b, ",["...)
		if i == 0 {
			b[0] = '{'
		}
		b = strconv.AppendInt(b, r.lo, 10)
		b = append(b, ',')
		// Postgres has no int8 behind the greatest one to exclude.
		if r.hi < math.MaxInt64 {
			b = strconv.AppendInt(b, r.hi+1, 10)
		}
		b = append(b, ')')
	}
	return string(append(b, '}'))
}

// parseRangeSet reads the canonical literal of an int8multirange, which is
// what Postgres sends.
func parseRangeSet(literal string) (rangeSet, error) {
	var s rangeSet
	body, ok := strings.CutPrefix(literal, "{")
	if ok {
		body, ok = strings.CutSuffix(body, "}")
	}
	if !ok {
		return s, fmt.Errorf("%q is not a multirange", literal)
	}
	for len(body) > 0 {
		text, rest, ok := strings.Cut(body, ")")
		if !ok {
			return s, fmt.Errorf("%q is not a multirange of int8", literal)
		}
		body = strings.TrimPrefix(rest, ",")
		lo, hi, ok := strings.Cut(strings.TrimPrefix(text, "["), ",")
		if !ok {
			return s, fmt.Errorf("%q is not a multirange of int8", literal)
		}
		r := seqRange{hi: math.MaxInt64}
		var err error
		if r.lo, err = strconv.ParseInt(lo, 10, 64); err != nil {
			return s, fmt.Errorf("%q is not a multirange of int8: %w", literal, err)
		}
		if hi != "" {
			if r.hi, err = strconv.ParseInt(hi, 10, 64); err != nil {
				return s, fmt.Errorf("%q is not a multirange of int8: %w", literal, err)
			}
			r.hi--
		}
		s.ranges = append(s.ranges, r)
		s.size += r.hi - r.lo + 1
	}
	return s, nil
}
