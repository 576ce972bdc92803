// Package store keeps the badges in Postgres: the statements on the tables of
// a partition, the transaction that commits a batch, the keys that detect
// duplicates, and the caches that save loading rows.
package store

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/sqlfile"
	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/pubsub"
)

//go:embed store.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// Tables holds the statements on the tables of one partition.
type Tables struct {
	partition int

	Users, Conversations TableSQL

	moveSQL              string
	moveAppendedSQL      string // with pending transactions
	moveAppendedSoleSQL  string // without
	loadConversationsSQL string
	loadUnreadSQL        string
	findEmptySQL         string
}

// NewTables returns the statements on the live tables of a partition.
func NewTables(partition int) *Tables { return TablesNamed(partition, "") }

// TablesNamed returns the statements on the tables of a partition whose names
// end with suffix, such as _staging.
func TablesNamed(partition int, suffix string) *Tables {
	t := &Tables{
		partition: partition,

		Users:         tableSQL(fmt.Sprintf("badged.users_p%02d%s", partition, suffix), partition, new(UserRow).Columns(), UserKey),
		Conversations: tableSQL(fmt.Sprintf("badged.conversations_p%02d%s", partition, suffix), partition, new(ConversationRow).Columns(), ConversationKey),

		moveSQL:             statements.Of(partition, "move"),
		moveAppendedSQL:     statements.Of(partition, "move past an append with pending transactions"),
		moveAppendedSoleSQL: statements.Of(partition, "move past an append"),
	}
	t.loadConversationsSQL = t.Conversations.Read + "\n" + statements.Get("by key")
	t.findEmptySQL = strings.ReplaceAll(statements.Get("without conversations"), "TABLE", t.Conversations.name)
	t.loadUnreadSQL = t.Conversations.Read + "\n" + statements.Get("to be read")
	return t
}

// IncarnationSQL identifies the running Postgres.
var IncarnationSQL = statements.Get("incarnation")

// LoadIncarnationSQL reads it.
var LoadIncarnationSQL = statements.Get("read the incarnation")

// ResetExpirySQL makes the next sweep look at all conversations of a partition
// again.
var ResetExpirySQL = statements.Get("reset the expiry sweep")

// QueueLoads adds to batch the statements that load what is missing into users.
func (t *Tables) QueueLoads(batch *pgx.Batch, m *Missing, users map[string]*badge.User) {
	conversations := func(rows pgx.Rows) error { return ScanConversations(rows, users) }
	if len(m.Users) > 0 {
		batch.Queue(t.Users.ReadUsers, m.Users).Query(func(rows pgx.Rows) error { return ScanUsers(rows, users) })
	}
	if n := len(m.Users); 0 < n && n <= fewUsers {
		batch.Queue(t.findEmptySQL, m.Users).Query(func(rows pgx.Rows) error { return scanEmpty(rows, users) })
	}
	if len(m.PairUsers) > 0 {
		batch.Queue(t.loadConversationsSQL, m.PairUsers, m.PairConversations).Query(conversations)
	}
	if len(m.ReadAll) > 0 {
		batch.Queue(t.loadUnreadSQL, m.ReadAll).Query(conversations)
	}
}

// fewUsers is the most users for which a batch asks whether they have conversations
// at all. It saves batches of a few events from looking for those; larger ones load
// something anyway.
const fewUsers = 16

// scanEmpty reads the ids of users without conversations.
func scanEmpty(rows pgx.Rows, users map[string]*badge.User) error {
	var id string
	_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
		if u := users[id]; u != nil {
			u.Complete = true
		}
		return nil
	})
	return err
}

// ScanUsers reads rows into users, as they are stored.
func ScanUsers(rows pgx.Rows, users map[string]*badge.User) error {
	return ScanUsersInto(rows, func(id string) *badge.User { return users[id] }, func(u *badge.User) { u.Stored, u.HasRow = u.Version, true })
}

// ScanUsersInto reads rows into the users that of returns, skips those for
// which it returns nil, and calls read with each.
func ScanUsersInto(rows pgx.Rows, of func(id string) *badge.User, read func(*badge.User)) error {
	var r UserRow
	_, err := pgx.ForEachRow(rows, targets(r.Columns()), func() error {
		u := of(r.id)
		if u == nil {
			return nil
		}
		if err := r.restore(u); err != nil {
			return err
		}
		read(u)
		return nil
	})
	return err
}

// ScanConversations reads rows into users, as they are stored.
func ScanConversations(rows pgx.Rows, users map[string]*badge.User) error {
	return ScanConversationsInto(rows, func(id string) *badge.User { return users[id] }, func(_ *badge.User, c *badge.Conversation) { c.Stored = true })
}

