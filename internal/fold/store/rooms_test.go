package store_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/category"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/store/storetest"
	"github.com/badged/badged/pubsub"
)

// Folding any history with rooms in order equals the model, which has a set per
// user, after every event and for every user. The versions that clients see never
// fall, and grow when a client can see a difference.
func TestRoomsAgreeWithTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := foldtest.DrawRooms(t, users)
		generations, begin := drawGenerations(t, len(history))
		m, truth := storetest.NewMemory(begin...), &foldtest.Model{Generations: generations}
		for i, e := range history {
			before := map[string]string{}
			version := map[string]badge.Sums{}
			for _, id := range users {
				before[id], version[id] = m.Describe(id), m.User(id).Sums(m.Rooms)
			}
			m.Commit(t, history[i])
			truth.Events = append(truth.Events, e)
			if len(history) > 100 && i%50 > 0 && i < len(history)-1 {
				continue
			}
			for _, id := range users {
				if diff := cmp.Diff(truth.Describe(id), m.Describe(id)); diff != "" {
					t.Fatalf("after\n%s%s has (-want +got):\n%s", foldtest.Story(truth.Events), id, diff)
				}
				seen, grown := m.Describe(id) != before[id], m.User(id).Sums(m.Rooms).Version-version[id].Version
				if grown < 0 || seen && grown == 0 || grown > 1 {
					t.Fatalf("after\n%sthe version of %s grew by %d, but a client sees a difference: %v", foldtest.Story(truth.Events), id, grown, seen)
				}
				checkUnread(t, m, id)
			}
		}
	})
}

// Rooms with more messages than fit into a chunk equal the model.
func TestRoomsWithManyMessages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		joined := foldtest.Event("joined", events.RoomJoined, "c1", foldtest.UpTo(rapid.Int64Range(1, 3000).Draw(t, "up to")), users...)
		history := append([]events.Event{joined}, foldtest.DrawMany(t, users)...)
		m := storetest.NewMemory()
		for i := range history {
			m.Commit(t, history[i])
			if i%40 > 0 && i < len(history)-1 {
				continue
			}
			truth := &foldtest.Model{Events: history[:i+1]}
			for _, id := range users {
				if diff := cmp.Diff(truth.Describe(id), m.Describe(id)); diff != "" {
					t.Fatalf("after %d events %s has (-want +got):\n%s", i+1, id, diff)
				}
			}
			r, closed := m.Rooms["c1"], [2]int64{}
			for _, c := range r.Closed {
				closed[0] += c.Live.Len()
				closed[1] += c.All.Len()
			}
			if counted := [2]int64{r.ClosedLive, r.ClosedAll}; closed != counted {
				t.Fatalf("after %d events the closed chunks have %d messages, %d counted", i+1, closed, counted)
			}
		}
	})
}

// checkUnread compares the total of a user with the sum of its parts.
func checkUnread(t *rapid.T, m *storetest.Memory, id string) {
	u, total := m.User(id), pubsub.Numbers{}
	sums := u.Sums(m.Rooms)
	for _, c := range u.Conversations {
		v := c.View()
		if c.Member() {
			v = c.ViewIn(m.Rooms[c.ID], sums.Levels)
		}
		total.Add(v.Adds(sums.Levels))
	}
	if sums.Numbers != total {
		t.Fatalf("the numbers of %s are %+v, those of its parts %+v", id, sums.Numbers, total)
	}
}

// Rows and versions are the same however a history with rooms is cut into batches.
func TestRoomBatchesCannotBeObserved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := foldtest.DrawRooms(t, users)
		single, cut := storetest.NewMemory(), storetest.NewMemory()
		for i := range history {
			single.Commit(t, history[i])
		}
		for rest := history; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "batch")
			cut.Commit(t, rest[:n]...)
			rest = rest[n:]
		}
		for _, id := range users {
			if diff := cmp.Diff(single.Describe(id), cut.Describe(id)); diff != "" {
				t.Fatalf("%s depends on the batches (-one by one +cut):\n%s\n%s", id, diff, foldtest.Story(history))
			}
			if diff := cmp.Diff(single.Versions(id), cut.Versions(id)); diff != "" {
				t.Fatalf("the versions of %s depend on the batches (-one by one +cut):\n%s\n%s", id, diff, foldtest.Story(history))
			}
		}
	})
}

