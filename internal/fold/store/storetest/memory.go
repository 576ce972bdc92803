// Package storetest folds events as the transaction of a batch does, but stores the result in
// maps instead of tables. Tests compare tables and replays with it. It does not know Postgres.
package storetest

import (
	"maps"
	"slices"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/pubsub"
)

// Memory is a partition in memory. Each batch decodes the users that it needs from their
// stored form, folds events into them, and stores them again.
type Memory struct {
	Users map[string]*badge.User
	// Rooms has all rooms, each with all its closed chunks and marks.
	Rooms map[string]*badge.Room
	// Updates has the last update of each user. Told has all updates of the last batch.
	Updates map[string]pubsub.Update
	Told    store.Updates
	keys    *store.DedupReplay
	// folded counts the events folded, including repeated ones.
	folded int
}

// T is the part of *testing.T and *rapid.T that Memory needs.
type T interface {
	Helper()
	Fatal(args ...any)
}

var _ T = testing.TB(nil)

// NewMemory returns an empty partition with generations of event keys.
func NewMemory(generations ...store.Generation) *Memory {
	return &Memory{
		keys: store.NewDedupReplay(generations), Users: map[string]*badge.User{}, Rooms: map[string]*badge.Room{},
		Updates: map[string]pubsub.Update{},
	}
}

// Clone returns a copy of m for trying a transaction; if the transaction commits, the copy
// replaces m. The copy shares users and rooms with m, since a batch replaces them and does not
// change them.
func (m *Memory) Clone() *Memory {
	keys := *m.keys
	for i, generation := range m.keys.Keys {
		keys.Keys[i] = maps.Clone(generation)
	}
	return &Memory{keys: &keys, Users: maps.Clone(m.Users), Rooms: maps.Clone(m.Rooms), folded: m.folded, Updates: maps.Clone(m.Updates)}
}

// Begin adds a generation of event keys, which begins after the others.
func (m *Memory) Begin(g store.Generation) { m.keys.Extend([]store.Generation{g}) }

// Commit folds events as one batch. The first event that m folds is at offset 1, the second at
// offset 2, and so on.
func (m *Memory) Commit(t T, evs ...events.Event) {
	t.Helper()
	first := m.folded + 1
	m.CommitAt(t, evs, func(i int) events.Position { return events.Position{Offset: int64(first + i)} })
}

// CommitAt folds events as one batch. at returns the position of the event with index i.
func (m *Memory) CommitAt(t T, evs []events.Event, at func(i int) events.Position) {
	t.Helper()
	var items []store.Item
	for _, e := range evs {
		item, err := store.ItemOf(e, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, item)
	}
	state, missing := store.StateOf(items, store.NewCache(0), len(m.Rooms) > 0)
	m.load(t, state, &missing)
	m.loadChunks(t, state, items)
	for i := range items {
		m.folded++
		if item := &items[i]; m.keys.Fresh(item, at(i)) {
			item.Refuse(state)
			m.keys.Remember(item)
			state.Fold(&item.Event)
		}
	}
	updates := store.ClientUpdates(store.Sorted(state.Users), state.Rooms, 0, 0, "epoch", func(pubsub.Address) bool { return true })
	m.Told = updates
	for _, update := range updates.Users {
		m.Updates[update.UserID] = update
	}
	maps.Copy(m.Users, state.Users)
	for id, r := range state.Rooms {
		if r.Exists() {
			m.Rooms[id] = m.merged(r, state.Users)
		}
	}
}