// ScanConversationsInto reads rows into the users that of returns, skips those
// for which it returns nil, and calls read with each.
func ScanConversationsInto(rows pgx.Rows, of func(userID string) *badge.User, read func(*badge.User, *badge.Conversation)) error {
	var r ConversationRow
	_, err := pgx.ForEachRow(rows, targets(r.Columns()), func() error {
		u := of(r.userID)
		if u == nil {
			return nil
		}
		c, err := r.conversation()
		if err != nil {
			return err
		}
		if before, ok := u.Conversations[c.ID]; ok {
			c.Weighed = before.Weighed
		}
		u.Conversations[c.ID] = c
		read(u, c)
		return nil
	})
	return err
}

// QueueWrites adds to batch the statements that write what changed in users
// since their rows were read or written. It returns roughly how many bytes
// they take on the wire.
func (t *Tables) QueueWrites(batch *pgx.Batch, users []*badge.User) int {
	conversations := 0
	for _, u := range users {
		conversations += len(u.Changed)
	}
	var user UserRow
	var conversation ConversationRow
	var newUsers, newConversations rows
	knownUsers, knownConversations := rows{expected: len(users)}, rows{expected: conversations} // most have a row
	for _, u := range users {
		switch {
		case u.Version == u.Stored && !u.Claimed:
		case !u.HasRow:
			user.Set(u)
			newUsers.add(&user)
		default:
			user.Set(u)
			knownUsers.add(&user)
		}
		slices.SortFunc(u.Changed, func(a, b *badge.Conversation) int { return cmp.Compare(a.ID, b.ID) })
		for _, c := range u.Changed {
			conversation.Set(u.ID, c)
			if c.Stored {
				knownConversations.add(&conversation)
			} else {
				newConversations.add(&conversation)
			}
		}
	}
	const rest = 4096 // the statements, and what else a batch sends
	return rest + newUsers.queue(batch, t.Users.insert) + knownUsers.queue(batch, t.Users.update) +
		newConversations.queue(batch, t.Conversations.insert) + knownConversations.queue(batch, t.Conversations.update)
}

// ClientUpdates returns what to publish about users: what changed since their
// rows were read or written. It skips users without subscribers, as most are:
// their apps are closed.
func ClientUpdates(users []*badge.User, partition int, epoch string, hasSubscribers func(pubsub.Address) bool) []pubsub.Update {
	var updates []pubsub.Update
	for _, u := range users {
		if u.Version == u.Stored || !hasSubscribers(pubsub.Address{ID: u.ID, Partition: partition}) {
			continue
		}
		update := pubsub.Update{
			Badge: pubsub.Badge{
				UserID: u.ID, Epoch: epoch, Version: u.Version,
				// A copy: the user's own changes while this is published.
				Total: u.Total, Mentions: u.Mentions, Categories: u.Categories.ByName(),
			},
			Partition:   partition,
			BaseVersion: u.Stored,
			AppendedAt:  u.ChangedAt,
		}
		update.Conversations = make([]pubsub.Conversation, 0, len(u.Changed))
		for _, c := range u.Changed {
			if c.Version > u.Stored {
				update.Conversations = append(update.Conversations, Public(c))
			}
		}
		slices.SortFunc(update.Conversations, func(a, b pubsub.Conversation) int {
			return cmp.Or(cmp.Compare(b.Version, a.Version), cmp.Compare(a.ConversationID, b.ConversationID))
		})
		updates = append(updates, update)
	}
	return updates
}

// Public returns a conversation as clients see it.
func Public(c *badge.Conversation) pubsub.Conversation {
	return pubsub.Conversation{
		ConversationID: c.ID,
		Unread:         c.Unread.Len(),
		Mentions:       c.Mentions.Len(),
		FirstUnreadSeq: c.Unread.Min(),
		ReadSeq:        c.ReadSeq,
		LastSeq:        c.LastSeq,
		Level:          string(c.Level),
		Category:       c.Category,
		MarkedUnread:   c.Marked,
		Left:           c.ShowsLeft(),
		Version:        c.Version,
	}
}

// Sorted returns the values of m in the order of their keys.
func Sorted[V any](m map[string]V) []V {
	type entry struct {
		key   string
		value V
	}
	entries := make([]entry, 0, len(m))
	for k, v := range m {
		entries = append(entries, entry{k, v})
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
	values := make([]V, len(entries))
	for i := range entries {
		values[i] = entries[i].value
	}
	return values
}
