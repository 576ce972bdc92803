package projector

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/projector/internal/store"
	"github.com/badged/badged/pubsub"
)

var users = []string{"ann", "bob"}

// memory folds as the batch transaction does, with maps for tables: what a
// batch needs is loaded from literals, folded and written back.
type memory struct {
	keys *store.DedupReplay
	rows map[string]*badge.User
	// folded is how many events were, repetitions included.
	folded int
	// told is the last update of each user.
	told map[string]pubsub.Update
}

func newMemory(generations ...store.Generation) *memory {
	return &memory{keys: store.NewDedupReplay(generations), rows: map[string]*badge.User{}, told: map[string]pubsub.Update{}}
}

// clone returns what a transaction on m begins with: to be committed in its
// place, or dropped. The rows are shared, since a commit replaces them and
// changes none.
func (m *memory) clone() *memory {
	keys := store.DedupReplay{Ahead: m.keys.Ahead}
	for i, generation := range m.keys.Keys {
		keys.Keys[i] = maps.Clone(generation)
	}
	return &memory{keys: &keys, rows: maps.Clone(m.rows), folded: m.folded, told: maps.Clone(m.told)}
}

// begin begins a generation, the last there is.
func (m *memory) begin(g store.Generation) { m.keys.Ahead = append(slices.Clip(m.keys.Ahead), g) }

// commit folds evs as one batch; the nth event ever is at offset n.
func (m *memory) commit(t rapid.TB, evs []events.Event) {
	first := m.folded + 1
	m.commitAt(t, evs, func(i int) events.Position { return events.Position{Offset: int64(first + i)} })
}

// commitAt folds evs as one batch, each at its position.
func (m *memory) commitAt(t rapid.TB, evs []events.Event, at func(i int) events.Position) {
	var items []store.Item
	for _, e := range evs {
		it, err := store.ItemOf(e, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, it)
	}
	state, _ := store.UsersIn(items, store.NewCache(0))
	for id, u := range state {
		clear(u.Conversations) // there are no rows to load
		if row, ok := m.rows[id]; ok {
			*u = reload(t, row)
		}
	}
	for i := range items {
		m.folded++
		if it := &items[i]; m.keys.First(it, at(i)) {
			store.Fold(&it.Event, state)
		}
	}
	for id, u := range state {
		m.rows[id] = u
	}
	for _, update := range store.ClientUpdates(store.Sorted(state), 0, "epoch", allHeard) {
		m.told[update.UserID] = update
	}
}

// allHeard says that everybody is heard of.
func allHeard(pubsub.User) bool { return true }

// reload returns u as it comes back from the tables.
func reload(t rapid.TB, u *badge.User) badge.User {
	again := badge.NewUser(u.ID)
	again.Version, again.Stored, again.Total, again.Mentions = u.Version, u.Version, u.Total, u.Mentions
	again.Categories = slices.Clone(u.Categories)
	var err error
	if again.Claims, err = badge.ParseClaims(u.Claims.String()); err != nil {
		t.Fatal(err)
	}
	for id, c := range u.Conversations {
		copied := *c
		copied.Touched = false
		var err error
		if copied.Recalled, err = badge.ParseRangeSet(c.Recalled.String()); err != nil {
			t.Fatal(err)
		}
		for _, set := range []*badge.BoundedSet{&copied.Unread, &copied.Mentions} {
			if *set, err = badge.ParseBoundedSet(set.Newest(), []byte(set.Words()), set.BlockText()); err != nil {
				t.Fatal(err)
			}
		}
		again.Conversations[id] = &copied
	}
	return *again
}

func (m *memory) describe(id string) string {
	if u, ok := m.rows[id]; ok {
		return describeUser(u)
	}
	return describeUser(badge.NewUser(id))
}

// versions are the versions of everything there is.
func (m *memory) versions() string {
	s := ""
	for _, u := range store.Sorted(m.rows) {
		s += fmt.Sprintf("%s at %d:", u.ID, u.Version)
		for _, c := range store.Sorted(u.Conversations) {
			s += fmt.Sprintf(" %s at %d", c.ID, c.Version)
		}
		s += "\n"
	}
	return s
}