// load loads the missing rows about rooms, and the whole state of each user.
func (m *Memory) load(t T, s *badge.State, missing *store.Missing) {
	t.Helper()
	for id, u := range s.Users {
		clear(u.Conversations) // StateOf has created them; stored ones are reloaded
		if row, ok := m.Users[id]; ok {
			*u = *Reload(t, row)
		}
	}
	rooms := slices.Clone(missing.Rooms)
	for _, id := range missing.ReadAll {
		for _, c := range m.User(id).Conversations {
			if c.Member() {
				rooms = append(rooms, c.ID)
			}
		}
	}
	for _, id := range rooms {
		if row, ok := m.Rooms[id]; ok {
			s.Rooms[id] = reloadRoom(t, row)
		}
	}
	for _, id := range missing.ResetRooms {
		row, ok := m.Rooms[id]
		if !ok {
			continue
		}
		for _, c := range row.Closed {
			s.Rooms[id].AddClosed(reloadChunk(t, c))
		}
		for user, u := range m.Users {
			if c, ok := u.Conversations[id]; ok && c.Member() && s.Users[user] == nil {
				s.Users[user] = Reload(t, u)
			}
		}
	}
	for i, seq := range missing.MessageSeqs {
		row, ok := m.Rooms[missing.MessageRooms[i]]
		if !ok {
			continue
		}
		r := s.Rooms[row.ID]
		for _, c := range row.Closed {
			if c.Bound >= seq {
				r.AddClosed(reloadChunk(t, c))
				break
			}
		}
		for user, mark := range row.Marks[seq] {
			r.AddMark(seq, user, *mark)
			if s.Users[user] == nil {
				s.Users[user] = Reload(t, m.User(user))
			}
		}
	}
}

// loadChunks loads the closed chunks that [store.MoreMessages] requests.
func (m *Memory) loadChunks(t T, s *badge.State, items []store.Item) {
	t.Helper()
	rooms, seqs := store.MoreMessages(items, s)
	for i, seq := range seqs {
		for _, c := range m.Rooms[rooms[i]].Closed {
			if c.Bound >= seq {
				s.Rooms[rooms[i]].AddClosed(reloadChunk(t, c))
				break
			}
		}
	}
}

// merged returns a room as the tables have it after a batch was written: with the closed
// chunks and marks that the batch did not load.
func (m *Memory) merged(r *badge.Room, users map[string]*badge.User) *badge.Room {
	stored := *r
	stored.Stored, stored.Ended, stored.Merged = true, false, nil
	stored.Closed, stored.Marks = slices.Clone(r.Closed), nil
	if former, ok := m.Rooms[r.ID]; ok {
		for _, c := range former.Closed {
			if (!r.Ended || c.Bound < r.EndedAt) && !slices.Contains(r.Merged, c.Bound) {
				stored.AddClosed(c)
			}
		}
		for seq, byUser := range former.Marks {
			if r.Ended && seq > r.EndedAt {
				continue
			}
			for user, mark := range byUser {
				stored.AddMark(seq, user, *mark)
			}
		}
	}
	for seq, byUser := range r.Marks {
		for user, mark := range byUser {
			if delete(stored.Marks[seq], user); !mark.Gone {
				stored.AddMark(seq, user, badge.Mark{Own: mark.Own})
			}
		}
	}
	for id, u := range users {
		if c, ok := u.Conversations[r.ID]; ok && c.Member() {
			for _, seq := range c.Membership.Unmarked {
				delete(stored.Marks[seq], id)
			}
		}
	}
	return &stored
}

// User returns a user, or a new user if no event named this id.
func (m *Memory) User(id string) *badge.User {
	if u, ok := m.Users[id]; ok {
		return u
	}
	return badge.NewUser(id)
}

// Describe returns the state of a user as text, in the form of [foldtest.Model.Describe].
func (m *Memory) Describe(id string) string { return DescribeIn(m.User(id), m.Rooms) }

// Versions returns the versions of a user.
func (m *Memory) Versions(id string) map[string]int64 {
	versions := Versions(m.User(id))
	versions["of clients"] = m.User(id).Sums(m.Rooms).Version
	return versions
}

