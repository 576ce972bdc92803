package keys

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/FastFilter/xorfilter"
)

// filter is an approximate set of the prefixes in a segment (a series of pages) of a run. Contains
// returns true for every prefix in the segment, and also for about one of 256 prefixes that are not
// in it.
type filter = xorfilter.BinaryFuse8

// filterFormat is the first byte of a stored filter. After it come a checksum of four bytes
// and the serialized filter. Without the checksum, a damaged filter could report a stored
// prefix as absent.
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

// filterBytes returns the memory that a filter needs, in bytes.
func filterBytes(f *filter) int { return len(f.Fingerprints) + 64 }
