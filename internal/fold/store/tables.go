// Package store stores the badges in Postgres. It contains the statements on the tables of a
// partition, the transaction that commits a batch, the search for repeated events by their
// event keys, and a cache that saves reading rows.
//
// The package does not know who runs a batch: the loop, a replay or a test. ADR 20 explains
// the cache. ADR 7 explains why the tables have few indexes and no checks.
package store

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/pg/sqlfile"
)

//go:embed store.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// Tables has the SQL statements on the tables of one partition.
type Tables struct {
	partition int

	Users, Conversations, Paths, Rooms, Chunks, Marks TableSQL

	moveSQL              string
	moveAppendedSQL      string // from a position with pending transactions
	moveAppendedSoleSQL  string // from a position without
	loadConversationsSQL string
	loadUnreadSQL        string
	paths                pathsSQL
	findEmptySQL         string
	rooms                roomsSQL
}

// NewTables returns the statements on the live tables of a partition.
func NewTables(partition int) *Tables { return TablesNamed(partition, "") }

// TablesNamed returns the statements on the tables of a partition whose names end with suffix,
// such as _staging.
func TablesNamed(partition int, suffix string) *Tables {
	table := func(kind string, columns []Column, key int) TableSQL {
		return tableSQL(fmt.Sprintf("badged.%s_p%02d%s", kind, partition, suffix), partition, columns, key)
	}
	t := &Tables{
		partition: partition,

		Users:         table("users", new(UserRow).Columns(), UserKey),
		Conversations: table("conversations", new(ConversationRow).Columns(), ConversationKey),
		Paths:         table("paths", new(PathRow).Columns(), PathKey),
		Rooms:         table("rooms", new(RoomRow).Columns(), RoomKey),
		Chunks:        table("room_chunks", new(ChunkRow).Columns(), ChunkKey),
		Marks:         table("room_marks", new(MarkRow).Columns(), MarkKey),

		moveSQL:             statements.Of(partition, "move"),
		moveAppendedSQL:     statements.Of(partition, "move past an append with pending transactions"),
		moveAppendedSoleSQL: statements.Of(partition, "move past an append"),
	}
	t.loadConversationsSQL = t.Conversations.Read + "\n" + statements.Get("by key")
	t.findEmptySQL = strings.ReplaceAll(statements.Get("without conversations"), "TABLE", t.Conversations.name)
	t.loadUnreadSQL = t.Conversations.Read + "\n" + statements.Get("to be read")
	t.paths = t.newPathsSQL(suffix)
	t.rooms = t.newRoomsSQL(suffix)
	return t
}

// IncarnationSQL is an SQL expression that identifies the incarnation of Postgres. An incarnation
// begins with a start or a promotion of Postgres, and ends with the next start or promotion.
var IncarnationSQL = statements.Get("incarnation")

// LoadIncarnationSQL is the query that reads IncarnationSQL.
var LoadIncarnationSQL = statements.Get("read the incarnation")

// ResetExpirySQL makes the next expiry sweep check all conversations of a partition again.
var ResetExpirySQL = statements.Get("reset the expiry sweep")

// QueueLoads adds to batch the statements that load the missing rows into s. A loaded row may name
// a user that is not in s, such as a marked member of a room. This user is then added to s, from
// the cache c if c has the user.
func (t *Tables) QueueLoads(batch *pgx.Batch, m *Missing, s *badge.State, c *Cache) {
	conversations := func(rows pgx.Rows) error { return ScanConversations(rows, s.Users) }
	if len(m.Users) > 0 {
		batch.Queue(t.Users.ReadUsers, m.Users).Query(func(rows pgx.Rows) error { return ScanUsers(rows, s.Users) })
	}
	if n := len(m.Users); 0 < n && n <= fewUsers {
		batch.Queue(t.findEmptySQL, m.Users).Query(func(rows pgx.Rows) error { return scanEmpty(rows, s.Users) })
	}
	if len(m.PairUsers) > 0 {
		batch.Queue(t.loadConversationsSQL, m.PairUsers, m.PairConversations).Query(conversations)
	}
	if len(m.ReadAll) > 0 {
		batch.Queue(t.loadUnreadSQL, m.ReadAll).Query(conversations)
	}
	if len(m.LeaveAll) > 0 {
		batch.Queue(t.Conversations.ReadUsers, m.LeaveAll).Query(conversations)
	}
	if m.InRooms {
		t.queueRoomLoads(batch, m, s, c)
	}
}