// Whatever the history, folding it in order gives what the model says, after
// every event and for every user; versions grow by at most one an event, and
// exactly when a client can see a difference.
func TestFoldAgreesWithTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := drawTimes(t, drawHistory(t, every, users))
		generations, begin := drawGenerations(t, len(history))
		m, truth := newMemory(begin...), &model{generations: generations}
		for i, e := range history {
			before := map[string]*badge.User{}
			for _, id := range users {
				before[id] = badge.NewUser(id)
				if row, ok := m.rows[id]; ok {
					*before[id] = reload(t, row)
				}
			}
			m.commit(t, history[i:i+1])
			truth.events = append(truth.events, e)
			for _, id := range users {
				if diff := cmp.Diff(truth.describe(id), m.describe(id)); diff != "" {
					t.Fatalf("after\n%s%s has (-want +got):\n%s", story(truth.events), id, diff)
				}
				checkVersion(t, before[id], m.rows[id], truth.events)
			}
		}
	})
}

func checkVersion(t *rapid.T, before, after *badge.User, history []events.Event) {
	if after == nil {
		return
	}
	grown := after.Version - before.Version
	seen := describeUser(before) != describeUser(after)
	if seen && grown != 1 || !seen && grown != 0 {
		t.Fatalf("after\n%sthe version of %s grew by %d, but a client sees a difference: %v",
			story(history), after.ID, grown, seen)
	}
}

// Deliveries, reads and recalls: any order and any repetition of them gives
// the same numbers, if reads by apps are at most a minute from deliveries.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := drawHistory(t, commuting, users)
		for i := range history {
			history[i].AppendedAt = noon.Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "appended")))
		}
		shuffled := rapid.Permutation(history).Draw(t, "shuffled")
		shuffled = append(shuffled, rapid.SliceOfN(rapid.SampledFrom(history), 0, 10).Draw(t, "repeated")...)
		inOrder, outOfOrder := newMemory(), newMemory()
		inOrder.commit(t, history)
		outOfOrder.commit(t, shuffled)
		for _, id := range users {
			if diff := cmp.Diff(inOrder.describe(id), outOfOrder.describe(id)); diff != "" {
				t.Fatalf("%s depends on the order (-in order +shuffled):\n%s\nin order\n%sshuffled\n%s",
					id, diff, story(history), story(shuffled))
			}
		}
	})
}

// Batches cannot be observed: wherever a history is cut, rows and versions are
// the same.
func TestBatchesCannotBeObserved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := drawTimes(t, drawHistory(t, every, users))
		single, cut := newMemory(), newMemory()
		for i := range history {
			single.commit(t, history[i:i+1])
		}
		var cuts []int
		for rest := history; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "batch")
			cuts = append(cuts, n)
			cut.commit(t, rest[:n])
			rest = rest[n:]
		}
		for _, id := range users {
			if diff := cmp.Diff(single.describe(id), cut.describe(id)); diff != "" {
				t.Fatalf("%s depends on the cuts %v (-one by one +cut):\n%s\n%s", id, cuts, diff, story(history))
			}
		}
		if diff := cmp.Diff(single.versions(), cut.versions()); diff != "" {
			t.Fatalf("versions depend on the cuts %v (-one by one +cut):\n%s\n%s", cuts, diff, story(history))
		}
	})
}

