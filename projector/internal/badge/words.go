package badge

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"strings"
)

// A set with more than MaxRanges ranges keeps the newest as ranges and the others
// in words: bitmaps of 64 seqs. Where seqs have few gaps, words take little
// space, however many holes the set has.

// maxWords is the most words that the ranges of a set may touch when there are
// more than MaxRanges of them.
const maxWords = 1000

// wordBits is how many seqs a word covers.
const wordBits = 64

// fullWord is a word with every seq in the set.
const fullWord = ^uint64(0)

// word is a bitmap of 64 seqs, or a run of full ones.
type word struct {
	// index is the index of the first word, whose seqs begin at wordBits times
	// index.
	index int64
	// run is the number of words, 1 unless each is full.
	run int64
	// bits has a bit for each seq in the set, the least seq first.
	bits uint64
}

// wordsOf returns ranges as words. The ranges are in order and do not touch.
func wordsOf(ranges []SeqRange) []word {
	var words []word
	put := func(index int64, bits uint64) {
		if n := len(words); n > 0 && words[n-1].index == index {
			words[n-1].bits |= bits
			return
		}
		words = append(words, word{index, 1, bits})
	}
	for _, r := range ranges {
		first, last := r.Lo/wordBits, r.Hi/wordBits
		from, to := fullWord<<(r.Lo%wordBits), fullWord>>(wordBits-1-r.Hi%wordBits)
		if first == last {
			put(first, from&to)
			continue
		}
		put(first, from)
		if between := last - first - 1; between > 0 {
			words = append(words, word{first + 1, between, fullWord})
		}
		put(last, to)
	}
	return words
}

// countWords returns the number of words that wordsOf would return.
func countWords(ranges []SeqRange) int {
	n, previous := 0, int64(-1)
	for _, r := range ranges {
		first, last := r.Lo/wordBits, r.Hi/wordBits
		if first != previous {
			n++
		}
		if last > first {
			n++
		}
		if last > first+1 {
			n++
		}
		previous = last
	}
	return n
}

// rangesOf returns words as ranges. It is the inverse of wordsOf.
func rangesOf(words []word) []SeqRange {
	var ranges []SeqRange
	put := func(lo, hi int64) {
		if n := len(ranges); n > 0 && ranges[n-1].Hi == lo-1 {
			ranges[n-1].Hi = hi
			return
		}
		ranges = append(ranges, SeqRange{lo, hi})
	}
	for _, w := range words {
		start := w.index * wordBits
		if w.bits == fullWord {
			put(start, start+(w.run*wordBits-1))
			continue
		}
		for rest := w.bits; rest != 0; {
			lo := bits.TrailingZeros64(rest)
			length := bits.TrailingZeros64(^(rest >> lo))
			put(start+int64(lo), start+int64(lo+length-1))
			rest &^= (1<<length - 1) << lo
		}
	}
	return ranges
}

// encodeWords returns words as they are stored, nil for none. First come eight
// bytes with the least seq, for SQL. Each word follows: its distance from the
// end of the one before, doubled, plus one for a run of full words; then its
// bits in eight bytes, or the length of the run. Numbers are varints, bytes
// are big-endian.
func encodeWords(words []word) []byte {
	if len(words) == 0 {
		return nil
	}
	first := words[0]
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 8+10*len(words)), uint64(first.index*wordBits+int64(bits.TrailingZeros64(first.bits)))) //nolint:gosec // not negative
	end := int64(0)
	for _, w := range words {
		distance := uint64(w.index-end) << 1 //nolint:gosec // words are in order
		end = w.index + w.run
		if w.bits == fullWord {
			b = binary.AppendUvarint(binary.AppendUvarint(b, distance|1), uint64(w.run)) //nolint:gosec // positive
			continue
		}
		b = binary.BigEndian.AppendUint64(binary.AppendUvarint(b, distance), w.bits)
	}
	return b
}

var errWords = errors.New("not a bitmap of seqs")

// decodeWords is the inverse of encodeWords.
func decodeWords(stored []byte) ([]word, error) {
	if len(stored) == 0 {
		return nil, nil
	}
	if len(stored) < 8 {
		return nil, errWords
	}
	number := func(b []byte) (uint64, []byte, error) {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, nil, errWords
		}
		return v, b[n:], nil
	}
	var words []word
	end := int64(0)
	for rest := stored[8:]; len(rest) > 0; {
		distance, after, err := number(rest)
		if err != nil {
			return nil, err
		}
		w := word{index: end + int64(distance>>1), run: 1}
		switch {
		case distance&1 == 1:
			run, after, err := number(after)
			if err != nil {
				return nil, err
			}
			w.run, w.bits, rest = int64(run), fullWord, after //nolint:gosec // as it was encoded
		case len(after) < 8:
			return nil, errWords
		default:
			w.bits, rest = binary.BigEndian.Uint64(after), after[8:]
		}
		words, end = append(words, w), w.index+w.run
	}
	return words, nil
}

// older returns the ranges past the newest MaxRanges.
func (s *BoundedSet) older() []SeqRange { return s.Ranges[:max(0, len(s.Ranges)-MaxRanges)] }

// Newest returns the newest MaxRanges ranges as a Postgres int8multirange.
func (s *BoundedSet) Newest() string {
	newest := RangeSet{Ranges: s.Ranges[len(s.older()):]}
	return newest.String()
}

// Words returns the older ranges as Postgres prints a bytea, "" for none.
func (s *BoundedSet) Words() string {
	words := encodeWords(wordsOf(s.older()))
	if words == nil {
		return ""
	}
	return `\x` + hex.EncodeToString(words)
}

// ParseBoundedSet reads what Newest, Words and BlockText return.
func ParseBoundedSet(newest, words, blockText string) (s BoundedSet, err error) {
	if s.RangeSet, err = ParseRangeSet(newest); err != nil {
		return s, err
	}
	if words != "" {
		stored, err := hex.DecodeString(strings.TrimPrefix(words, `\x`))
		if err != nil {
			return s, fmt.Errorf("words %s: %w", words, err)
		}
		decoded, err := decodeWords(stored)
		if err != nil {
			return s, fmt.Errorf("words %s: %w", words, err)
		}
		older := rangesOf(decoded)
		for _, r := range older {
			s.size += r.Hi - r.Lo + 1
		}
		s.Ranges = append(older, s.Ranges...)
	}
	return s, s.parseBlock(blockText)
}
