// Package eventbatch packs events into rows of the log, and appends rows.
//
// A row of the log has one event as a JSON object, or several events as a JSON array, which is
// the batch format of CloudEvents. The JSON may be compressed with zstd. A compressed row
// begins with the magic number of a zstd frame, with which no JSON text begins.
//
// The package does not know what events mean. ADR 58 has the reasons.
package eventbatch

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/klauspost/compress/zstd"
)

// ContentType is the media type of several events.
const ContentType = "application/cloudevents-batch+json"

// Limits of a row. They limit the memory that one row needs.
const (
	// MaxEvents is the maximum number of events in a row.
	MaxEvents = 1000
	// MaxBytes is the maximum size in bytes of the JSON of a row that has several events or
	// is compressed. A single uncompressed event may have MaxRow bytes.
	MaxBytes = 1 << 20
	// MaxRow is the maximum size of a stored row in bytes. It is also the maximum memory in
	// bytes that decompressing a row may use.
	MaxRow = 8 << 20
)

// PayloadSQL is an SQL expression for the payload of a row, null if the payload exceeds MaxRow.
// Postgres computes octet_length without reading the payload.
const PayloadSQL = `CASE WHEN octet_length(payload) <= 8388608 THEN payload END`

// smallestCompressed is the size in bytes from which payloads are compressed. Smaller payloads stay
// uncompressed, since compressing takes at least 20 µs. Storing a larger payload uncompressed costs
// more: Postgres stores it outside of the page (TOAST).
const smallestCompressed = 2000

// magic begins every zstd frame.
var magic = []byte{0x28, 0xB5, 0x2F, 0xFD}

// encoder has a window of MaxBytes, the maximum size of JSON that is compressed. By default the
// encoder adds a checksum to each frame, so that the decoder detects damage.
var encoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(MaxBytes),
		zstd.WithEncoderConcurrency(runtime.GOMAXPROCS(0)), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err) // the options are constants
	}
	return e
})

var decoder = sync.OnceValue(func() *zstd.Decoder {
	// The memory limit is MaxRow and not MaxBytes, since streaming encoders of other programs
	// declare windows of up to 8 MiB, even if the content is small.
	d, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(MaxRow), zstd.WithDecoderConcurrency(runtime.GOMAXPROCS(0)))
	if err != nil {
		panic(err) // the options are constants
	}
	return d
})

// Fits reports whether one more event of `more` bytes fits into a row that already has the
// given number of events, with `bytes` bytes in total.
func Fits(events, bytes, more int) bool {
	// The JSON also has two brackets, and a comma before each event but the first.
	return events < MaxEvents && bytes+events+more+2 <= MaxBytes
}

// Pack returns a row with several events. It compresses the row if that saves at least an
// eighth. It fails if the events do not fit into a row.
func Pack[T string | []byte](events []T) ([]byte, error) {
	size := 1 + len(events)
	for _, e := range events {
		size += len(e)
	}
	if len(events) > MaxEvents || size > MaxBytes {
		return nil, fmt.Errorf("a row with %d events and %d bytes is too large: a row has at most %d events and %d bytes", len(events), size, MaxEvents, MaxBytes)
	}
	text := append(make([]byte, 0, size), '[')
	for i, e := range events {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, e...)
	}
	text = append(text, ']')
	if len(text) < smallestCompressed {
		return text, nil
	}
	if packed := encoder().EncodeAll(text, make([]byte, 0, len(text)/4)); len(packed) < len(text)-len(text)/8 {
		return packed, nil
	}
	return text, nil
}

// Plain returns the JSON of a row: it decompresses a compressed row, and returns any other row
// unchanged. It fails if a row cannot be decompressed, or has more than MaxBytes when
// decompressed.
func Plain(row []byte) ([]byte, error) {
	if !bytes.HasPrefix(row, magic) {
		return row, nil
	}
	text, err := decoder().DecodeAll(row, nil)
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || len(text) > MaxBytes {
		return nil, fmt.Errorf("the row has more than %d bytes when decompressed", MaxBytes)
	}
	if errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return nil, fmt.Errorf("the row cannot be decompressed: it needs a window of more than %d bytes", MaxRow)
	}
	if err != nil {
		return nil, fmt.Errorf("the row cannot be decompressed: %w", err)
	}
	return text, nil
}

// IsJSON reports whether a text is one JSON value. Unlike [json.Valid] it refuses invalid
// UTF-8, as Postgres and most parsers do.
func IsJSON(text []byte) bool {
	return jsontext.Value(text).IsValid(jsontext.AllowDuplicateNames(true))
}

// Unpack returns the events of a row, at least one. It does not check the syntax of each
// event. It fails if it cannot separate the events, or if the row exceeds a limit.
func Unpack(row []byte) (events [][]byte, err error) {
	text, err := Plain(row)
	if err != nil {
		return nil, err
	}
	if !IsBatch(text) {
		return [][]byte{text}, nil
	}
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("the batch has %d bytes; a row has at most %d", len(text), MaxBytes)
	}
	return split(bytes.TrimLeft(text, space))
}

// space is the white space of JSON.
const space = " \t\r\n"

// IsBatch reports whether the JSON of a row is an array.
func IsBatch(text []byte) bool {
	text = bytes.TrimLeft(text, space)
	return len(text) > 0 && text[0] == '['
}

// errEnds is returned for an array without an end.
var errEnds = errors.New("the batch is not valid JSON: it ends too early")

// split returns the elements of an array. It interprets only strings, brackets and commas; the
// syntax within an element is checked when the element is decoded.
func split(text []byte) ([][]byte, error) {
	elements := make([][]byte, 0, 8)
	depth, begin := 0, 1
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '"':
			n := stringEnd(text[i+1:])
			if n < 0 {
				return nil, errEnds
			}
			i += 1 + n
		case '{', '[':
			depth++
		case '}', ']', ',':
			if depth > 0 {
				if text[i] != ',' {
					depth--
				}
				continue
			}
			element := bytes.Trim(text[begin:i], space)
			if len(element) == 0 {
				if len(elements) == 0 && text[i] == ']' {
					return nil, errors.New("the batch has no events")
				}
				return nil, fmt.Errorf("the batch is not valid JSON: a value is missing at byte %d", i)
			}
			if len(elements) == MaxEvents {
				return nil, fmt.Errorf("the batch has more than %d events", MaxEvents)
			}
			elements = append(elements, element[:len(element):len(element)])
			begin = i + 1
			if text[i] == ',' {
				continue
			}
			if rest := bytes.Trim(text[begin:], space); text[i] == '}' || len(rest) > 0 {
				return nil, fmt.Errorf("the batch is not valid JSON: it does not end at byte %d", i)
			}
			return elements, nil
		}
	}
	return nil, errEnds
}

// stringEnd returns the index of the quote that ends a string, -1 if there is none.
func stringEnd(text []byte) int {
	for i := 0; ; {
		n := bytes.IndexByte(text[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		backslashes := 0
		for i > backslashes && text[i-1-backslashes] == '\\' {
			backslashes++
		}
		if backslashes%2 == 0 {
			return i
		}
		i++
	}
}
