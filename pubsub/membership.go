package pubsub

import "slices"

// Conversation returns what a client of a user with this version sees of a
// membership, given what its Room and Behind say.
func (m *Membership) Conversation(version int64) Conversation {
	return Conversation{
		ConversationID: m.Room.ConversationID,
		Unread:         m.unread(),
		Mentions:       m.mentions(),
		FirstUnreadSeq: m.firstUnread(),
		ReadSeq:        max(m.ReadSeq, m.SeenSeq),
		LastSeq:        m.Room.LastSeq,
		Level:          m.Level,
		LevelUntil:     m.LevelUntil,
		Category:       m.Room.Category,
		MarkedUnread:   m.MarkedUnread,
		Version:        version,
	}
}

// unread returns how many messages are unread. The fold bounds the set of own
// messages, so that the difference could be negative.
func (m *Membership) unread() int64 {
	n := m.Room.Live.above(m.ReadSeq) - m.Own.above(m.ReadSeq) - m.OwnCounted
	if m.Behind != nil {
		n += m.Behind.Live
	}
	return max(0, n)
}

// mentions returns how many unread messages mention the user.
func (m *Membership) mentions() int64 {
	if m.Level == "direct_mentions" {
		return max(0, m.Mentions)
	}
	n := m.Room.All.above(m.ReadSeq) + m.Mentions
	if m.Behind != nil {
		n += m.Behind.All
	}
	return max(0, n)
}

// firstUnread returns the least unread seq, or 0.
func (m *Membership) firstUnread() int64 {
	if m.Behind != nil && m.Behind.First > 0 {
		return m.Behind.First
	}
	return m.Room.Live.Without(m.Own, m.ReadSeq)
}

// Without returns the least seq above another that is in s and not in others, or 0.
func (s Seqs) Without(others Seqs, above int64) int64 {
	from, _ := slices.BinarySearchFunc(s, above, byLast)
	for _, r := range s[from:] {
		if r.Last <= above {
			continue
		}
		first := max(r.First, above+1)
		i, _ := slices.BinarySearchFunc(others, first, byLast)
		for ; i < len(others) && others[i].First <= first; i++ {
			if others[i].Last >= r.Last {
				first = 0
				break
			}
			first = others[i].Last + 1
		}
		if first > 0 {
			return first
		}
	}
	return 0
}

// above returns how many seqs of the set are above one. Most members have read
// nearly everything, so it begins at the end.
func (s Seqs) above(seq int64) (n int64) {
	for i := len(s) - 1; i >= 0 && s[i].Last > seq; i-- {
		n += s[i].Last - max(s[i].First-1, seq)
	}
	return n
}

// byLast orders ranges by their last seq.
func byLast(r SeqRange, seq int64) int {
	switch {
	case r.Last < seq:
		return -1
	case r.Last > seq:
		return 1
	}
	return 0
}