// Reload returns u as it is after a write to the tables and a read from them.
func Reload(t T, u *badge.User) *badge.User {
	t.Helper()
	again := badge.NewUser(u.ID)
	again.Version, again.Stored, again.Numbers = u.Version, u.Version, u.Numbers
	again.Carried, again.StoredCarried, again.Joined = u.Carried, u.Carried, u.Joined
	again.Paths = u.Paths.Clone()
	var err error
	if again.ReadsAhead, err = badge.ParseReadsAhead(u.ReadsAhead.String()); err != nil {
		t.Fatal(err)
	}
	for id, c := range u.Conversations {
		stored := *c
		stored.Touched = false
		stored.Unread, stored.Mentions = reloadSet(t, &c.Unread), reloadSet(t, &c.Mentions)
		stored.MarkedUnread, stored.Recalled = reloadRanges(t, &c.MarkedUnread), reloadRanges(t, &c.Recalled)
		if stored.Revisions, err = badge.DecodeRevisions(c.Revisions.Encode()); err != nil {
			t.Fatal(err)
		}
		if former := c.Membership; former != nil {
			stored.Membership = &badge.Membership{
				Joined: former.Joined, Own: reloadSet(t, &former.Own), OwnAll: reloadSet(t, &former.OwnAll), NamedAll: reloadSet(t, &former.NamedAll), Reached: former.Reached,
				Sent: badge.Recent{RangeSet: reloadRanges(t, &former.Sent.RangeSet)}, Named: badge.Recent{RangeSet: reloadRanges(t, &former.Named.RangeSet)},
			}
		}
		again.Conversations[id] = &stored
	}
	return again
}

// reloadRoom returns r, without closed chunks and marks, as it is after a write to the tables
// and a read from them.
func reloadRoom(t T, r *badge.Room) *badge.Room {
	t.Helper()
	again := *r
	again.Closed, again.Marks, again.Touched, again.StoredChanges, again.ChangedAt = nil, nil, false, r.Changes, 0
	again.Open = *reloadChunk(t, &r.Open)
	again.Stored = true
	var err error
	if again.Revisions, err = badge.DecodeRevisions(r.Revisions.Encode()); err != nil {
		t.Fatal(err)
	}
	return &again
}

func reloadChunk(t T, c *badge.Chunk) *badge.Chunk {
	t.Helper()
	return &badge.Chunk{Bound: c.Bound, Live: reloadRanges(t, &c.Live), All: reloadRanges(t, &c.All), Recalled: reloadRanges(t, &c.Recalled), Stored: true}
}

func reloadSet(t T, s *badge.BoundedSet) badge.BoundedSet {
	t.Helper()
	again, err := badge.DecodeSet([]byte(s.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	return again
}

func reloadRanges(t T, s *badge.RangeSet) badge.RangeSet {
	t.Helper()
	again, err := badge.DecodeSet([]byte(s.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	return again.RangeSet
}

// Describe returns the state of a user without memberships as text.
func Describe(u *badge.User) string { return DescribeIn(u, nil) }

// DescribeIn returns the state of a user as text. The rooms must have all their closed chunks.
func DescribeIn(u *badge.User, rooms map[string]*badge.Room) string {
	sums := u.Sums(rooms)
	s := foldtest.State{
		Numbers: sums.Numbers, Categories: sums.Categories, Levels: sums.Levels,
	}
	for _, c := range u.Conversations {
		v := c.View()
		if c.Member() {
			v = c.ViewIn(rooms[c.ID], sums.Levels)
		}
		s.Conversations = append(s.Conversations, foldtest.ConversationState{
			ID: c.ID, Unread: v.Unread, First: v.FirstUnread, Mentions: v.Mentions, Unseen: v.Unseen, UnseenMentions: v.UnseenMentions, Read: v.ReadSeq, Seen: max(v.SeenSeq, v.ReadSeq), Last: v.LastSeq,
			Level: v.Level, Until: pubsub.TimeOf(v.LevelUntil), Category: v.Category, Marked: v.Marked, Left: v.Left,
		})
	}
	return s.String()
}

// Versions returns the version of a user, under "", and the versions of its conversations. It
// omits zeros.
func Versions(u *badge.User) map[string]int64 {
	versions := map[string]int64{"": u.Version}
	for id, c := range u.Conversations {
		versions[id] = c.Version
	}
	maps.DeleteFunc(versions, func(_ string, v int64) bool { return v == 0 })
	return versions
}
