package badges

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/base/category"
	"github.com/badged/badged/pubsub"
)

// The kinds of rows that statements about users with memberships return.
const (
	userKind int32 = iota
	membershipKind
	conversationKind
	roomKind
)

// memberRow is the scan target for rows of all kinds, from userKind to roomKind. The third column
// of a row is a record; its fields depend on the kind of the row.
type memberRow struct {
	kind int32
	// ord says which user of the request the row is about: the index of the user, counted from
	// 1.
	ord int

	user         userRow
	membership   membershipRow
	conversation conversationRow
	room         roomRow
}

// ScanNull implements pgtype.CompositeIndexScanner.
func (r *memberRow) ScanNull() error { return fmt.Errorf("a row of kind %d is null", r.kind) }

// ScanIndex implements pgtype.CompositeIndexScanner.
func (r *memberRow) ScanIndex(i int) any {
	targets := [...][]any{
		userKind: r.user.targets(), membershipKind: r.membership.targets(),
		conversationKind: r.conversation.targets(), roomKind: r.room.targets(),
	}
	return targets[r.kind][i]
}

// members are users with memberships, and the rooms of the memberships.
type members struct {
	users []member
	rooms map[string]*pubsub.Room
}

// member has all rows about one user.
type member struct {
	userRow
	memberships   []membershipRow
	conversations []conversationRow
}

// scanMembers reads the rows about n users.
func scanMembers(rows pgx.Rows, n int) (members, error) {
	all := members{users: make([]member, n), rooms: map[string]*pubsub.Room{}}
	var r memberRow
	_, err := pgx.ForEachRow(rows, []any{&r.kind, &r.ord, &r}, func() error {
		if r.kind == roomKind {
			all.rooms[r.room.room.ConversationID] = r.room.get()
			return nil
		}
		switch u := &all.users[r.ord-1]; r.kind {
		case userKind:
			u.userRow = r.user
		case membershipKind:
			u.memberships = append(u.memberships, r.membership)
		case conversationKind:
			u.conversations = append(u.conversations, r.conversation)
		}
		return nil
	})
	return all, err
}

// version returns the version of the user that clients see.
func (u *member) version() int64 { return u.badge.Version + u.ahead - u.carried }

// listed is a conversation with its version in the tables. Lists are sorted by this version.
type listed struct {
	pubsub.Conversation
	stored int64
}

// sortByChange sorts conversations by their last change, the latest first.
func sortByChange(list []listed) {
	slices.SortFunc(list, func(a, b listed) int {
		return cmp.Or(cmp.Compare(b.stored, a.stored), cmp.Compare(a.ConversationID, b.ConversationID))
	})
}

// list returns all conversations of u that were loaded, most recently changed first, and the
// memberships among them. A message to a room writes no row of a member, so it does not count as a
// change.
func (all *members) list(u *member) (list []listed, memberships []pubsub.Membership) {
	for i := range u.conversations {
		c := &u.conversations[i]
		list = append(list, listed{c.conversation(u.ahead), *c.version})
	}
	for i := range u.memberships {
		r := &u.memberships[i]
		m := r.membership(all.rooms[r.id])
		memberships = append(memberships, m)
		list = append(list, listed{m.Conversation(u.version(), u.badge.Levels), r.version})
	}
	sortByChange(list)
	return list, memberships
}

// memberStates reads the states of users with memberships. It stores the state of the user
// held[i] in states[places[i]].
func (r *Reader) memberStates(ctx context.Context, partition int, held []pubsub.Held, places []int, states []pubsub.Snapshot) error {
	rows, _ := r.q.Query(ctx, firstPaths(statesSQL(statements.Of(partition, "read the states of members")), pathsOfRooms(partition)), append(heldArguments(held), partition)...)
	all, err := scanMembers(rows, len(held))
	if err != nil {
		return err
	}
	for i, place := range places {
		all.users[i].badge.UserID = held[i].UserID
		states[place] = all.state(&all.users[i], held[i].Version)
	}
	return nil
}

// state returns what a client that has the version held must receive to be up to date.
func (all *members) state(u *member, held int64) pubsub.Snapshot {
	s := pubsub.Snapshot{Badge: u.badge, Rest: u.badge, Whole: u.whole, Conversations: []pubsub.Conversation{}}
	s.Version, s.Categories = u.version(), maps.Clone(u.badge.Categories)
	var list []listed
	list, s.Memberships = all.list(u)
	inRoom := make(map[string]struct{}, len(s.Memberships))
	for i := range s.Memberships {
		inRoom[s.Memberships[i].Room.ConversationID] = struct{}{}
	}
	for i := range s.Memberships {
		add(&s.Badge, s.Memberships[i].Room.Category, s.Memberships[i].Adds(s.Levels))
	}
	for i := range list {
		c := &list[i].Conversation
		_, ok := inRoom[c.ConversationID]
		shows := c.Unread > 0 || c.MarkedUnread || c.Level != category.LevelDefault || !c.LevelUntil.IsZero()
		if !ok || u.whole && shows || !u.whole && s.Version > held {
			s.Conversations = append(s.Conversations, *c)
		}
	}
	return s
}

// View returns the state of a user as Snapshot does, but only with the conversations that the given
// categories cover: at most MaxSnapshot conversations with something to show, most recently changed
// first. The badge has the categories of Snapshot's badge, and also all categories that one of
// `categories` covers, since a gateway stores one badge for all connections of a user.
func (r *Reader) View(ctx context.Context, userID string, categories []string) (pubsub.Snapshot, error) {
	p := r.partitionOf(userID)
	sql := firstPaths(statesSQL(statements.Of(p, "read a view")), statements.Of(p, "paths of a view"))
	rows, _ := r.q.Query(ctx, sql, append(heldArguments([]pubsub.Held{{UserID: userID}}), p, categories)...)
	all, err := scanMembers(rows, 1)
	if err != nil {
		return pubsub.Snapshot{}, fmt.Errorf("read the state of user %q in %d categories: %w", userID, len(categories), err)
	}
	u := &all.users[0]
	u.badge.UserID = userID
	s := all.state(u, 0)
	s.Conversations = slices.DeleteFunc(s.Conversations, func(c pubsub.Conversation) bool { return !category.AnyCovers(categories, c.Category) })
	if len(s.Conversations) > MaxSnapshot {
		s.Conversations, s.More = s.Conversations[:MaxSnapshot], true
	}
	return s, nil
}
