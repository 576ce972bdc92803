package badge

// Chunk is the messages of a room between two seqs. A room without gaps between its
// seqs has one chunk; otherwise each message is a range, and a message must not
// write them all.
type Chunk struct {
	// Bound is the greatest seq that belongs to the chunk; the chunk before ends
	// below. The open chunk has none.
	Bound int64
	// Live are the messages that are not recalled, and All those of them that
	// mention everybody.
	Live, All RangeSet
	// Recalled are the recalled messages, posted or not.
	Recalled RangeSet
}

// Rank returns how many messages of the set are at or below seq.
func (s *RangeSet) Rank(seq int64) (n int64) {
	for _, r := range s.Ranges {
		if r.Lo > seq {
			break
		}
		n += min(r.Hi, seq) - r.Lo + 1
	}
	return n
}