// Messages, recalls and reads of a room give the same numbers in any order and with
// any repetition.
func TestOrderInRoomsDoesNotMatter(t *testing.T) {
	commuting := []events.Type{events.RoomPosted, events.RoomPosted, events.RoomPosted, events.RoomRecalled, events.ConversationRead}
	rapid.Check(t, func(t *rapid.T) {
		joined := foldtest.DrawHistory(t, []events.Type{events.RoomJoined}, users)
		history := foldtest.DrawHistory(t, commuting, users)
		for i := range history {
			history[i].Data.ByApp = false // a read by an app reaches up to the last message so far
			history[i].ID += " later"
		}
		shuffled := rapid.Permutation(history).Draw(t, "shuffled")
		shuffled = append(shuffled, rapid.SliceOfN(rapid.SampledFrom(history), 0, 10).Draw(t, "repeated")...)
		inOrder, outOfOrder := storetest.NewMemory(), storetest.NewMemory()
		inOrder.Commit(t, slices.Concat(joined, history)...)
		outOfOrder.Commit(t, slices.Concat(joined, shuffled)...)
		for _, id := range users {
			if diff := cmp.Diff(inOrder.Describe(id), outOfOrder.Describe(id)); diff != "" {
				t.Fatalf("%s depends on the order (-in order +shuffled):\n%s\nin order\n%sshuffled\n%s",
					id, diff, foldtest.Story(slices.Concat(joined, history)), foldtest.Story(shuffled))
			}
		}
	})
}

// Changes and recalls of a room with revisions give the same numbers in any order and with
// any repetition, beside messages and reads.
func TestOrderOfRevisionsInRoomsDoesNotMatter(t *testing.T) {
	types := []events.Type{events.RoomPosted, events.RoomPosted, events.RoomChanged, events.RoomChanged, events.RoomRecalled, events.ConversationRead}
	rapid.Check(t, func(t *rapid.T) {
		joined := foldtest.DrawHistory(t, []events.Type{events.RoomJoined}, users)
		history := foldtest.DrawHistory(t, types, users)
		revisions := map[string]int64{}
		for i := range history {
			e := &history[i]
			e.Data.ByApp = false // a read by an app reaches up to the last message so far
			e.AppendedAt = foldtest.Noon
			if e.Type.ToRoom() { // changes name the sender of the message
				e.Data.SenderID = users[e.Data.Seq%int64(len(users))]
			}
			if e.Type == events.RoomChanged || e.Type == events.RoomRecalled {
				if revisions[e.ID] == 0 {
					revisions[e.ID] = int64(len(revisions) + 1)
				}
				e.Data.Revision = revisions[e.ID]
			}
			e.ID += " later"
		}
		shuffled := append(rapid.Permutation(history).Draw(t, "shuffled"), rapid.SliceOfN(rapid.SampledFrom(history), 0, 10).Draw(t, "repeated")...)
		for i := range shuffled {
			shuffled[i].ID = fmt.Sprint("event ", i) // what repeats do is no matter of keys
		}
		inOrder, outOfOrder := storetest.NewMemory(), storetest.NewMemory()
		inOrder.Commit(t, slices.Concat(joined, history)...)
		outOfOrder.Commit(t, slices.Concat(joined, shuffled)...)
		for _, id := range users {
			if diff := cmp.Diff(inOrder.Describe(id), outOfOrder.Describe(id)); diff != "" {
				t.Fatalf("%s depends on the order (-in order +shuffled):\n%s\nin order\n%sshuffled\n%s",
					id, diff, foldtest.Story(slices.Concat(joined, history)), foldtest.Story(shuffled))
			}
		}
	})
}

