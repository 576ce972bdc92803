package badges

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/badge"
)

// Message names a message of a conversation and a user. [Reader.Count] reports whether the user's
// total counts the message.
type Message struct {
	UserID, ConversationID string
	Seq                    int64
	// Mentions is true if the message mentions the user, by name or as one of all members.
	// Named is true if it mentions the user by name.
	Mentions, Named bool
	// AnyLevel makes Count ignore the level of the conversation.
	AnyLevel bool
}

// Count returns for each message whether the user's total counts it: it is delivered, neither
// read nor recalled, and counted at the level of the conversation. All users must belong to
// the partition.
func (r *Reader) Count(ctx context.Context, partition int, messages []Message) ([]bool, error) {
	users, conversations, seqs := make([]string, len(messages)), make([]string, len(messages)), make([]int64, len(messages))
	for i, m := range messages {
		users[i], conversations[i], seqs[i] = m.UserID, m.ConversationID, m.Seq
	}
	counts := make([]bool, len(messages))
	var ord int
	var level string
	var live bool // in a room: posted, not recalled, and above the read position
	var isMember bool
	var unread, own messageSet
	rows, _ := r.q.Query(ctx, statements.Of(partition, "read messages"), users, conversations, seqs)
	_, err := pgx.ForEachRow(rows, []any{&ord, &level, &isMember, &live, &unread, &own}, func() error {
		m := &messages[ord-1]
		if isMember {
			live = live && !own.has(m.Seq)
		} else {
			live = unread.has(m.Seq)
		}
		counts[ord-1] = live && m.countsAt(events.Level(level))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read whether %d messages are unread: %w", len(messages), err)
	}
	return counts, nil
}

// countsAt reports whether a conversation with the given level counts the message.
func (m *Message) countsAt(level events.Level) bool {
	if m.AnyLevel {
		return true
	}
	switch level {
	case events.LevelAll:
		return true
	case events.LevelMentions:
		return m.Mentions
	case events.LevelDirectMentions:
		return m.Named
	case events.LevelNone, events.LevelDefault:
	}
	return false
}

// messageSet is a stored set of messages.
type messageSet struct{ badge.BoundedSet }

// ScanBytes implements pgtype.BytesScanner.
func (s *messageSet) ScanBytes(stored []byte) (err error) {
	s.BoundedSet, err = badge.DecodeSet(stored)
	return err
}

// has reports whether a message is in the set. A large set stores only the count of its oldest
// messages: see [badge.BoundedSet]. If the message may be one of them, has returns true.
func (s *messageSet) has(seq int64) bool {
	return s.Contains(seq) || s.Counted() > 0 && seq >= s.Min() && (len(s.Ranges) == 0 || seq < s.Ranges[0].Lo)
}
