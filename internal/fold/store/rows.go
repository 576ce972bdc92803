package store

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/badge"
)

// How many key columns the rows have, not counting the partition. The key columns come first, then
// the version.
const (
	UserKey         = 1
	ConversationKey = 2
)

// UserRow is a row of badged.users.
type UserRow struct {
	id                       string
	version, total, mentions int64
	carried                  int64
	conversations            int64
	categories, claims       string
	// extra has the badge's numbers without a column, "" for most users: see [badge.EncodeExtra].
	extra string
	// pathRows is the number of rows in badged.paths that the user has. It is 0 if the user's paths
	// are stored in the column categories.
	pathRows int64
}

// neverJoined is the value of carried for a user who was never a member of a room. The table
// has null for it.
const neverJoined = -1

// Columns returns the columns of r. They point into r: scanning writes to r, and writing reads
// from r.
func (r *UserRow) Columns() []Column {
	return []Column{
		{Name: "user_id", target: &r.id},
		{Name: "version", target: &r.version},
		{Name: "total", target: &r.total},
		{Name: "mentions", target: &r.mentions},
		{Name: "carried", target: &r.carried, usual: int64(neverJoined), null: true},
		{Name: "categories", target: &r.categories, kind: "jsonb"},
		{Name: "claims", target: &r.claims, kind: "jsonb", usual: "", null: true},
		{Name: "unread_conversations", target: &r.conversations},
		{Name: "extra", target: &r.extra, kind: "jsonb", usual: "", null: true},
		{Name: "path_rows", target: &r.pathRows, usual: int64(0), null: true},
	}
}

// Set sets r to the row of a user.
func (r *UserRow) Set(u *badge.User) {
	*r = UserRow{
		id: u.ID, version: u.Version, total: u.Total, mentions: u.Mentions, carried: u.Carried,
		conversations: u.UnreadConversations, categories: u.Paths.String(), claims: u.ReadsAhead.String(),
		extra: badge.EncodeExtra(u.Numbers), pathRows: u.Paths.Rows(),
	}
	if !u.Joined {
		r.carried = neverJoined
	}
}

// restore sets u to the state in the row.
func (r *UserRow) restore(u *badge.User) (err error) {
	u.Version, u.Total, u.Mentions, u.UnreadConversations = r.version, r.total, r.mentions, r.conversations
	u.Carried, u.Joined = max(0, r.carried), r.carried != neverJoined
	if err := badge.DecodeExtra(r.extra, &u.Numbers); err != nil {
		return fmt.Errorf("extra of user %q: %w", r.id, err)
	}
	if u.Paths, err = badge.Restore(r.categories); err != nil {
		return fmt.Errorf("categories of user %q: %w", r.id, err)
	}
	if r.pathRows > 0 {
		u.Paths.RestoreRows(r.pathRows)
	}
	if u.ReadsAhead, err = badge.ParseReadsAhead(r.claims); err != nil {
		return fmt.Errorf("claims of user %q: %w", r.id, err)
	}
	return nil
}

// ConversationRow is a row of badged.conversations.
type ConversationRow struct {
	userID, id                         string
	version, readSeq, lastSeq, leftSeq int64
	joined                             int64
	category, level, levelAfter        string
	levelUntil                         int64
	marked                             bool
	unread, mentions, deliveredHour    int64
	unreadSet, mentionSet, recalledSet seqSet
	ownSet, ownAllSet, againSet        seqSet
	sentSet, namedSet, namedAllSet     seqSet
	revisions                          seqSet
	reached, seen, named               int64
	// unseen is "" if all unread messages are unseen.
	unseen string
}

// Columns returns the columns of r. They point into r: scanning writes to r, and writing reads
// from r.
func (r *ConversationRow) Columns() []Column {
	return []Column{
		{Name: "user_id", target: &r.userID},
		{Name: "conversation_id", target: &r.id},
		{Name: "version", target: &r.version},
		{Name: "read_seq", target: &r.readSeq},
		{Name: "last_seq", target: &r.lastSeq},
		{Name: "left_seq", target: &r.leftSeq, usual: int64(badge.Never), null: true},
		{Name: "joined", target: &r.joined, usual: int64(notJoined), null: true},
		{Name: "category", target: &r.category},
		{Name: "level", target: &r.level, kind: "badged.level", usual: string(events.LevelDefault)},
		{Name: "level_until", target: &r.levelUntil, usual: int64(0), null: true},
		{Name: "level_after", target: &r.levelAfter, kind: "badged.level", usual: "", null: true},
		{Name: "marked_unread", target: &r.marked, usual: false},
		{Name: "unread", target: &r.unread, derived: true},
		{Name: "mentions", target: &r.mentions, derived: true, usual: int64(0)},
		{Name: "delivered_hour", target: &r.deliveredHour},
		{Name: "unread_set", target: &r.unreadSet, usual: "", null: true},
		{Name: "mention_set", target: &r.mentionSet, usual: "", null: true},
		{Name: "recalled_set", target: &r.recalledSet, usual: "", null: true},
		{Name: "own_set", target: &r.ownSet, usual: "", null: true},
		{Name: "own_all_set", target: &r.ownAllSet, usual: "", null: true},
		{Name: "again_set", target: &r.againSet, usual: "", null: true},
		{Name: "reached_seq", target: &r.reached, usual: int64(0), null: true},
		{Name: "seen_seq", target: &r.seen, usual: int64(0), null: true},
		{Name: "unseen", target: &r.unseen, kind: "bigint[]", usual: "", null: true, derived: true},
		{Name: "named", target: &r.named, usual: int64(0), null: true, derived: true},
		{Name: "sent_set", target: &r.sentSet, usual: "", null: true},
		{Name: "named_set", target: &r.namedSet, usual: "", null: true},
		{Name: "named_all_set", target: &r.namedAllSet, usual: "", null: true},
		{Name: "revisions", target: &r.revisions, usual: "", null: true},
	}
}