// Updates of users and rooms tell a gateway every number: what it works out from
// them is what the fold has.
func TestUpdatesOfRoomsCarryEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := foldtest.DrawTimes(t, foldtest.DrawHistory(t, foldtest.RoomTypes(), users))
		m, g := storetest.NewMemory(), gatewayOf(users)
		for rest := history; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "batch")
			m.Commit(t, rest[:n]...)
			rest = rest[n:]
			for _, u := range m.Told.Users {
				g.accounts[u.UserID].update(t, &u, g)
			}
			for _, u := range m.Told.Rooms {
				if known := g.rooms[u.ConversationID]; known.Changes > u.Changes || u.BaseChanges > known.Changes {
					t.Fatalf("after\n%sthe update of room %s is from %d to %d changes, %d are known", foldtest.Story(history), u.ConversationID, u.BaseChanges, u.Changes, known.Changes)
				}
				g.rooms[u.ConversationID] = u.Room
			}
			for _, id := range users {
				if want, got := m.User(id).Sums(m.Rooms).String(), g.sums(id); got != want {
					t.Fatalf("after\n%sof\n%sa gateway has of %s %s, want %s", foldtest.Story(history[:len(history)-len(rest)]), foldtest.Story(history), id, got, want)
				}
			}
		}
	})
}

// gateway works out the numbers of users from updates.
type gateway struct {
	accounts map[string]*account
	rooms    map[string]pubsub.Room
}

type account struct {
	badge       pubsub.Badge
	categories  map[string]pubsub.Numbers
	memberships map[string]pubsub.Membership
}

func gatewayOf(users []string) *gateway {
	g := &gateway{map[string]*account{}, map[string]pubsub.Room{}}
	for _, id := range users {
		g.accounts[id] = &account{categories: map[string]pubsub.Numbers{}, memberships: map[string]pubsub.Membership{}}
	}
	return g
}

func (a *account) update(t *rapid.T, u *pubsub.Update, g *gateway) {
	if u.BaseVersion != a.badge.Version {
		t.Fatalf("the update of %s is from version %d, %d is known", u.UserID, u.BaseVersion, a.badge.Version)
	}
	levels := a.badge.Levels
	maps.Copy(a.categories, u.Categories)
	if a.badge = u.Badge; a.badge.Levels == nil {
		a.badge.Levels = levels
	}
	for _, c := range u.Conversations {
		delete(a.memberships, c.ConversationID)
	}
	for _, m := range u.Memberships {
		a.memberships[m.Room.ConversationID] = m
		if known := g.rooms[m.Room.ConversationID]; known.Changes <= m.Room.Changes {
			g.rooms[m.Room.ConversationID] = *m.Room
		}
	}
}

// sums returns the numbers of a user as [badge.Sums.String].
func (g *gateway) sums(id string) string {
	a := g.accounts[id]
	sums := badge.Sums{Version: a.badge.Version, Numbers: a.badge.Numbers, Categories: maps.Clone(a.categories), Levels: a.badge.Levels}
	if len(sums.Levels) == 0 {
		sums.Levels = nil
	}
	maps.DeleteFunc(sums.Categories, func(_ string, n pubsub.Numbers) bool { return n == pubsub.Numbers{} })
	above := func(s pubsub.Seqs, seq int64) (n int64) {
		for _, r := range s {
			n += max(0, r.Last-max(r.First, seq+1)+1)
		}
		return n
	}
	for room, m := range a.memberships {
		r := g.rooms[room]
		v := badge.View{Level: events.Level(m.Level), Marked: m.MarkedUnread, Category: r.Category}
		direct := sums.Levels.Of(m.Level, r.Category) == string(events.LevelDirectMentions)
		count := func(seq, own, mentions, named int64) (int64, int64) {
			if direct {
				return above(r.Live, seq) - own, named
			}
			return above(r.Live, seq) - own, above(r.All, seq) + mentions
		}
		v.Unread, v.Mentions = count(m.ReadSeq, above(m.Own, 0), m.Mentions, m.Named)
		if v.Unseen, v.UnseenMentions = v.Unread, v.Mentions; m.Unseen != nil {
			v.Unseen, v.UnseenMentions = count(max(m.ReadSeq, m.ReachedSeq, m.SeenSeq), m.Unseen[0], m.Unseen[1], m.Unseen[2])
		}
		sums.Version += r.Changes - m.Joined
		n := v.Adds(sums.Levels)
		sums.Add(n)
		category.AddTo(sums.Categories, r.Category, n)
	}
	return sums.String()
}
