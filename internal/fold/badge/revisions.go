package badge

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// maxRevisions limits the messages of a conversation whose revision numbers are stored; the
// messages with the greatest seqs remain. Changes of other messages apply in the order of the
// log, even if a later change has a lower number.
const maxRevisions = 64

// Revisions has the last revision number of each changed message, by ascending seq. The number
// is 0 if no change of the message had a number.
type Revisions []Revision

// Revision is the revision number of the last change of a message.
type Revision struct{ Seq, Number int64 }

func (r Revisions) find(seq int64) (i int, found bool) {
	return slices.BinarySearchFunc(r, seq, func(have Revision, seq int64) int { return cmp.Compare(have.Seq, seq) })
}

// has reports whether a change of the message is stored.
func (r Revisions) has(seq int64) bool {
	_, found := r.find(seq)
	return found
}

// accept decides whether a change of a message applies. If so, it stores the revision number
// of the change, 0 for none. A change does not apply if a change with the same or a greater
// number was accepted before. A change without a number always applies.
func (r *Revisions) accept(seq, number int64) bool {
	i, found := r.find(seq)
	switch {
	case !found:
		*r = slices.Insert(*r, i, Revision{seq, number})
		*r = (*r)[max(0, len(*r)-maxRevisions):]
	case number == 0:
	case number <= (*r)[i].Number:
		return false
	default:
		(*r)[i].Number = number
	}
	return true
}

// Encode returns the stored form of the revisions, "" for none.
func (r Revisions) Encode() string {
	var b []byte
	for _, have := range r {
		b = binary.AppendVarint(binary.AppendVarint(b, have.Seq), have.Number)
	}
	return string(b)
}

// DecodeRevisions parses the result of Encode.
func DecodeRevisions(stored string) (r Revisions, err error) {
	for b := []byte(stored); len(b) > 0; {
		seq, n := binary.Varint(b)
		number, m := binary.Varint(b[max(0, n):])
		if n <= 0 || m <= 0 {
			return nil, errSet
		}
		r, b = append(r, Revision{seq, number}), b[n+m:]
	}
	return r, nil
}
