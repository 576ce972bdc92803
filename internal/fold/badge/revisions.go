package badge

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// maxRevisions is how many messages of a conversation have a stored revision at most: the
// messages with the greatest seqs. Changes of the other messages apply in the order of the log.
const maxRevisions = 64

// Revisions are the revisions of changed messages, by ascending seq. A change without a
// revision number is stored as 0.
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

// accept stores a change of a message with a revision number, 0 for none. It returns false if
// a change with this number or a greater one is stored already.
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

// DecodeRevisions parses what Encode returns.
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