// notJoined is the value of joined for an ordinary conversation. The table has null for it.
const notJoined = -1

// Set sets r to the row of a conversation of a user.
func (r *ConversationRow) Set(userID string, c *badge.Conversation) {
	*r = ConversationRow{
		userID: userID, id: c.ID, version: c.Version, readSeq: c.ReadSeq, lastSeq: c.LastSeq, leftSeq: c.LeftSeq, joined: notJoined,
		category: c.Category, level: string(c.Level), levelUntil: c.LevelUntil, levelAfter: string(c.LevelAfter), marked: c.Marked, deliveredHour: c.DeliveredHour,
		unread: c.Count(), unreadSet: seqSet(c.Unread.Encode()), againSet: seqSet(c.MarkedUnread.Encode()),
		mentions: c.Mentions.Len(), mentionSet: seqSet(c.Mentions.Encode()),
		recalledSet: seqSet(c.Recalled.Encode()), revisions: seqSet(c.Revisions.Encode()), seen: c.SeenSeq,
	}
	if m := c.Membership; m != nil {
		r.joined, r.unread, r.mentions, r.named = m.Joined, m.Own.Len(), c.Mentions.Len()-m.OwnAll.Len(), c.Named()
		r.ownSet, r.ownAllSet, r.namedAllSet = seqSet(m.Own.Encode()), seqSet(m.OwnAll.Encode()), seqSet(m.NamedAll.Encode())
		r.reached, r.sentSet, r.namedSet = m.Reached, seqSet(m.Sent.Encode()), seqSet(m.Named.Encode())
		if unseen := c.UnseenCorrection(); unseen != nil {
			r.unseen = fmt.Sprintf("{%d,%d,%d}", unseen[0], unseen[1], unseen[2])
		}
	} else if unseen, mentions := c.Unseen(); unseen != r.unread || mentions != r.mentions {
		r.unseen = fmt.Sprintf("{%d,%d}", unseen, mentions)
	}
}

// conversation returns the conversation that the row describes.
func (r *ConversationRow) conversation() (*badge.Conversation, error) {
	c := &badge.Conversation{
		ID: r.id, Version: r.version, ReadSeq: r.readSeq, LastSeq: r.lastSeq, LeftSeq: r.leftSeq,
		Category: r.category, Level: events.Level(r.level), LevelUntil: r.levelUntil, LevelAfter: events.Level(r.levelAfter), Marked: r.marked, DeliveredHour: r.deliveredHour,
		SeenSeq: r.seen,
	}
	var err error
	decode := func(stored seqSet) (s badge.BoundedSet) {
		if err == nil {
			s, err = badge.DecodeSet([]byte(stored))
		}
		return s
	}
	c.Unread, c.Mentions = decode(r.unreadSet), decode(r.mentionSet)
	if c.Revisions, err = badge.DecodeRevisions(string(r.revisions)); err != nil {
		return nil, fmt.Errorf("revisions in conversation %q of user %q: %w", r.id, r.userID, err)
	}
	c.MarkedUnread, c.Recalled = decode(r.againSet).RangeSet, decode(r.recalledSet).RangeSet
	if r.joined != notJoined {
		c.Membership = &badge.Membership{
			Joined: r.joined, Own: decode(r.ownSet), OwnAll: decode(r.ownAllSet), NamedAll: decode(r.namedAllSet), Reached: r.reached,
			Sent: badge.Recent{RangeSet: decode(r.sentSet).RangeSet}, Named: badge.Recent{RangeSet: decode(r.namedSet).RangeSet},
		}
	}
	if err != nil {
		return nil, fmt.Errorf("conversation %q of user %q: %w", r.id, r.userID, err)
	}
	return c, nil
}

// seqSet is the stored form of a set of seqs, "" if the set is empty.
type seqSet string

// ScanBytes implements pgtype.BytesScanner.
func (s *seqSet) ScanBytes(stored []byte) error {
	*s = seqSet(stored)
	return nil
}

// hex returns the set in the form in which Postgres prints a bytea, "" for an empty set.
func (s *seqSet) hex() string {
	if *s == "" {
		return ""
	}
	return fmt.Sprintf(`\x%x`, string(*s))
}

// showSet converts a result of hex to readable text.
func showSet(text string) string {
	stored, err := hex.DecodeString(strings.TrimPrefix(text, `\x`))
	if err != nil {
		return text
	}
	set, err := badge.DecodeSet(stored)
	if err != nil {
		return text
	}
	return set.String()
}
