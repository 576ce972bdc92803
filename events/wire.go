package events

import (
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// What is sent to Postgres in bulk is arrays of hundreds of elements. Encoding
// them as pgx does took a tenth of the projector's time, and left two thirds of
// what the garbage collector had to clear away.

// RegisterArrays lets a connection whose types are m encode slices of strings,
// numbers and keys in one go, where pgx boxes each element, looks up how to
// encode it, and grows its buffer on the way. It is for the AfterConnect of a
// pool, of badged's own or of one in which much is appended; everything works
// without it.
func RegisterArrays(m *pgtype.Map) {
	for _, oid := range []uint32{
		pgtype.TextArrayOID, pgtype.JSONArrayOID, pgtype.JSONBArrayOID, pgtype.Int8ArrayOID, pgtype.UUIDArrayOID,
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

// arrayCodec is pgx's codec of an array type, except for the slices that it has
// plans of its own for.
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
		case [][16]byte, uuids:
			if element == pgtype.UUIDOID {
				return keysPlan{}
			}
		}
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

// arrayHeader is the bytes before the elements of an array.
const arrayHeader = 20

// appendArray appends the header of an array of n elements, which take so many
// bytes without their lengths. It makes room for those where there is none, and
// then for three times what is there, so that the arrays of a statement grow the
// buffer a few times only.
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

// errTooLong is for what no message of Postgres could hold.
var errTooLong = errors.New("an array of more than 2 GiB")

type textsPlan struct{ element uint32 }

// Encode implements [pgtype.EncodePlan].
func (p textsPlan) Encode(value any, buf []byte) ([]byte, error) {
	texts := value.([]string) //nolint:forcetypeassert // made for these
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

// Leading is the first array of a statement, and about how many bytes all of its
// arrays take: pgx encodes the parameters of a statement into one buffer, which
// begins small.
type Leading struct {
	// Array is of texts, as a []string, or of keys, as a [][16]byte.
	Array any
	Bytes int
}

// Value implements [driver.Valuer], for connections without RegisterArrays.
func (l Leading) Value() (driver.Value, error) {
	switch array := l.Array.(type) {
	case []string:
		return arrayLiteral(array), nil
	case [][16]byte:
		return uuids(array).Value()
	}
	return nil, fmt.Errorf("an array of %T cannot lead", l.Array)
}

// leadingPlan makes room before the plan of the array.
type leadingPlan struct{ array pgtype.EncodePlan }

// Encode implements [pgtype.EncodePlan].
func (p leadingPlan) Encode(value any, buf []byte) ([]byte, error) {
	l := value.(Leading) //nolint:forcetypeassert // made for these
	return p.array.Encode(l.Array, slices.Grow(buf, l.Bytes))
}

// ArrayBytes is what an array of texts takes on its way to Postgres.
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
	numbers := value.([]int64) //nolint:forcetypeassert // made for these
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
		keys = value.(uuids) //nolint:forcetypeassert // made for these
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

// Reserve makes room for so many bytes in what conn is about to send. Its
// buffer begins small with every round trip, and otherwise grows by a quarter
// at a time. It is for whoever sends so much at once, and sends nothing.
func Reserve(conn *pgx.Conn, bytes int) { conn.PgConn().Frontend().Send(room(bytes)) }

// room is a message of no bytes.
type room int

// Frontend implements [pgproto3.FrontendMessage].
func (room) Frontend() {}

// Decode implements [pgproto3.Message].
func (room) Decode([]byte) error { return errors.ErrUnsupported }

// Encode implements [pgproto3.Message].
func (r room) Encode(dst []byte) ([]byte, error) { return slices.Grow(dst, int(r)), nil }
