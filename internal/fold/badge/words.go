package badge

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// A set with more than MaxRanges ranges is stored as words. A word is a bitmap of 64 consecutive
// seqs, or a run of full bitmaps. If seqs have few gaps, words need little space, even for a set
// with many ranges.

// maxWords is the maximum number of words (see word) in a set with more than MaxRanges ranges. If a
// set exceeds both limits, its oldest seqs are replaced by their count: see [BoundedSet].
const maxWords = 1000

// wordBits is the number of seqs in a bitmap.
const wordBits = 64

// fullWord is a word with all its seqs in the set.
const fullWord = ^uint64(0)

// word is a bitmap of 64 seqs, or a run of bitmaps in which every bit is set.
type word struct {
	// index is the index of the bitmap, or of the first bitmap of the run, from 0. The first seq of
	// this bitmap is index * wordBits.
	index int64
	// run is the number of bitmaps. It is 1 unless bits is fullWord.
	run int64
	// bits has a bit for each seq in the set; the least seq is the lowest bit.
	bits uint64
}

// wordsOf converts ranges to words. The ranges must be in ascending order and not touch.
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

// countWords returns the number of words that wordsOf would return for ranges.
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

// rangesOf converts words to ranges. It is the inverse of wordsOf.
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

// appendWords appends the stored form of words. A word is stored as a varint and a content. The
// varint is 2 times the number of bitmaps between the end of the previous word and this word;
// for a run of full bitmaps, it is greater by 1 and so odd. The content of a run is its length
// as a varint. The content of any other word is its bits in eight bytes, big-endian.
func appendWords(b []byte, words []word) []byte {
	b = slices.Grow(b, 10*len(words))
	end := int64(0)
	for _, w := range words {
		distance := (w.index - end) << 1
		end = w.index + w.run
		if w.bits == fullWord {
			b = appendNumbers(b, distance|1, w.run)
			continue
		}
		b = binary.BigEndian.AppendUint64(appendNumbers(b, distance), w.bits)
	}
	return b
}

// words parses all remaining bytes as words, in the form that appendWords writes.
func (n *numbers) words() []word {
	var words []word
	for end := int64(0); n.more(); {
		w := n.word(end)
		words, end = append(words, w), w.index+w.run
	}
	if n.bad {
		return nil
	}
	return words
}

// word parses the next word. end is the index of the first bitmap after the previous word.
func (n *numbers) word(end int64) word {
	const limit = math.MaxInt64/wordBits + 1 // the number of words that cover all seqs
	distance := n.next()
	w := word{index: end + distance>>1, run: 1}
	switch {
	case distance&1 == 1:
		w.run, w.bits = n.next(), fullWord
	case len(n.b) < 8:
		n.bad = true
	default:
		w.bits, n.b = binary.BigEndian.Uint64(n.b), n.b[8:]
	}
	if w.bits == 0 || w.run < 1 || w.run > limit || w.index+w.run > limit {
		n.bad = true
	}
	return w
}