// An update brings whoever holds its base version up to date: a client that
// starts from nothing and applies each update has every number at the end.
func TestUpdatesCarryEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := drawTimes(t, drawHistory(t, every, users))
		m := newMemory()
		held := map[string]map[string]pubsub.Conversation{"ann": {}, "bob": {}}
		version := map[string]int64{}
		for rest := history; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "batch")
			clear(m.told)
			m.commit(t, rest[:n])
			rest = rest[n:]
			for id, update := range m.told {
				if update.BaseVersion != version[id] {
					t.Fatalf("update of %s starts at %d, the last ended at %d", id, update.BaseVersion, version[id])
				}
				version[id] = update.Version
				for _, c := range update.Conversations {
					held[id][c.ConversationID] = c
				}
				var unread int64
				for _, n := range update.Categories {
					unread += n
				}
				if unread != update.Total {
					t.Fatalf("total of %s is %d, its categories add up to %d", id, update.Total, unread)
				}
			}
		}
		for id, u := range m.rows {
			for _, c := range u.Conversations {
				if c.Version == 0 {
					continue // nothing a client could see
				}
				if diff := cmp.Diff(store.Public(c), held[id][c.ID]); diff != "" {
					t.Fatalf("after\n%sthe updates leave %s of %s at (-folded +told):\n%s", story(history), c.ID, id, diff)
				}
			}
		}
	})
}

