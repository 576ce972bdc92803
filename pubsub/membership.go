package pubsub

import (
	"slices"

	"github.com/badged/badged/internal/base/category"
)

// Conversation returns the conversation as a client of the member sees it. m.Room must be set.
// If the member's ReadSeq is below m.Room.Since, m.Behind must be set too. version is the
// version of the user. levels are the levels that the user has set for categories.
func (m *Membership) Conversation(version int64, levels map[string]string) Conversation {
	c, _ := m.build(version, levels)
	return c
}

// Adds returns what the membership adds to the numbers of its user, given the user's levels.
func (m *Membership) Adds(levels map[string]string) Numbers {
	c, count := m.build(0, levels)
	return count.At(category.Levels(levels).Of(m.Level, c.Category))
}

func (m *Membership) build(version int64, levels map[string]string) (Conversation, category.Count) {
	behind := Behind{}
	if m.Behind != nil {
		behind = *m.Behind
	}
	direct := category.Levels(levels).Of(m.Level, m.Room.Category) == category.LevelDirectMentions
	// Replace a negative count by 0. A difference may be negative: if the fold cannot list all of
	// the member's own messages, the number of own messages is an estimate.
	count := func(above, behindLive, behindAll, own, mentions, named int64) (unread, mentioned int64) {
		unread = max(0, m.Room.Live.above(above)+behindLive-own)
		if direct {
			return unread, max(0, named)
		}
		return unread, max(0, m.Room.All.above(above)+behindAll+mentions)
	}
	c := Conversation{
		ConversationID: m.Room.ConversationID,
		FirstUnreadSeq: m.firstUnread(),
		ReadSeq:        max(m.ReadSeq, m.ReachedSeq),
		SeenSeq:        m.SeenSeq,
		LastSeq:        m.Room.LastSeq,
		Level:          m.Level,
		LevelUntil:     m.LevelUntil,
		Category:       m.Room.Category,
		MarkedUnread:   m.MarkedUnread,
		Version:        version,
	}
	c.Unread, c.Mentions = count(m.ReadSeq, behind.Live, behind.All, m.Own.above(m.ReadSeq)+m.OwnCounted, m.Mentions, m.Named)
	unseen, unseenMentions := c.Unread, c.Mentions
	if m.Unseen != nil {
		unseen, unseenMentions = count(m.seen(), behind.UnseenLive, behind.UnseenAll, m.Unseen[0], m.Unseen[1], m.Unseen[2])
	}
	c.Seen, c.SeenMentions = c.Unread-unseen, c.Mentions-unseenMentions
	return c, category.CountOf(c.Unread, c.Mentions, unseen, unseenMentions, c.MarkedUnread)
}

func (m *Membership) seen() int64 { return max(m.ReadSeq, m.ReachedSeq, m.SeenSeq) }

// SeenInOpen reports whether all unseen messages are in the open chunk of the room. [Room]
// lists only the messages of this chunk.
func (m *Membership) SeenInOpen() bool { return m.seen() >= m.Room.Since }

// firstUnread returns the lowest unread seq, or 0 if nothing is unread.
func (m *Membership) firstUnread() int64 {
	if m.Behind != nil && m.Behind.First > 0 {
		return m.Behind.First
	}
	return m.Room.Live.Without(m.Own, m.ReadSeq)
}

// Without returns the lowest seq of `s` that is greater than `above` and is not in `others`. It
// returns 0 if there is no such seq.
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

// above returns the number of seqs in s that are greater than seq. It iterates from the end of
// s, since most members have read nearly all messages.
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
