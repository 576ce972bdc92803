// Package pgwire encodes large arrays for Postgres.
//
// badged sends arrays of hundreds of elements. pgx boxes each element, looks up
// its encoding and grows the buffer on the way: that took a tenth of the
// projector's time and caused two thirds of its garbage. Everything works
// without this package, only slower.
//
// It does not know tables.
package pgwire

import (
	"database/sql/driver"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// RegisterArrays makes a connection whose types are m encode []string, []int64,
// [][16]byte, [UUIDs], [Bytes] and [Leading] in one pass. Call it in the
// AfterConnect of a pool.
func RegisterArrays(m *pgtype.Map) {
	for _, oid := range []uint32{
		pgtype.TextArrayOID, pgtype.JSONArrayOID, pgtype.JSONBArrayOID, pgtype.Int8ArrayOID, pgtype.UUIDArrayOID,
		pgtype.ByteaArrayOID,
	} {
		t, ok := m.TypeForOID(oid)
		if !ok {
			continue
		}
		if codec, ok := t.Codec.(*pgtype.ArrayCodec); ok {
			m.RegisterType(&pgtype.Type{Name: t.Name, OID: oid, Codec: arrayCodec{codec}})
		}
	}
}

// arrayCodec is pgx's codec of an array type, with plans of its own for some
// slices.
type arrayCodec struct{ *pgtype.ArrayCodec }

// PlanEncode implements [pgtype.Codec].
func (c arrayCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode {
		element := c.ElementType.OID
		switch value.(type) {
		case []string:
			if element == pgtype.TextOID || element == pgtype.JSONOID || element == pgtype.JSONBOID {
				return textsPlan{element}
			}
		case Bytes:
			if element == pgtype.ByteaOID {
				return bytesPlan{textsPlan{element}}
			}
		case Leading:
			switch element {
			case pgtype.TextOID:
				return leadingPlan{textsPlan{element}}
			case pgtype.UUIDOID:
				return leadingPlan{keysPlan{}}
			}
		case []int64:
			if element == pgtype.Int8OID {
				return numbersPlan{}
			}
		case [][16]byte, UUIDs:
			if element == pgtype.UUIDOID {
				return keysPlan{}
			}
		}
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

// arrayHeader is the bytes before the elements of an array.
const arrayHeader = 20

// appendArray appends the header of an array of n elements that take this many
// bytes without their lengths. A buffer that is too small also gets room for
// three times its content, so that the arrays of a statement grow it only a few
// times.
func appendArray(buf []byte, element uint32, n, bytes int) []byte {
	if need := arrayHeader + 4*n + bytes; cap(buf)-len(buf) < need {
		buf = slices.Grow(buf, need+3*len(buf))
	}
	buf = append(buf, 0, 0, 0, 1, 0, 0, 0, 0) // one dimension, no nulls
	buf = binary.BigEndian.AppendUint32(buf, element)
	buf = appendLength(buf, n)
	return append(buf, 0, 0, 0, 1) // the first index
}

func appendLength(buf []byte, n int) []byte {
	return binary.BigEndian.AppendUint32(buf, uint32(n)) //nolint:gosec // checked by the plans
}

// errTooLong reports an array that no message of Postgres can hold.
var errTooLong = errors.New("an array has more than 2 GiB; send it in parts")

type textsPlan struct{ element uint32 }

// Encode implements [pgtype.EncodePlan].
func (p textsPlan) Encode(value any, buf []byte) ([]byte, error) {
	texts := value.([]string) //nolint:forcetypeassert // PlanEncode checked it
	bytes, prefix := 0, 0
	if p.element == pgtype.JSONBOID {
		prefix = 1 // the version of the format
	}
	for _, s := range texts {
		bytes += len(s) + prefix
	}
	if bytes+4*len(texts) > math.MaxInt32 {
		return nil, errTooLong
	}
	buf = appendArray(buf, p.element, len(texts), bytes)
	for _, s := range texts {
		buf = appendLength(buf, len(s)+prefix)
		if prefix > 0 {
			buf = append(buf, 1)
		}
		buf = append(buf, s...)
	}
	return buf, nil
}

// Bytes is an array of bytea; each string holds the bytes of one element.
type Bytes []string

// Value implements [driver.Valuer], for connections without [RegisterArrays].
func (b Bytes) Value() (driver.Value, error) {
	literals := make([]string, len(b))
	for i := range b {
		literals[i] = `\x` + hex.EncodeToString([]byte(b[i]))
	}
	return ArrayLiteral(literals), nil
}

type bytesPlan struct{ texts textsPlan }

// Encode implements [pgtype.EncodePlan].
func (p bytesPlan) Encode(value any, buf []byte) ([]byte, error) {
	return p.texts.Encode([]string(value.(Bytes)), buf) //nolint:forcetypeassert // PlanEncode checked it
}

// UUIDs is an array of uuid. It goes as 16 bytes an element where the type of
// the parameter is known, and as an array literal otherwise.
type UUIDs [][16]byte

// Value implements [driver.Valuer], for other drivers and for the modes of pgx
// that send text.
func (u UUIDs) Value() (driver.Value, error) {
	texts := make([]string, len(u))
	for i := range u {
		texts[i] = uuid.UUID(u[i]).String()
	}
	return ArrayLiteral(texts), nil
}

// Leading is the first array of a statement. pgx encodes the parameters of a
// statement into one buffer that begins small; Leading grows it once for all of
// them.
type Leading struct {
	// Array is a []string or a [][16]byte.
	Array any
	// Bytes is about how many bytes all arrays of the statement take.
	Bytes int
}

// Value implements [driver.Valuer], for connections without [RegisterArrays].
func (l Leading) Value() (driver.Value, error) {
	switch array := l.Array.(type) {
	case []string:
		return ArrayLiteral(array), nil
	case [][16]byte:
		return UUIDs(array).Value()
	}
	return nil, fmt.Errorf("encode a leading array: want []string or [][16]byte, got %T", l.Array)
}

// leadingPlan grows the buffer, then runs the plan of the array.
type leadingPlan struct{ array pgtype.EncodePlan }

// Encode implements [pgtype.EncodePlan].
func (p leadingPlan) Encode(value any, buf []byte) ([]byte, error) {
	l := value.(Leading) //nolint:forcetypeassert // PlanEncode checked it
	return p.array.Encode(l.Array, slices.Grow(buf, l.Bytes))
}

// ArrayBytes returns the encoded size of an array of texts.
func ArrayBytes(texts []string) int {
	bytes := arrayHeader + 4*len(texts)
	for _, s := range texts {
		bytes += len(s)
	}
	return bytes
}

type numbersPlan struct{}

// Encode implements [pgtype.EncodePlan].
func (numbersPlan) Encode(value any, buf []byte) ([]byte, error) {
	numbers := value.([]int64) //nolint:forcetypeassert // PlanEncode checked it
	if 12*len(numbers) > math.MaxInt32 {
		return nil, errTooLong
	}
	buf = appendArray(buf, pgtype.Int8OID, len(numbers), 8*len(numbers))
	for _, n := range numbers {
		buf = binary.BigEndian.AppendUint64(append(buf, 0, 0, 0, 8), uint64(n)) //nolint:gosec // the same bits
	}
	return buf, nil
}

type keysPlan struct{}

// Encode implements [pgtype.EncodePlan].
func (keysPlan) Encode(value any, buf []byte) ([]byte, error) {
	keys, ok := value.([][16]byte)
	if !ok {
		keys = value.(UUIDs) //nolint:forcetypeassert // PlanEncode checked it
	}
	if 20*len(keys) > math.MaxInt32 {
		return nil, errTooLong
	}
	buf = appendArray(buf, pgtype.UUIDOID, len(keys), 16*len(keys))
	for i := range keys {
		buf = append(append(buf, 0, 0, 0, 16), keys[i][:]...)
	}
	return buf, nil
}

// Reserve grows the send buffer of conn by this many bytes, and sends nothing.
// pgx begins each round trip with a small buffer and grows it by a quarter at a
// time, which is slow for a batch of megabytes. conn must not be in use.
func Reserve(conn *pgx.Conn, bytes int) { conn.PgConn().Frontend().Send(room(bytes)) }

// room is a message of no bytes.
type room int

// Frontend implements [pgproto3.FrontendMessage].
func (room) Frontend() {}

// Decode implements [pgproto3.Message].
func (room) Decode([]byte) error { return errors.ErrUnsupported }

// Encode implements [pgproto3.Message].
func (r room) Encode(dst []byte) ([]byte, error) { return slices.Grow(dst, int(r)), nil }

// ArrayLiteral returns the Postgres array literal of texts, for any driver.
func ArrayLiteral(texts []string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, s := range texts {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		for {
			j := strings.IndexAny(s, `"\`)
			if j < 0 {
				break
			}
			b.WriteString(s[:j])
			b.WriteByte('\\')
			b.WriteByte(s[j])
			s = s[j+1:]
		}
		b.WriteString(s)
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}
