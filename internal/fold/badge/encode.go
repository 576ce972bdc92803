package badge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// The stored form of a set has three parts. The first part is a byte of flags. The second part is
// the bulk (see [BoundedSet]), if there is one: Lo, Hi - Lo, Count, the number of known seqs, and
// the known seqs. The third part is the ranges, or words (see words.go) if there are more than
// MaxRanges ranges. Numbers are varints. Each seq is stored as its distance from the previous seq,
// so a set with a few ranges needs only a few bytes.
const (
	hasBlock byte = 1 << iota
	inWords
	unknownParts
)

// errSet means that the bytes are not a stored set.
var errSet = errors.New("not a set of seqs")

// Encode returns the stored form of the set, "" if the set is empty.
func (s *BoundedSet) Encode() string {
	if s.Len() == 0 {
		return ""
	}
	var few [32]byte // on the stack; most sets fit
	b := append(few[:0], 0)
	if s.bulk.Count > 0 {
		b[0] |= hasBlock
		b = appendNumbers(b, s.bulk.Lo, s.bulk.Hi-s.bulk.Lo, s.bulk.Count, int64(len(s.known)))
		at := s.bulk.Lo
		for _, seq := range s.known {
			b = appendNumbers(b, seq-at)
			at = seq
		}
	}
	if len(s.Ranges) > MaxRanges {
		b[0] |= inWords
		return string(appendWords(b, wordsOf(s.Ranges)))
	}
	at := int64(0)
	for _, r := range s.Ranges {
		b = appendNumbers(b, r.Lo-at, r.Hi-r.Lo)
		at = r.Hi
	}
	return string(b)
}

// Encode returns the stored form of the set, "" if the set is empty.
func (s *RangeSet) Encode() string { return (&BoundedSet{RangeSet: *s}).Encode() }

// DecodeSet parses the result of Encode.
func DecodeSet(stored []byte) (s BoundedSet, err error) {
	if len(stored) == 0 {
		return s, nil
	}
	parts, rest := stored[0], numbers{b: stored[1:]}
	if parts&hasBlock != 0 {
		s.decodeBlock(&rest)
	}
	switch {
	case parts >= unknownParts:
		rest.bad = true
	case parts&inWords != 0:
		s.Ranges = rangesOf(rest.words())
	default:
		for at := int64(0); rest.more(); {
			lo := rest.after(at)
			at = rest.after(lo)
			s.Ranges = append(s.Ranges, SeqRange{lo, at})
		}
	}
	for i, r := range s.Ranges {
		if i > 0 && r.Lo-1 <= s.Ranges[i-1].Hi || s.bulk.Count > 0 && r.Lo <= s.bulk.Hi {
			rest.bad = true
		}
		s.size += r.Hi - r.Lo + 1
	}
	if rest.bad || s.Len() <= 0 {
		return BoundedSet{}, fmt.Errorf("%.100x: %w", stored, errSet)
	}
	return s, nil
}

func (s *BoundedSet) decodeBlock(rest *numbers) {
	s.bulk.Lo = rest.next()
	s.bulk.Hi = rest.after(s.bulk.Lo)
	s.bulk.Count = rest.next()
	at := s.bulk.Lo
	for n := rest.next(); n > 0 && !rest.bad; n-- {
		at = rest.after(at)
		s.known = append(s.known, at)
	}
	if s.bulk.Count == 0 || at > s.bulk.Hi || !slices.IsSorted(s.known) {
		rest.bad = true
	}
}

// FirstOf returns the least seq of a stored set, as Min does. The first 64 bytes of the stored
// form suffice.
func FirstOf(stored []byte) (first int64, err error) {
	if len(stored) == 0 {
		return 0, nil
	}
	parts, rest := stored[0], numbers{b: stored[1:]}
	var lo, known int64
	if parts&hasBlock != 0 {
		lo, _, _, known = rest.next(), rest.next(), rest.next(), rest.next()
	}
	switch {
	case known > 0:
		first = rest.after(lo)
	case !rest.more():
		first = lo
	case parts&inWords != 0:
		w := rest.word(0)
		first = w.index*wordBits + int64(bits.TrailingZeros64(w.bits))
	default:
		first = rest.next()
	}
	if rest.bad {
		return 0, fmt.Errorf("%.100x: %w", stored, errSet)
	}
	return first, nil
}

// appendNumbers appends numbers, which must not be negative.
func appendNumbers(b []byte, values ...int64) []byte {
	for _, n := range values {
		b = binary.AppendUvarint(b, uint64(n)) //nolint:gosec // not negative
	}
	return b
}

// numbers parses stored numbers one after the other. After an error, bad is true and the
// results are invalid.
type numbers struct {
	b   []byte
	bad bool
}

func (n *numbers) more() bool { return len(n.b) > 0 && !n.bad }

func (n *numbers) next() int64 {
	v, size := binary.Uvarint(n.b)
	if size <= 0 || v > math.MaxInt64 {
		n.b, n.bad = nil, true
		return 0
	}
	n.b = n.b[size:]
	return int64(v)
}

// after parses the next number, which is a distance, and returns seq plus that distance.
func (n *numbers) after(seq int64) int64 {
	distance := n.next()
	if distance > math.MaxInt64-seq {
		n.bad = true
		return seq
	}
	return seq + distance
}
