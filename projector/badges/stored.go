package badges

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/pubsub"
)

// Key names a conversation of a user.
type Key struct{ UserID, ConversationID string }

// Stored is a conversation of a user as it is in the tables.
type Stored struct {
	pubsub.Conversation
	// Member is true if the conversation is a room and the user is a member. Conversation then has
	// no numbers, since the numbers of a membership are computed from the room.
	Member bool

	unread, mentions messageSet
}

// IsUnread reports whether a message is unread. A large set stores only the count of its oldest
// messages: see [badge.BoundedSet]. If the message may be one of them, IsUnread returns true.
func (s *Stored) IsUnread(seq int64) bool { return s.unread.has(seq) }

// IsMention reports whether a message is unread and mentions the user. Like IsUnread, it returns
// true for a message that may be one of the old messages of which the set stores only the count.
func (s *Stored) IsMention(seq int64) bool { return s.mentions.has(seq) }

// Stored returns the conversations of users, in the order of `keys`. For a conversation without a
// row, it returns a new conversation. All conversations of one partition come from one snapshot.
func (r *Reader) Stored(ctx context.Context, keys []Key) ([]Stored, error) {
	found := make([]Stored, len(keys))
	places := map[int][]int{} // indexes in keys, by partition
	layout := r.layouts.Layout()
	for i, k := range keys {
		found[i].ConversationID, found[i].Level, found[i].Category = k.ConversationID, string(events.LevelDefault), events.DefaultCategory
		p := layout.PartitionOf(k.UserID)
		places[p] = append(places[p], i)
	}
	for _, p := range slices.Sorted(maps.Keys(places)) {
		if err := r.storedIn(ctx, p, places[p], keys, found); err != nil {
			return nil, fmt.Errorf("read %d conversations of partition %d: %w", len(places[p]), p, err)
		}
	}
	return found, nil
}

// Analyze updates the planner's statistics of the tables from which badges are read. Call it
// after filling the tables.
func (r *Reader) Analyze(ctx context.Context) error {
	held, err := eventlog.Held(ctx, r.q)
	if err != nil {
		return err
	}
	for _, p := range held {
		if err := r.q.QueryRow(ctx, `SELECT badged.analyze_tables($1, '')`, p).Scan(nil); err != nil {
			return fmt.Errorf("analyze the tables of partition %d: %w", p, err)
		}
	}
	return nil
}

// storedIn reads the conversations at the indexes places of keys into found.
func (r *Reader) storedIn(ctx context.Context, partition int, places []int, keys []Key, found []Stored) error {
	users, conversations := make([]string, len(places)), make([]string, len(places))
	for i, place := range places {
		users[i], conversations[i] = keys[place].UserID, keys[place].ConversationID
	}
	var (
		ord              int
		isMember         bool
		c                conversationRow
		unread, mentions messageSet
	)
	rows, _ := r.q.Query(ctx, statements.Of(partition, "read stored"), users, conversations)
	_, err := pgx.ForEachRow(rows, slices.Concat([]any{&ord, &isMember}, c.targets(), []any{&unread, &mentions}), func() error {
		s := &found[places[ord-1]]
		if s.Member = isMember; !isMember {
			s.Conversation, s.unread, s.mentions = c.conversation(0), unread, mentions
		}
		return nil
	})
	return err
}
