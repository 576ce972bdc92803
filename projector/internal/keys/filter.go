package keys

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/FastFilter/xorfilter"
)

// filter tells most prefixes that a segment of a run does not have from those
// that it may have: one of 256 others passes. It never rejects one that it has.
type filter = xorfilter.BinaryFuse8

// filterFormat is the first byte of a stored filter. A checksum of four bytes
// and the filter as the library saves it follow. A damaged filter would reject
// keys that it has.
const filterFormat = 1

var checksums = crc32.MakeTable(crc32.Castagnoli)

// newFilter returns a filter of prefixes and its stored form.
func newFilter(prefixes []uint64) (*filter, []byte, error) {
	f, err := xorfilter.PopulateBinaryFuse8(prefixes)
	if err != nil {
		return nil, nil, fmt.Errorf("build a filter of %d keys: %w", len(prefixes), err)
	}
	var saved bytes.Buffer
	saved.Write(make([]byte, 5))
	if err := f.Save(&saved); err != nil {
		return nil, nil, fmt.Errorf("save a filter of %d keys: %w", len(prefixes), err)
	}
	b := saved.Bytes()
	b[0] = filterFormat
	binary.BigEndian.PutUint32(b[1:], crc32.Checksum(b[5:], checksums))
	return f, b, nil
}

// loadFilter returns a stored filter.
func loadFilter(b []byte) (*filter, error) {
	switch {
	case len(b) < 5:
		return nil, fmt.Errorf("%d bytes are too few", len(b))
	case b[0] != filterFormat:
		return nil, fmt.Errorf("unknown format %d", b[0])
	case binary.BigEndian.Uint32(b[1:]) != crc32.Checksum(b[5:], checksums):
		return nil, errors.New("the checksum is wrong")
	}
	return xorfilter.LoadBinaryFuse8(bytes.NewReader(b[5:]))
}

// filterBytes is what a filter takes in memory.
func filterBytes(f *filter) int { return len(f.Fingerprints) + 64 }
