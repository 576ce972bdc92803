package badge

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// stored returns a set as it comes back from the tables.
func stored(t *rapid.T, set *BoundedSet) BoundedSet {
	bytes := set.Encode()
	again, err := DecodeSet([]byte(bytes))
	if err != nil {
		t.Fatalf("%s: %v", set, err)
	}
	if again.Encode() != bytes {
		t.Fatalf("%s comes back as %s", set, &again)
	}
	if first, err := FirstOf([]byte(bytes[:min(len(bytes), 64)])); err != nil || first != set.Min() {
		t.Fatalf("the first of %s is %d, want %d (%v)", set, first, set.Min(), err)
	}
	return again
}

func TestStoredSetsAreSmall(t *testing.T) {
	for _, c := range []struct {
		ranges []SeqRange
		bytes  int
	}{
		{nil, 0},
		{[]SeqRange{{1, 1}}, 3},
		{[]SeqRange{{100, 164}}, 3},
		{[]SeqRange{{1_000_000, 1_000_000}, {1_000_002, 1_000_050}}, 7},
		{[]SeqRange{{math.MaxInt64, math.MaxInt64}}, 11},
	} {
		var set BoundedSet
		for _, r := range c.ranges {
			for n := r.Lo; n-1 < r.Hi; n++ {
				set.Add(n)
				if n == math.MaxInt64 {
					break
				}
			}
		}
		if got := len(set.Encode()); got != c.bytes {
			t.Errorf("%s takes %d bytes, want %d", &set, got, c.bytes)
		}
	}
}

// Bytes that were cut, changed or made up are a set in its only form, or an
// error that shows them.
func TestDamagedSets(t *testing.T) {
	for name, damaged := range map[string]string{
		"an unknown part":                "\x04\x01\x00",
		"nothing in it":                  "\x00",
		"a range without an end":         "\x00\x01",
		"ranges that touch":              "\x00\x01\x00\x01\x00",
		"a number that does not end":     "\x00\xff",
		"a number beyond all seqs":       "\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00",
		"a range that ends behind all":   "\x00\x05\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
		"a bulk that counts nothing":     "\x01\x01\x05\x00\x00",
		"a known seq behind the bulk":    "\x01\x01\x05\x02\x01\x09",
		"a range in the bulk":            "\x01\x01\x05\x02\x00\x03\x00",
		"a word without bits":            "\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00",
		"half a word":                    "\x02\x00\x00\x00",
		"a run of no words":              "\x02\x01\x00",
		"a run of words behind all seqs": "\x02\x01\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
	} {
		if set, err := DecodeSet([]byte(damaged)); !errors.Is(err, errSet) {
			t.Errorf("%s: %v, read as %s", name, err, &set)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "bytes")
		bytes[0] &= unknownParts - 1
		set, err := DecodeSet(bytes)
		if err != nil {
			return
		}
		if first, err := FirstOf(bytes); err != nil || first != set.Min() {
			t.Fatalf("the first of %x is %d, want %d (%v)", bytes, first, set.Min(), err)
		}
		again, err := DecodeSet([]byte(set.Encode()))
		if err != nil || fmt.Sprint(&again) != fmt.Sprint(&set) || again.Len() != set.Len() {
			t.Fatalf("%x is %s, then %s, %v", bytes, &set, &again, err)
		}
	})
}
