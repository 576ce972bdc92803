package projector

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/pubsub"
)

var users = []string{"ann", "bob"}

// memory folds as the batch transaction does, with maps for tables: what a
// batch needs is loaded from literals, folded and written back.
type memory struct {
	keys *keyMemory
	rows map[string]*user
	// folded is how many events were, repetitions included.
	folded int
	// told is the last update of each user.
	told map[string]pubsub.Update
}

func newMemory(generations ...generation) *memory {
	return &memory{keys: newKeyMemory(generations), rows: map[string]*user{}, told: map[string]pubsub.Update{}}
}

// clone returns what a transaction on m begins with: to be committed in its
// place, or dropped. The rows are shared, since a commit replaces them and
// changes none.
func (m *memory) clone() *memory {
	keys := keyMemory{ahead: m.keys.ahead}
	for i, generation := range m.keys.keys {
		keys.keys[i] = maps.Clone(generation)
	}
	return &memory{keys: &keys, rows: maps.Clone(m.rows), folded: m.folded, told: maps.Clone(m.told)}
}

// begin begins a generation, the last there is.
func (m *memory) begin(g generation) { m.keys.ahead = append(slices.Clip(m.keys.ahead), g) }

// commit folds evs as one batch; the nth event ever is at offset n.
func (m *memory) commit(t rapid.TB, evs []events.Event) {
	first := m.folded + 1
	m.commitAt(t, evs, func(i int) events.Position { return events.Position{Offset: int64(first + i)} })
}

// commitAt folds evs as one batch, each at its position.
func (m *memory) commitAt(t rapid.TB, evs []events.Event, at func(i int) events.Position) {
	b := &batch{}
	for _, e := range evs {
		b.items = append(b.items, item{event: e, key: e.Key()})
	}
	state, _ := b.users(newCache(0))
	for id, u := range state {
		clear(u.conversations) // there are no rows to load
		if row, ok := m.rows[id]; ok {
			*u = reload(t, row)
		}
	}
	for i := range b.items {
		m.folded++
		if it := &b.items[i]; !m.keys.duplicate(it.key, at(i)) {
			fold(&it.event, state)
		}
	}
	for id, u := range state {
		m.rows[id] = u
	}
	for _, update := range updatesOf(sorted(state), 0, "epoch", allHeard) {
		m.told[update.UserID] = update
	}
}

// allHeard says that everybody is heard of.
func allHeard(pubsub.User) bool { return true }

// reload returns u as it comes back from the tables.
func reload(t rapid.TB, u *user) user {
	again := newUser(u.id)
	again.version, again.stored, again.total, again.mentions = u.version, u.version, u.total, u.mentions
	again.categories = slices.Clone(u.categories)
	for id, c := range u.conversations {
		copied := *c
		copied.touched = false
		for _, set := range []*rangeSet{&copied.unread.rangeSet, &copied.mentions.rangeSet, &copied.recalled} {
			parsed, err := parseRangeSet(set.String())
			if err != nil {
				t.Fatal(err)
			}
			*set = parsed
		}
		for _, b := range []*block{&copied.unread.block, &copied.mentions.block} {
			parsed, err := parseBlock(b.String())
			if err != nil {
				t.Fatal(err)
			}
			*b = parsed
		}
		again.conversations[id] = &copied
	}
	return *again
}

func (m *memory) describe(id string) string {
	if u, ok := m.rows[id]; ok {
		return describeUser(u)
	}
	return describeUser(newUser(id))
}

// versions are the versions of everything there is.
func (m *memory) versions() string {
	s := ""
	for _, u := range sorted(m.rows) {
		s += fmt.Sprintf("%s at %d:", u.id, u.version)
		for _, c := range sorted(u.conversations) {
			s += fmt.Sprintf(" %s at %d", c.id, c.version)
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
		history := drawHistory(t, every, users)
		generations, begin := drawGenerations(t, len(history))
		m, truth := newMemory(begin...), &model{generations: generations}
		for i, e := range history {
			before := map[string]*user{}
			for _, id := range users {
				before[id] = newUser(id)
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

func checkVersion(t *rapid.T, before, after *user, history []events.Event) {
	if after == nil {
		return
	}
	grown := after.version - before.version
	seen := describeUser(before) != describeUser(after)
	if seen && grown != 1 || !seen && grown != 0 {
		t.Fatalf("after\n%sthe version of %s grew by %d, but a client sees a difference: %v",
			story(history), after.id, grown, seen)
	}
}

// Deliveries, reads and recalls: any order and any repetition of them gives
// the same numbers.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := drawHistory(t, commuting, users)
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
		history := drawHistory(t, every, users)
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
		history := drawHistory(t, every, users)
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
			for _, c := range u.conversations {
				if c.version == 0 {
					continue // nothing a client could see
				}
				if diff := cmp.Diff(c.public(), held[id][c.id]); diff != "" {
					t.Fatalf("after\n%sthe updates leave %s of %s at (-folded +told):\n%s", story(history), c.id, id, diff)
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
		{"any read ends a mark", []events.Event{
			event("1", events.ConversationRead, upTo(5)), event("2", events.ConversationMarkedUnread, nil), event("3", events.ConversationRead, upTo(1)),
		}, 0},
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
			u := newUser("ann")
			seen := map[string]bool{}
			for _, e := range tc.story {
				if !seen[e.ID] {
					seen[e.ID] = true
					fold(&e, map[string]*user{"ann": u})
				}
			}
			if u.total != tc.total {
				t.Errorf("after\n%sthe total is %d, want %d", story(tc.story), u.total, tc.total)
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
	if u := newUser(group[:3]); u.id != "ann" || unsafe.StringData(u.id) == unsafe.StringData(group) {
		t.Errorf("%q is in the memory of %q", u.id, group)
	}
}