// The rules that are easy to get wrong, as stories.
func TestStories(t *testing.T) {
	deliver := func(id string, seq int64) events.Event {
		return events.Event{ID: id, Source: "t", Type: events.MessageDelivered, Data: events.Data{ConversationID: "c", UserIDs: []string{"ann"}, Seq: seq}}
	}
	event := func(id string, typ events.Type, change func(*events.Data)) events.Event {
		e := events.Event{ID: id, Source: "t", Type: typ, Data: events.Data{ConversationID: "c", UserIDs: []string{"ann"}}}
		if change != nil {
			change(&e.Data)
		}
		return e
	}
	upTo := func(seq int64) func(*events.Data) { return func(d *events.Data) { d.UpToSeq = seq } }
	level := func(l events.Level) func(*events.Data) { return func(d *events.Data) { d.Level = l } }

	for _, tc := range []struct {
		name  string
		story []events.Event
		total int64
	}{
		{"a retry counts once", []events.Event{deliver("1", 1), deliver("1", 1)}, 1},
		{"a redelivery under another id counts once", []events.Event{deliver("1", 1), deliver("2", 1)}, 1},
		{"a late message above the read position counts", []events.Event{
			deliver("1", 5), event("2", events.ConversationRead, upTo(3)), deliver("3", 4),
		}, 2},
		{"a late message below the read position does not", []events.Event{
			event("1", events.ConversationRead, upTo(3)), deliver("2", 2),
		}, 0},
		{"read on one device, then one message: 1, not 5", []events.Event{
			deliver("1", 1), deliver("2", 2), deliver("3", 3), deliver("4", 4),
			event("5", events.ConversationRead, upTo(4)), deliver("6", 5),
		}, 1},
		{"a recall comes before its message", []events.Event{
			event("1", events.MessageRecalled, func(d *events.Data) { d.Seq = 1 }), deliver("2", 1),
		}, 0},
		{"the sender is skipped", []events.Event{
			event("1", events.MessageDelivered, func(d *events.Data) { d.Seq, d.SenderID = 1, "ann" }),
		}, 0},
		{"a read that comes late does not move back", []events.Event{
			deliver("1", 1), deliver("2", 2), event("3", events.ConversationRead, upTo(2)), event("4", events.ConversationRead, upTo(1)),
		}, 0},
		{"marked unread counts 1", []events.Event{event("1", events.ConversationMarkedUnread, nil)}, 1},
		{"marked unread adds nothing to what counts", []events.Event{
			deliver("1", 1), deliver("2", 2), event("3", events.ConversationMarkedUnread, nil),
		}, 2},
		{"a read up to the read position ends a mark", []events.Event{
			event("1", events.ConversationRead, upTo(5)), event("2", events.ConversationMarkedUnread, nil), event("3", events.ConversationRead, upTo(5)),
		}, 0},
		{"an older read ends no mark", []events.Event{
			event("1", events.ConversationRead, upTo(5)), event("2", events.ConversationMarkedUnread, nil), event("3", events.ConversationRead, upTo(4)),
		}, 1},
		{"an older read by an app ends no mark", []events.Event{
			deliver("0", 5), event("1", events.ConversationRead, byApp(5)), event("2", events.ConversationMarkedUnread, nil), event("3", events.ConversationRead, byApp(4)),
		}, 1},
		{"reading all ends a mark, also where the read position is ahead", []events.Event{
			deliver("1", 1), event("2", events.ConversationRead, upTo(5)), event("3", events.ConversationMarkedUnread, nil), event("4", events.UserReadAll, func(d *events.Data) { d.ConversationID = "" }),
		}, 0},
		{"an app ends the mark of a conversation without a message", []events.Event{
			event("1", events.ConversationMarkedUnread, nil), event("2", events.ConversationRead, byApp(1)),
		}, 0},
		{"the mark of a conversation without a message expires, and silences nothing", []events.Event{
			event("1", events.ConversationMarkedUnread, nil), event("2", events.ConversationExpired, upTo(1)), deliver("3", 1),
		}, 1},
		{"a mark that is set after an app said that it read ahead stays", []events.Event{
			deliver("1", 1), event("2", events.ConversationRead, byApp(2)), event("3", events.ConversationMarkedUnread, nil), deliver("4", 2),
		}, 1},
		{"level none adds nothing, marked or not", []events.Event{
			deliver("1", 1), event("2", events.ConversationMarkedUnread, nil), event("3", events.ConversationLevelSet, level(events.LevelNone)),
		}, 0},
		{"back to level all, everything counts again", []events.Event{
			deliver("1", 1), event("2", events.ConversationLevelSet, level(events.LevelNone)), deliver("3", 2), event("4", events.ConversationLevelSet, level(events.LevelAll)),
		}, 2},
		{"who leaves has nothing unread", []events.Event{deliver("1", 1), event("2", events.ConversationLeft, nil)}, 0},
		{"an old message does not bring a left conversation back", []events.Event{
			deliver("1", 5), event("2", events.ConversationLeft, nil), deliver("3", 4), event("4", events.ConversationMarkedUnread, nil),
		}, 0},
		{"messages up to where the user left do not bring it back", []events.Event{
			deliver("1", 1), event("2", events.ConversationLeft, upTo(3)), deliver("3", 2), deliver("4", 3),
		}, 0},
		{"a message beyond where the user left brings it back, alone", []events.Event{
			deliver("1", 1), event("2", events.ConversationLeft, upTo(3)), deliver("3", 2), deliver("4", 4),
		}, 1},
		{"a new message brings a left conversation back", []events.Event{
			deliver("1", 1), event("2", events.ConversationLeft, nil), deliver("3", 2),
		}, 1},
		{"read all", []events.Event{
			deliver("1", 1), deliver("2", 2), event("3", events.UserReadAll, func(d *events.Data) { d.ConversationID = "" }), deliver("4", 3),
		}, 1},
		{"the greatest seq there is", []events.Event{deliver("1", 1<<63-1), deliver("2", 1<<63-2)}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, e := range tc.story {
				if err := e.Validate(); err != nil {
					t.Fatal(err)
				}
			}
			u := badge.NewUser("ann")
			seen := map[string]bool{}
			for _, e := range tc.story {
				if !seen[e.ID] {
					seen[e.ID] = true
					store.Fold(&e, map[string]*badge.User{"ann": u})
				}
			}
			if u.Total != tc.total {
				t.Errorf("after\n%sthe total is %d, want %d", story(tc.story), u.Total, tc.total)
			}
			truth := model{events: slices.Clone(tc.story)}
			if diff := cmp.Diff(truth.describe("ann"), describeUser(u)); diff != "" {
				t.Errorf("the model says otherwise (-model +fold):\n%s", diff)
			}
		})
	}
}

// A user that is remembered keeps its own id in memory, and not those of a whole
// group that it was decoded with.
func TestUserKeepsItsOwnID(t *testing.T) {
	group := "ann,ben"
	if u := badge.NewUser(group[:3]); u.ID != "ann" || unsafe.StringData(u.ID) == unsafe.StringData(group) {
		t.Errorf("%q is in the memory of %q", u.ID, group)
	}
}
