package badges

import (
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/pubsub"
)

// conversationRow has the columns of an ordinary conversation. If a row has no conversation,
// all these columns are null.
type conversationRow struct {
	id, level, category                         *string
	levelUntil                                  *int64
	unread, mentions, readSeq, lastSeq, version *int64
	seenSeq, seen, seenMentions                 *int64
	firstUnread                                 firstUnread
	marked, left                                *bool
}

// firstUnread is the lowest seq of a stored set.
type firstUnread int64

// ScanBytes implements pgtype.BytesScanner.
func (f *firstUnread) ScanBytes(stored []byte) error {
	first, err := badge.FirstOf(stored)
	*f = firstUnread(first)
	return err
}

func (c *conversationRow) targets() []any {
	return []any{
		&c.id, &c.unread, &c.mentions, &c.firstUnread, &c.readSeq, &c.lastSeq,
		&c.level, &c.levelUntil, &c.category, &c.marked, &c.left, &c.seenSeq, &c.seen, &c.seenMentions, &c.version,
	}
}

// conversation returns the conversation. ahead is the difference between the versions that
// clients of the user see and the lower versions in the tables.
func (c *conversationRow) conversation(ahead int64) pubsub.Conversation {
	version := *c.version
	if version > 0 { // else no client has seen the conversation
		version += ahead
	}
	return pubsub.Conversation{
		ConversationID: *c.id, Unread: *c.unread, Mentions: *c.mentions, FirstUnreadSeq: int64(c.firstUnread),
		ReadSeq: *c.readSeq, LastSeq: *c.lastSeq, Level: *c.level, LevelUntil: pubsub.TimeOf(*c.levelUntil), Category: *c.category,
		MarkedUnread: *c.marked, Left: *c.left, SeenSeq: *c.seenSeq, Seen: *c.seen, SeenMentions: *c.seenMentions, Version: version,
	}
}

// userRow is the badge of a user, without the numbers of memberships.
type userRow struct {
	whole bool
	// ahead is the difference between the versions that clients see and the lower versions in
	// the tables. carried is the part of ahead that comes from former memberships. The version
	// in badge includes carried, but not the rest of ahead.
	carried, ahead int64
	badge          pubsub.Badge
}

func (r *userRow) targets() []any {
	return append([]any{&r.whole, &r.carried, &r.ahead}, badgeTargets(&r.badge)...)
}

type membershipRow struct {
	id, level                                string
	version, joined, read, reached, mentions int64
	named, seen                              int64
	levelUntil                               int64
	marked                                   bool
	own                                      ownMessages
	// closed counts the messages above the read position in closed chunks: all messages, and the
	// messages that mention everybody. ranges has the first ranges of these messages, as an array
	// of starts and an array of sizes. It has one range more than the user's own messages can fill,
	// so one range has a message of another member. closed and ranges are nil if the read position
	// is in the open chunk.
	closed []int64
	// unseen and closedUnseen count messages above the seen position. Both are nil if the seen
	// position is the read position. closedUnseen is also nil if the seen position is in the
	// open chunk.
	unseen, closedUnseen []int64
	ranges               [][]int64
}

func (r *membershipRow) targets() []any {
	return []any{&r.id, &r.version, &r.joined, &r.read, &r.reached, &r.level, &r.levelUntil, &r.marked, &r.mentions, &r.own, &r.named, &r.seen, &r.unseen, &r.closedUnseen, &r.closed, &r.ranges}
}

// membership returns the membership, in its room.
func (r *membershipRow) membership(room *pubsub.Room) pubsub.Membership {
	m := pubsub.Membership{
		Joined: r.joined, ReadSeq: r.read, ReachedSeq: r.reached, Level: r.level, LevelUntil: pubsub.TimeOf(r.levelUntil), MarkedUnread: r.marked,
		Own: r.own.seqs, OwnCounted: r.own.counted, Mentions: r.mentions, Named: r.named, SeenSeq: r.seen, Room: room,
	}
	if len(r.unseen) == 3 {
		m.Unseen = (*[3]int64)(r.unseen)
	}
	if len(r.closed) == 2 {
		m.Behind = &pubsub.Behind{Live: r.closed[0], All: r.closed[1]}
		if len(r.closedUnseen) == 2 {
			m.Behind.UnseenLive, m.Behind.UnseenAll = r.closedUnseen[0], r.closedUnseen[1]
		}
	}
	if len(r.ranges) == 2 {
		var first pubsub.Seqs
		for i, start := range r.ranges[0] {
			first = append(first, pubsub.SeqRange{First: start, Last: start + r.ranges[1][i] - 1})
		}
		m.Behind.First = first.Without(m.Own, r.read)
	}
	return m
}

// ownMessages is a stored set of a user's own messages.
type ownMessages struct {
	seqs    pubsub.Seqs
	counted int64
}

// ScanBytes implements pgtype.BytesScanner.
func (o *ownMessages) ScanBytes(stored []byte) error {
	set, err := badge.DecodeSet(stored)
	o.seqs, o.counted = make(pubsub.Seqs, len(set.Ranges)), set.Counted()
	for i, r := range set.Ranges {
		o.seqs[i] = pubsub.SeqRange{First: r.Lo, Last: r.Hi}
	}
	return err
}

type roomRow struct {
	room      pubsub.Room
	live, all ranges
}

func (r *roomRow) targets() []any {
	return []any{
		&r.room.ConversationID, &r.room.Changes, &r.room.LastSeq, &r.room.Category, &r.room.Since,
		&r.live.starts, &r.live.before, &r.all.starts, &r.all.before,
		&r.room.ClosedLive, &r.room.ClosedAll, &r.room.ClosedChanges,
	}
}

func (r *roomRow) get() *pubsub.Room {
	room := r.room
	room.Live, room.All = r.live.seqs(), r.all.seqs()
	return &room
}

// ranges is a set in the form that the SQL function badged.rank expects. starts has the first seq
// of each range. before has, for each range, the number of seqs in earlier ranges; its last element
// is the number of all seqs. before is nil if each range has one seq.
type ranges struct{ starts, before []int64 }

func (r *ranges) seqs() pubsub.Seqs {
	s := make(pubsub.Seqs, len(r.starts))
	for i, start := range r.starts {
		s[i] = pubsub.SeqRange{First: start, Last: start}
		if r.before != nil {
			s[i].Last += r.before[i+1] - r.before[i] - 1
		}
	}
	return s
}