// fewUsers is the maximum number of users not in the cache for which a batch checks whether they
// have any conversations. If a user has none, later batches need not look for them. In larger
// batches the check would not pay off, since they load conversations anyway.
const fewUsers = 4

// scanEmpty reads ids of users without conversations. It marks them as complete: all rows of
// their conversations are loaded.
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

// ScanUsers reads rows of users into the map `users`, and skips users that the map does not have.
func ScanUsers(rows pgx.Rows, users map[string]*badge.User) error {
	return ScanUsersInto(rows, func(id string) *badge.User { return users[id] }, stored)
}

// stored marks a user as equal to the user's row.
func stored(u *badge.User) { u.Stored, u.StoredCarried, u.HasRow = u.Version, u.Carried, true }

// ScanUsersInto reads rows of users. userOf returns the user to fill for an id; if it returns nil,
// the row is skipped. read is called with each user after it was filled.
func ScanUsersInto(rows pgx.Rows, userOf func(id string) *badge.User, read func(*badge.User)) error {
	var r UserRow
	_, err := pgx.ForEachRow(rows, targets(r.Columns()), func() error {
		u := userOf(r.id)
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

// ScanConversations reads rows of conversations into the map `users`. It skips rows of users that
// the map does not have.
func ScanConversations(rows pgx.Rows, users map[string]*badge.User) error {
	return ScanConversationsInto(rows, func(id string) *badge.User { return users[id] }, func(_ *badge.User, c *badge.Conversation) { c.Stored = true })
}

// ScanConversationsInto reads rows of conversations. userOf returns the user to which a
// conversation is added; if it returns nil, the row is skipped. read is called with each
// conversation after it was added.
func ScanConversationsInto(rows pgx.Rows, userOf func(userID string) *badge.User, read func(*badge.User, *badge.Conversation)) error {
	var r ConversationRow
	_, err := pgx.ForEachRow(rows, targets(r.Columns()), func() error {
		u := userOf(r.userID)
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

// QueueWrites adds to batch the statements that write the changes of users and rooms since
// their rows were last read or written.
func (t *Tables) QueueWrites(batch *pgx.Batch, users []*badge.User, rooms map[string]*badge.Room) {
	t.queueUserWrites(batch, users)
	if len(rooms) > 0 {
		t.queueRoomWrites(batch, users, rooms)
	}
}

func (t *Tables) queueUserWrites(batch *pgx.Batch, users []*badge.User) {
	conversations := 0
	for _, u := range users {
		conversations += len(u.Changed)
	}
	var user UserRow
	var conversation ConversationRow
	var newUsers, newConversations rows
	var paths pathWrites
	knownUsers, knownConversations := rows{expected: len(users)}, rows{expected: conversations} // most have a row
	for _, u := range users {
		switch {
		case u.Version == u.Stored && !u.ReadsAheadChanged: // Carried changes only with Version
		case !u.HasRow:
			user.Set(u)
			newUsers.add(&user)
		default:
			user.Set(u)
			knownUsers.add(&user)
		}
		paths.add(u)
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
	newUsers.queue(batch, t.Users.insert)
	knownUsers.queue(batch, t.Users.update)
	newConversations.queue(batch, t.Conversations.insert)
	knownConversations.queue(batch, t.Conversations.update)
	paths.queue(batch, t)
}

// Sorted returns the values of m in the order of their keys.
func Sorted[V any](m map[string]V) []V {
	values := make([]V, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		values = append(values, m[key])
	}
	return values
}
