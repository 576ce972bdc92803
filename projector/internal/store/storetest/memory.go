// Package storetest folds events as a batch transaction does, with maps for
// tables. Tests compare tables and replays with it.
package storetest

import (
	"maps"
	"slices"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/projector/internal/store"
	"github.com/badged/badged/pubsub"
)

// Memory is a partition in memory. A batch loads the users that it needs from
// their stored form, folds, and writes them back.
type Memory struct {
	Users map[string]*badge.User
	// Updates has the last update of each user.
	Updates map[string]pubsub.Update
	keys    *store.DedupReplay
	// folded counts the events, including repetitions.
	folded int
}

// T is what Memory needs of a test: *testing.T and *rapid.T have it.
type T interface {
	Helper()
	Fatal(args ...any)
}

var _ T = testing.TB(nil)

// NewMemory returns an empty partition with generations of keys.
func NewMemory(generations ...store.Generation) *Memory {
	return &Memory{keys: store.NewDedupReplay(generations), Users: map[string]*badge.User{}, Updates: map[string]pubsub.Update{}}
}

// Clone returns a copy that a transaction works on: it replaces m on commit. The
// users are shared, since a batch replaces them and changes none.
func (m *Memory) Clone() *Memory {
	keys := *m.keys
	for i, generation := range m.keys.Keys {
		keys.Keys[i] = maps.Clone(generation)
	}
	return &Memory{keys: &keys, Users: maps.Clone(m.Users), folded: m.folded, Updates: maps.Clone(m.Updates)}
}

// Begin begins a generation of keys, the last there is.
func (m *Memory) Begin(g store.Generation) { m.keys.Extend([]store.Generation{g}) }

// Commit folds events as one batch. Event n of all that were folded is at
// offset n.
func (m *Memory) Commit(t T, evs ...events.Event) {
	t.Helper()
	first := m.folded + 1
	m.CommitAt(t, evs, func(i int) events.Position { return events.Position{Offset: int64(first + i)} })
}

// CommitAt folds events as one batch, each at its position.
func (m *Memory) CommitAt(t T, evs []events.Event, at func(i int) events.Position) {
	t.Helper()
	var items []store.Item
	for _, e := range evs {
		it, err := store.ItemOf(e, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, it)
	}
	users, _ := store.UsersIn(items, store.NewCache(0))
	for id, u := range users {
		clear(u.Conversations) // there are no rows to load
		if row, ok := m.Users[id]; ok {
			*u = *Reload(t, row)
		}
	}
	for i := range items {
		m.folded++
		if it := &items[i]; m.keys.First(it, at(i)) {
			store.Fold(&it.Event, users)
		}
	}
	maps.Copy(m.Users, users)
	for _, update := range store.ClientUpdates(store.Sorted(users), 0, "epoch", func(pubsub.Address) bool { return true }) {
		m.Updates[update.UserID] = update
	}
}

// User returns a user, a new one if no event named it.
func (m *Memory) User(id string) *badge.User {
	if u, ok := m.Users[id]; ok {
		return u
	}
	return badge.NewUser(id)
}

// Describe returns the state of a user as text, as [foldtest.Model.Describe].
func (m *Memory) Describe(id string) string { return Describe(m.User(id)) }

// Versions returns the versions of a user.
func (m *Memory) Versions(id string) map[string]int64 { return Versions(m.User(id)) }

// Reload returns u as it comes back from the tables.
func Reload(t T, u *badge.User) *badge.User {
	t.Helper()
	again := badge.NewUser(u.ID)
	again.Version, again.Stored, again.Total, again.Mentions = u.Version, u.Version, u.Total, u.Mentions
	again.Categories = slices.Clone(u.Categories)
	var err error
	if again.Claims, err = badge.ParseClaims(u.Claims.String()); err != nil {
		t.Fatal(err)
	}
	for id, c := range u.Conversations {
		stored := *c
		stored.Touched = false
		recalled := badge.BoundedSet{RangeSet: stored.Recalled}
		for _, set := range []*badge.BoundedSet{&stored.Unread, &stored.Mentions, &recalled} {
			if *set, err = badge.DecodeSet([]byte(set.Encode())); err != nil {
				t.Fatal(err)
			}
		}
		stored.Recalled = recalled.RangeSet
		again.Conversations[id] = &stored
	}
	return again
}

// Describe returns the state of a user as text.
func Describe(u *badge.User) string {
	s := foldtest.State{Total: u.Total, Mentions: u.Mentions, Categories: u.Categories.ByName()}
	for _, c := range u.Conversations {
		v := c.View()
		s.Conversations = append(s.Conversations, foldtest.ConversationState{
			ID: c.ID, Unread: v.Unread, First: v.FirstUnread, Mentions: v.Mentions, Read: v.ReadSeq, Last: v.LastSeq,
			Level: v.Level, Category: v.Category, Marked: v.Marked, Left: v.Left,
		})
	}
	return s.String()
}

// Versions returns the version of a user, under "", and those of its
// conversations, without zeros.
func Versions(u *badge.User) map[string]int64 {
	versions := map[string]int64{"": u.Version}
	for id, c := range u.Conversations {
		versions[id] = c.Version
	}
	maps.DeleteFunc(versions, func(_ string, v int64) bool { return v == 0 })
	return versions
}
