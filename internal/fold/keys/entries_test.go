package keys

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// drawEntries draws entries in order, some with the same prefix.
func drawEntries(t *rapid.T) []Entry {
	entries := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) Entry {
		return Entry{rapid.SampledFrom(prefixes).Draw(t, "prefix"), rapid.Uint64Range(0, 200).Draw(t, "rest")}
	}), 1, 400, rapid.ID[Entry]).Draw(t, "entries")
	if rapid.Bool().Draw(t, "one user each") {
		for i := range entries {
			entries[i].Prefix += uint64(i) << 8
		}
	}
	slices.SortFunc(entries, compareEntries)
	return entries
}

// Unpacking returns the packed entries. A part exceeds the limit only for one large prefix, and
// no prefix is in two parts.
func TestPack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := drawEntries(t)
		limit := rapid.IntRange(17, 2000).Draw(t, "limit")
		parts, counts := pack(entries, limit)
		var got []Entry
		for i, part := range parts {
			before := len(got)
			var err error
			if got, err = decodeBlock(got, part); err != nil {
				t.Fatal(err)
			}
			if len(got)-before != counts[i] {
				t.Fatalf("part %d has %d entries, counted as %d", i, len(got)-before, counts[i])
			}
			if len(part) > limit && groupAt(entries, before) != counts[i] {
				t.Fatalf("part %d has %d bytes, want at most %d", i, len(part), limit)
			}
			if before > 0 && got[before].Prefix == got[before-1].Prefix {
				t.Fatalf("prefix %x is in two parts", got[before].Prefix)
			}
		}
		if diff := cmp.Diff(entries, got); diff != "" {
			t.Fatalf("packed and decoded (-want +got):\n%s", diff)
		}
	})
}

// An event for one user needs 16 bytes, and 8 for each further user.
func TestSizeOfEntries(t *testing.T) {
	for _, tc := range []struct {
		name    string
		entries []Entry
		bytes   int
	}{
		{"one event for one user", []Entry{{1, 1}}, 1 + 16},
		{"three events for one user each", []Entry{{1, 1}, {2, 1}, {3, 1}}, 1 + 3*16},
		{"an event for three users", []Entry{{1, 1}, {1, 2}, {1, 3}}, 1 + 9 + 3*8},
	} {
		if got := len(encode(tc.entries)); got != tc.bytes {
			t.Errorf("%s takes %d bytes, want %d", tc.name, got, tc.bytes)
		}
	}
	page := make([]Entry, 1000)
	for i := range page {
		page[i].Prefix = uint64(i)
	}
	if got := fit(page, pageBytes); got != 124 {
		t.Errorf("a page has %d entries, want 124", got)
	}
	if got := fit(page, blockBytes); got != 507 {
		t.Errorf("a row of a block has %d entries, want 507", got)
	}
}

// Bytes that no encoder writes are an error, and never a panic.
func TestDecodeRejectsDamage(t *testing.T) {
	single, grouped := encode([]Entry{{1, 1}, {2, 2}}), encode([]Entry{{1, 1}, {1, 2}, {2, 3}})
	swapped := slices.Concat(single[:1], single[17:], single[1:17])
	for _, tc := range []struct {
		name string
		b    []byte
		says string
	}{
		{"empty", nil, "0 bytes are too few"},
		{"cut", single[:len(single)-1], "not a whole number of entries"},
		{"cut after a prefix", grouped[:len(grouped)-8], "prefix 0000000000000002 has 1 entries in 1 bytes"},
		{"cut within a prefix", grouped[:len(grouped)-12], "a prefix of 5 bytes at the end"},
		{"no entries", append([]byte{layoutGrouped}, make([]byte, 17)...), "has 0 entries"},
		{"a huge count", slices.Concat(grouped[:9], []byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 1}, grouped[9:]), "has 18446744073709551615 entries"},
		{"out of order", swapped, "entry 1 is not above the one before"},
		{"twice", slices.Concat(single, single[17:]), "entry 2 is not above the one before"},
		{"a newer layout", append([]byte{3}, single[1:]...), "unknown layout 3"},
	} {
		if _, err := decode(nil, tc.b); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: the error is %v, want one with %q", tc.name, err, tc.says)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "bytes")
		entries, err := decode(nil, b)
		if err == nil && !slices.IsSortedFunc(entries, compareEntries) {
			t.Fatalf("%x gives %v", b, entries)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(encode([]Entry{{1, 1}, {2, 2}}))
	f.Add(encode([]Entry{{1, 1}, {1, 2}, {2, 3}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := decode(nil, b)
		if err != nil {
			return
		}
		again, err := decode(nil, encode(entries))
		if diff := cmp.Diff(entries, again); diff != "" || err != nil {
			t.Errorf("error %v, (-decoded +again):\n%s", err, diff)
		}
	})
}

// The stored form of a prefix has the order of prefixes.
func TestOrdered(t *testing.T) {
	for i, p := range prefixes {
		if fromOrdered(ordered(p)) != p || i > 0 && ordered(prefixes[i-1]) >= ordered(p) {
			t.Errorf("prefix %x is stored as %d, after %d", p, ordered(p), ordered(prefixes[max(0, i-1)]))
		}
	}
}
