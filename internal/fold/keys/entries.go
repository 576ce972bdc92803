package keys

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/google/uuid"
)

// Entry records that a user has had an event. Prefix is the first half of the event's key.
// Rest is the second half XOR a hash of the user, so that the user needs no space of its own.
// Two pairs of event and user have the same entry about as rarely as two events have the same
// key.
type Entry struct{ Prefix, Rest uint64 }

// EntryOf returns the entry of an event key and a user's hash.
func EntryOf(key uuid.UUID, user uint64) Entry {
	return Entry{binary.BigEndian.Uint64(key[:8]), binary.BigEndian.Uint64(key[8:]) ^ user}
}

func compareEntries(a, b Entry) int {
	return cmp.Or(cmp.Compare(a.Prefix, b.Prefix), cmp.Compare(a.Rest, b.Rest))
}

// Blocks and the pages of runs have the same format: a byte for the layout, then the entries in
// ascending order. layoutSingle is used if no two entries have the same prefix: each entry has 16
// bytes. In layoutGrouped, each prefix (8 bytes) is followed by the number of its entries as a
// varint, and by the Rest of each entry (8 bytes).
const (
	layoutSingle  = 1
	layoutGrouped = 2
)

// entryBytes is the size of an entry in layoutSingle.
const entryBytes = 16

// Sizes of a row in bytes. A page of Postgres (8 KiB) has room for four rows with a page of a run
// each, or for one full block, so the rows are not moved to the TOAST table. Only an event with
// many users makes a larger row.
const (
	pageBytes  = 1985
	blockBytes = 8113
)

// pack encodes sorted entries in parts of at most `limit` bytes, and returns the number of entries
// in each part. All entries with the same prefix are in one part, which may therefore exceed the
// limit.
func pack(entries []Entry, limit int) (parts [][]byte, counts []int) {
	for len(entries) > 0 {
		n := fit(entries, limit)
		parts, counts = append(parts, encode(entries[:n])), append(counts, n)
		entries = entries[n:]
	}
	return parts, counts
}

// fit returns how many of the sorted entries to encode in a part of `limit` bytes. It includes at
// least all entries with the first prefix.
func fit(entries []Entry, limit int) (n int) {
	single, grouped := true, 1
	for n < len(entries) {
		group := groupAt(entries, n)
		single = single && group == 1
		grouped += 8 + len(binary.AppendUvarint(nil, uint64(group))) + 8*group //nolint:gosec // it is not negative
		size := grouped
		if single {
			size = 1 + entryBytes*(n+group)
		}
		if n > 0 && size > limit {
			break
		}
		n += group
	}
	return n
}

// groupAt returns how many entries, beginning with index i, have the prefix of entry i.
func groupAt(entries []Entry, i int) int {
	n := 1
	for i+n < len(entries) && entries[i+n].Prefix == entries[i].Prefix {
		n++
	}
	return n
}

func encode(entries []Entry) []byte {
	single := true
	for i := 1; i < len(entries) && single; i++ {
		single = entries[i].Prefix != entries[i-1].Prefix
	}
	b := make([]byte, 1, 1+entryBytes*len(entries))
	if single {
		b[0] = layoutSingle
		for _, e := range entries {
			b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, e.Prefix), e.Rest)
		}
		return b
	}
	b[0] = layoutGrouped
	for i := 0; i < len(entries); {
		n := groupAt(entries, i)
		b = binary.AppendUvarint(binary.BigEndian.AppendUint64(b, entries[i].Prefix), uint64(n)) //nolint:gosec // it is not negative
		for _, e := range entries[i : i+n] {
			b = binary.BigEndian.AppendUint64(b, e.Rest)
		}
		i += n
	}
	return b
}

// decode appends the entries of a block or page to `entries`. It fails if b is not a result of
// encode.
func decode(entries []Entry, b []byte) ([]Entry, error) {
	if len(b) < 1+entryBytes {
		return nil, fmt.Errorf("%d bytes are too few", len(b))
	}
	first := len(entries)
	switch layout, rest := b[0], b[1:]; layout {
	case layoutSingle:
		if len(rest)%entryBytes != 0 {
			return nil, fmt.Errorf("%d bytes are not a whole number of entries", len(rest))
		}
		entries = slices.Grow(entries, len(rest)/entryBytes)
		for ; len(rest) > 0; rest = rest[entryBytes:] {
			entries = append(entries, Entry{binary.BigEndian.Uint64(rest), binary.BigEndian.Uint64(rest[8:])})
		}
	case layoutGrouped:
		for len(rest) > 0 {
			if len(rest) < 8 {
				return nil, fmt.Errorf("a prefix of %d bytes at the end", len(rest))
			}
			prefix := binary.BigEndian.Uint64(rest)
			n, length := binary.Uvarint(rest[8:])
			if length <= 0 || n == 0 || n > uint64(len(rest)-8-length)/8 { //nolint:gosec // length is at most what is left
				return nil, fmt.Errorf("prefix %016x has %d entries in %d bytes", prefix, n, len(rest)-8)
			}
			rest = rest[8+length:]
			for range n {
				entries = append(entries, Entry{prefix, binary.BigEndian.Uint64(rest)})
				rest = rest[8:]
			}
		}
	default:
		return nil, fmt.Errorf("unknown layout %d: a newer release may have written it", layout)
	}
	for i := first + 1; i < len(entries); i++ {
		if compareEntries(entries[i-1], entries[i]) >= 0 {
			return nil, fmt.Errorf("entry %d is not above the one before", i-first)
		}
	}
	return entries, nil
}

// ordered converts a prefix to a bigint with the same order.
func ordered(prefix uint64) int64 { return int64(prefix ^ 1<<63) } //nolint:gosec // the bits are kept

// fromOrdered is the inverse of ordered.
func fromOrdered(n int64) uint64 { return uint64(n) ^ 1<<63 } //nolint:gosec // the bits are kept
