package store_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/category"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/fold/store/storetest"
	"github.com/badged/badged/pubsub"
)

var users = []string{"ann", "bob"}

// versions returns all versions of a partition as text.
func versions(m *storetest.Memory) string {
	s := ""
	for _, u := range store.Sorted(m.Users) {
		s += fmt.Sprintln(u.ID, storetest.Versions(u))
	}
	return s
}

// drawGenerations draws the generation of each of n events, and where the
// generations begin: event i is at offset i+1.
func drawGenerations(t *rapid.T, n int) (of []int, begin []store.Generation) {
	number := 1
	begin = []store.Generation{{Number: number}}
	for i := range n {
		if rapid.IntRange(0, 4).Draw(t, "rotate") == 0 {
			number++
			begin = append(begin, store.Generation{Number: number, After: events.Position{Offset: int64(i)}})
		}
		of = append(of, number)
	}
	return of, begin
}

// Folding any history in order equals the model, after every event and for
// every user. Versions grow by at most one per event, exactly when a client
// can see a difference.
func TestFoldAgreesWithTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := foldtest.DrawTimes(t, foldtest.DrawHistory(t, foldtest.EveryType(), users))
		generations, begin := drawGenerations(t, len(history))
		m, truth := storetest.NewMemory(begin...), &foldtest.Model{Generations: generations}
		for i, e := range history {
			before := map[string]*badge.User{}
			for _, id := range users {
				before[id] = storetest.Reload(t, m.User(id))
			}
			m.Commit(t, history[i])
			truth.Events = append(truth.Events, e)
			for _, id := range users {
				if diff := cmp.Diff(truth.Describe(id), m.Describe(id)); diff != "" {
					t.Fatalf("after\n%s%s has (-want +got):\n%s", foldtest.Story(truth.Events), id, diff)
				}
				checkVersion(t, before[id], m.Users[id], truth.Events)
			}
		}
	})
}

func checkVersion(t *rapid.T, before, after *badge.User, history []events.Event) {
	if after == nil {
		return
	}
	grown := after.Version - before.Version
	seen := storetest.Describe(before) != storetest.Describe(after)
	if seen && grown != 1 || !seen && grown != 0 {
		t.Fatalf("after\n%sthe version of %s grew by %d, but a client sees a difference: %v",
			foldtest.Story(history), after.ID, grown, seen)
	}
}

// Deliveries, reads and recalls give the same numbers in any order and with
// any repetition, if reads by apps are at most a minute from deliveries.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := foldtest.DrawHistory(t, foldtest.CommutingTypes(), users)
		for i := range history {
			history[i].AppendedAt = foldtest.Noon.Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "appended")))
		}
		shuffled := rapid.Permutation(history).Draw(t, "shuffled")
		shuffled = append(shuffled, rapid.SliceOfN(rapid.SampledFrom(history), 0, 10).Draw(t, "repeated")...)
		inOrder, outOfOrder := storetest.NewMemory(), storetest.NewMemory()
		inOrder.Commit(t, history...)
		outOfOrder.Commit(t, shuffled...)
		for _, id := range users {
			if diff := cmp.Diff(inOrder.Describe(id), outOfOrder.Describe(id)); diff != "" {
				t.Fatalf("%s depends on the order (-in order +shuffled):\n%s\nin order\n%sshuffled\n%s",
					id, diff, foldtest.Story(history), foldtest.Story(shuffled))
			}
		}
	})
}

// Changes and recalls with revisions give the same numbers in any order and with any
// repetition, beside deliveries and reads.
func TestOrderOfRevisionsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := foldtest.DrawHistory(t, append(foldtest.CommutingTypes(), events.MessageChanged, events.MessageChanged), users)
		revisions := map[string]int64{}
		for i := range history {
			e := &history[i]
			e.AppendedAt = foldtest.Noon
			if e.Type == events.MessageChanged || e.Type == events.MessageRecalled {
				if revisions[e.ID] == 0 {
					revisions[e.ID] = int64(len(revisions) + 1)
				}
				e.Data.Revision = revisions[e.ID]
			}
		}
		shuffled := append(rapid.Permutation(history).Draw(t, "shuffled"), rapid.SliceOfN(rapid.SampledFrom(history), 0, 10).Draw(t, "repeated")...)
		for i := range shuffled {
			shuffled[i].ID = fmt.Sprint("event ", i) // what repeats do is no matter of keys
		}
		inOrder, outOfOrder := storetest.NewMemory(), storetest.NewMemory()
		inOrder.Commit(t, history...)
		outOfOrder.Commit(t, shuffled...)
		for _, id := range users {
			if diff := cmp.Diff(inOrder.Describe(id), outOfOrder.Describe(id)); diff != "" {
				t.Fatalf("%s depends on the order (-in order +shuffled):\n%s\nin order\n%sshuffled\n%s",
					id, diff, foldtest.Story(history), foldtest.Story(shuffled))
			}
		}
	})
}

// A conversation remembers the revisions of the 64 changed messages with the greatest
// seqs: of others the last change in the log applies.
func TestRevisionsAreBounded(t *testing.T) {
	m := storetest.NewMemory()
	changed := func(name string, seq, revision int64) events.Event {
		return foldtest.Event(name, events.MessageChanged, "c", func(d *events.Data) { d.Seq, d.Revision = seq, revision }, "ann")
	}
	for seq := int64(1); seq <= 65; seq++ {
		m.Commit(t, changed(fmt.Sprint("new ", seq), seq, 2))
	}
	if n := len(m.User("ann").Conversations["c"].Revisions); n != 64 {
		t.Errorf("%d revisions are remembered", n)
	}
	for _, seq := range []int64{1, 2} {
		m.Commit(t, foldtest.Event(fmt.Sprint("old ", seq), events.MessageRecalled, "c", func(d *events.Data) { d.Seq, d.Revision = seq, 1 }, "ann"))
	}
	if n := m.User("ann").Total; n != 64 {
		t.Errorf("after old recalls of a forgotten and of a remembered message %d are unread, want 64", n)
	}
}

// A restored message among those that are only counted is counted again.
func TestRestoredMessagesOfTheCountedPart(t *testing.T) {
	m := storetest.NewMemory()
	for i := int64(1); i <= 1500; i++ {
		m.Commit(t, foldtest.Named(fmt.Sprint("m", i), foldtest.Mentioning(foldtest.Deliver("c", 1000*i, "ann"))))
	}
	step := func(name string, typ events.Type, total, mentions int64) {
		t.Helper()
		m.Commit(t, foldtest.Event(name, typ, "c", foldtest.Seq(100_000), "ann"))
		if u := m.User("ann"); u.Total != total || u.Mentions != mentions {
			t.Errorf("%s: %d unread, %d mentions, want %d and %d", name, u.Total, u.Mentions, total, mentions)
		}
	}
	step("recalled", events.MessageRecalled, 1499, 1499)
	step("restored", events.MessageChanged, 1500, 1499)
	step("changed", events.MessageChanged, 1500, 1499)
}

// Rows and versions are the same however a history is cut into batches.
func TestBatchesCannotBeObserved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := foldtest.DrawTimes(t, foldtest.DrawHistory(t, foldtest.EveryType(), users))
		single, cut := storetest.NewMemory(), storetest.NewMemory()
		for i := range history {
			single.Commit(t, history[i])
		}
		var cuts []int
		for rest := history; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "batch")
			cuts = append(cuts, n)
			cut.Commit(t, rest[:n]...)
			rest = rest[n:]
		}
		for _, id := range users {
			if diff := cmp.Diff(single.Describe(id), cut.Describe(id)); diff != "" {
				t.Fatalf("%s depends on the cuts %v (-one by one +cut):\n%s\n%s", id, cuts, diff, foldtest.Story(history))
			}
		}
		if diff := cmp.Diff(versions(single), versions(cut)); diff != "" {
			t.Fatalf("versions depend on the cuts %v (-one by one +cut):\n%s\n%s", cuts, diff, foldtest.Story(history))
		}
	})
}

// An update brings a client with its base version up to date: a client that
// starts from nothing and applies every update has every number at the end.
func TestUpdatesCarryEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := foldtest.DrawTimes(t, foldtest.DrawHistory(t, foldtest.EveryType(), users))
		m := storetest.NewMemory()
		held := map[string]map[string]pubsub.Conversation{"ann": {}, "bob": {}}
		version := map[string]int64{}
		categories := map[string]map[string]pubsub.Numbers{"ann": {}, "bob": {}}
		levels := map[string]category.Levels{}
		for rest := history; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "batch")
			clear(m.Updates)
			m.Commit(t, rest[:n]...)
			rest = rest[n:]
			for id, update := range m.Updates {
				if update.BaseVersion != version[id] {
					t.Fatalf("update of %s starts at %d, the last ended at %d", id, update.BaseVersion, version[id])
				}
				version[id] = update.Version
				for _, c := range update.Conversations {
					held[id][c.ConversationID] = c
				}
				for path, n := range update.Categories {
					if categories[id][path] = n; n == (pubsub.Numbers{}) {
						delete(categories[id], path)
					}
				}
				if update.Levels != nil {
					levels[id] = update.Levels
				}
				sum := pubsub.Numbers{}
				for path, n := range categories[id] {
					if category.Above(path) == "" {
						sum.Add(n)
					}
				}
				if sum != update.Numbers {
					t.Fatalf("the numbers of %s are %+v, those of its categories add up to %+v", id, update.Numbers, sum)
				}
			}
		}
		for id, u := range m.Users {
			if sums := u.Sums(nil); !maps.Equal(sums.Categories, categories[id]) || !maps.Equal(sums.Levels, levels[id]) {
				t.Fatalf("after\n%sthe updates leave %s at %v and %v, want %s", foldtest.Story(history), id, categories[id], levels[id], sums)
			}
			for _, c := range u.Conversations {
				if c.Version == 0 {
					continue // no visible change
				}
				if diff := cmp.Diff(store.Public(c), held[id][c.ID]); diff != "" {
					t.Fatalf("after\n%sthe updates leave %s of %s at (-folded +told):\n%s", foldtest.Story(history), c.ID, id, diff)
				}
			}
		}
	})
}

// Rules that are easy to get wrong.
func TestStories(t *testing.T) {
	deliver := func(id string, seq int64) events.Event {
		return foldtest.Named(id, foldtest.Deliver("c", seq, "ann"))
	}
	event := func(id string, typ events.Type, change func(*events.Data)) events.Event {
		return foldtest.Event(id, typ, "c", change, "ann")
	}
	to := func(upTo int64, unread ...int64) func(*events.Data) {
		return func(d *events.Data) { d.UpToSeq, d.Seqs = upTo, unread }
	}
	revised := func(seq, revision int64) func(*events.Data) {
		return func(d *events.Data) { d.Seq, d.Revision = seq, revision }
	}
	upTo, byApp, level, seq, seqs := foldtest.UpTo, foldtest.ByApp, foldtest.Level, foldtest.Seq, foldtest.Seqs

	for _, tc := range []struct {
		name   string
		events []events.Event
		total  int64
	}{
		{"a retry counts once", []events.Event{deliver("1", 1), deliver("1", 1)}, 1},
		{"the level of the longest path counts", []events.Event{
			foldtest.InCategory("acme", foldtest.Event("1", events.CategoryLevelSet, "", level(events.LevelNone), "ann")),
			foldtest.InCategory("acme/dev", foldtest.Event("2", events.CategoryLevelSet, "", level(events.LevelAll), "ann")),
			foldtest.InCategory("acme/dev", deliver("3", 1)),
		}, 1},
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
		{"a level ends when its time has come, and the one before counts again", []events.Event{
			deliver("1", 1), event("2", events.ConversationLevelSet, levelUntil(events.LevelNone, 2)), event("3", events.ConversationLevelEnded, ended(2)),
		}, 1},
		{"a level that was set for longer since does not end", []events.Event{
			deliver("1", 1), event("2", events.ConversationLevelSet, levelUntil(events.LevelNone, 2)),
			event("3", events.ConversationLevelSet, levelUntil(events.LevelNone, 3)), event("4", events.ConversationLevelEnded, ended(2)),
		}, 0},
		{"a level that was set for longer is followed by the last one without an end", []events.Event{
			deliver("1", 1), event("2", events.ConversationLevelSet, levelUntil(events.LevelNone, 2)),
			event("3", events.ConversationLevelSet, levelUntil(events.LevelMentions, 3)), event("4", events.ConversationLevelEnded, ended(3)),
		}, 1},
		{"a level without an end does not end", []events.Event{
			deliver("1", 1), event("2", events.ConversationLevelSet, levelUntil(events.LevelAll, 2)),
			event("3", events.ConversationLevelSet, foldtest.Level(events.LevelNone)), event("4", events.ConversationLevelEnded, ended(3)),
		}, 0},
		{"the end of a level may be repeated", []events.Event{
			deliver("1", 1), event("2", events.ConversationLevelSet, levelUntil(events.LevelAll, 2)), event("3", events.ConversationLevelEnded, ended(2)),
			event("4", events.ConversationLevelSet, foldtest.Level(events.LevelNone)), event("5", events.ConversationLevelEnded, ended(2)),
		}, 0},
		{"a mark that is set after an app said that it read ahead stays", []events.Event{
			deliver("1", 1), event("2", events.ConversationRead, byApp(2)), event("3", events.ConversationMarkedUnread, nil), deliver("4", 2),
		}, 1},
		{"marked messages count again, without recalled ones and those that do not count anyway", []events.Event{
			deliver("1", 1), deliver("2", 2), deliver("3", 3), deliver("4", 4), deliver("5", 6), event("6", events.ConversationRead, upTo(4)),
			event("7", events.MessageRecalled, seq(2)), event("8", events.ConversationMarkedUnread, seqs(1, 2, 3, 3, 5, 9)), event("9", events.MessageRecalled, seq(1)),
		}, 2},
		{"a recall that is remembered by the range keeps its message from being marked", []events.Event{
			deliver("1", 3), event("2", events.MessageRecalled, seq(2)), event("3", events.MessageRecalled, seq(3)), event("4", events.ConversationRead, upTo(3)),
			event("5", events.ConversationMarkedUnread, seqs(1, 2, 3)),
		}, 1},
		{"an older read ends no mark of a message, whatever it covers", []events.Event{
			deliver("1", 5), event("2", events.ConversationRead, upTo(5)), event("3", events.ConversationMarkedUnread, seqs(1, 2)), event("4", events.ConversationRead, upTo(4)),
		}, 2},
		{"a read up to the read position ends the marks of messages", []events.Event{
			deliver("1", 5), event("2", events.ConversationRead, upTo(5)), event("3", events.ConversationMarkedUnread, seqs(1, 2)), event("4", events.ConversationRead, byApp(5)),
		}, 0},
		{"a message that an app read ahead ends no mark of a message", []events.Event{
			deliver("1", 1), event("2", events.ConversationRead, byApp(2)), event("3", events.ConversationMarkedUnread, seqs(1)), deliver("4", 2),
		}, 1},
		{"marked messages do not mention the user", []events.Event{
			deliver("1", 1), event("2", events.ConversationRead, upTo(1)), event("3", events.ConversationMarkedUnread, seqs(1)), event("4", events.ConversationLevelSet, level(events.LevelMentions)),
		}, 0},
		{"messages from before the user left do not count again", []events.Event{
			deliver("1", 1), event("2", events.ConversationLeft, nil), deliver("3", 2), event("4", events.ConversationRead, upTo(2)), event("5", events.ConversationMarkedUnread, seqs(1, 2)),
		}, 1},
		{"a restored message counts again", []events.Event{
			deliver("1", 1), event("2", events.MessageRecalled, seq(1)), event("3", events.MessageChanged, seq(1)),
		}, 1},
		{"a restored message that was read does not", []events.Event{
			deliver("1", 1), event("2", events.MessageRecalled, seq(1)), deliver("3", 2), event("4", events.ConversationRead, upTo(2)), event("5", events.MessageChanged, seq(1)),
		}, 0},
		{"a change without a revision applies in the order of the log", []events.Event{
			event("1", events.MessageChanged, seq(1)), event("2", events.MessageRecalled, seq(1)),
		}, 0},
		{"a recall that is older than a change comes late", []events.Event{
			deliver("1", 1), event("2", events.MessageChanged, revised(1, 2)), event("3", events.MessageRecalled, revised(1, 1)),
		}, 1},
		{"a recall without a revision applies to any revision, and an older change does not undo it", []events.Event{
			event("1", events.MessageChanged, revised(1, 2)), event("2", events.MessageRecalled, seq(1)), event("3", events.MessageChanged, revised(1, 1)),
		}, 0},
		{"an edit takes the mention away, and the delivery that comes late does not add it", []events.Event{
			foldtest.Mentioning(deliver("1", 1)), event("2", events.MessageChanged, seq(1)), foldtest.Mentioning(deliver("3", 1)), event("4", events.ConversationLevelSet, level(events.LevelMentions)),
		}, 0},
		{"an edit adds a mention", []events.Event{
			deliver("1", 1), foldtest.Mentioning(event("2", events.MessageChanged, seq(1))), event("3", events.ConversationLevelSet, level(events.LevelMentions)),
		}, 1},
		{"the sender gets no change", []events.Event{
			event("1", events.MessageChanged, func(d *events.Data) { d.Seq, d.SenderID = 1, "ann" }),
		}, 0},
		{"a reset forgets revisions", []events.Event{
			event("1", events.MessageRecalled, revised(1, 9)), event("2", events.ConversationReset, nil), event("3", events.MessageChanged, revised(1, 1)),
		}, 1},
		{"a reset lowers the position: later messages count, and those that it names", []events.Event{
			deliver("1", 1e15), event("2", events.ConversationRead, upTo(1e15)), deliver("3", 41), event("4", events.ConversationReset, to(40, 41)), deliver("5", 42),
		}, 2},
		{"after a reset, reading all does not reach as far as before", []events.Event{
			deliver("1", 1e15), event("2", events.ConversationReset, to(40)),
			event("3", events.UserReadAll, func(d *events.Data) { d.ConversationID = "" }), deliver("4", 41),
		}, 1},
		{"a reset forgets recalls: seqs may be used again", []events.Event{
			deliver("1", 1), deliver("2", 2), event("3", events.MessageRecalled, seq(2)), event("4", events.ConversationReset, to(1)), deliver("5", 2),
		}, 1},
		{"a reset leaves nothing unread but what it names", []events.Event{
			deliver("1", 5), deliver("2", 6), deliver("3", 7), event("4", events.ConversationReset, to(4, 6)),
		}, 1},
		{"a reset forgets mentions", []events.Event{
			foldtest.Mentioning(deliver("1", 5)), event("2", events.ConversationReset, to(4, 5)), event("3", events.ConversationLevelSet, level(events.LevelMentions)),
		}, 0},
		{"messages below the position that a reset names count until the next read", []events.Event{
			event("1", events.ConversationReset, to(4, 2, 3)), deliver("2", 5), event("3", events.ConversationRead, upTo(4)),
		}, 1},
		{"a reset keeps a mark of the conversation", []events.Event{
			deliver("1", 1), event("2", events.ConversationMarkedUnread, nil), event("3", events.ConversationReset, to(1)),
		}, 1},
		{"a reset ends marks of messages", []events.Event{
			deliver("1", 1), event("2", events.ConversationRead, upTo(1)), event("3", events.ConversationMarkedUnread, seqs(1)), event("4", events.ConversationReset, to(1)),
		}, 0},
		{"an app has read nothing ahead of a reset", []events.Event{
			event("1", events.ConversationRead, byApp(9)), event("2", events.ConversationReset, nil), deliver("3", 1),
		}, 1},
		{"who has left stays out after a reset, until the next message", []events.Event{
			deliver("1", 9), event("2", events.ConversationLeft, upTo(1e15)), event("3", events.ConversationReset, to(3)), event("4", events.ConversationMarkedUnread, nil), deliver("5", 4),
		}, 1},
		{"a reset with unread messages brings a left conversation back", []events.Event{
			deliver("1", 9), event("2", events.ConversationLeft, nil), event("3", events.ConversationReset, to(3, 4)),
		}, 1},
		{"messages up to where the user had left count after a reset", []events.Event{
			deliver("1", 9), event("2", events.ConversationLeft, nil), deliver("3", 10), event("4", events.ConversationReset, nil), deliver("5", 1),
		}, 1},
		{"level none adds nothing, marked or not", []events.Event{
			deliver("1", 1), event("2", events.ConversationMarkedUnread, nil), event("3", events.ConversationLevelSet, level(events.LevelNone)),
		}, 0},
		{"back to level all, everything counts again", []events.Event{
			deliver("1", 1), event("2", events.ConversationLevelSet, level(events.LevelNone)), deliver("3", 2), event("4", events.ConversationLevelSet, level(events.LevelAll)),
		}, 2},
		{"who leaves has nothing unread", []events.Event{deliver("1", 1), event("2", events.ConversationLeft, nil)}, 0},
		{"who leaves a category has no marks, also without messages", []events.Event{
			event("1", events.ConversationMarkedUnread, nil), event("2", events.UserLeftAll, func(d *events.Data) { d.ConversationID, d.Category = "", events.DefaultCategory }),
		}, 0},
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
			for _, e := range tc.events {
				if err := e.Validate(); err != nil {
					t.Fatal(err)
				}
			}
			u := badge.NewUser("ann")
			seen := map[string]bool{}
			for _, e := range tc.events {
				if !seen[e.ID] {
					seen[e.ID] = true
					(&badge.State{Users: map[string]*badge.User{"ann": u}}).Fold(&e)
				}
			}
			if u.Total != tc.total {
				t.Errorf("after\n%sthe total is %d, want %d", foldtest.Story(tc.events), u.Total, tc.total)
			}
			truth := foldtest.Model{Events: slices.Clone(tc.events)}
			if diff := cmp.Diff(truth.Describe("ann"), storetest.Describe(u)); diff != "" {
				t.Errorf("the model says otherwise (-model +fold):\n%s", diff)
			}
		})
	}
}

// The hour of the last delivery does not depend on the order of deliveries,
// reads and recalls.
func TestDeliveredHourDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := foldtest.DrawHistory(t, foldtest.CommutingTypes(), users)
		last := map[string]int64{}
		for i := range history {
			e := &history[i]
			e.ID = fmt.Sprint("event ", i) // repeated events are skipped
			hour := rapid.Int64Range(1, 5).Draw(t, "hour")
			e.AppendedAt = time.Unix(3600*hour+rapid.Int64Range(0, 3599).Draw(t, "second"), 0)
			for _, id := range e.Data.UserIDs {
				if e.Type == events.MessageDelivered && e.Data.SenderID != id {
					key := id + " " + e.Data.ConversationID
					last[key] = max(last[key], hour)
				}
			}
		}
		m := storetest.NewMemory()
		m.Commit(t, rapid.Permutation(history).Draw(t, "shuffled")...)
		got := map[string]int64{}
		for id, u := range m.Users {
			for _, c := range u.Conversations {
				if c.DeliveredHour > 0 {
					got[id+" "+c.ID] = c.DeliveredHour
				}
			}
		}
		if diff := cmp.Diff(last, got); diff != "" {
			t.Fatalf("after\n%sthe hours are (-want +got):\n%s", foldtest.Story(history), diff)
		}
	})
}

// levelUntil sets a level that ends a number of hours after noon.
func levelUntil(level events.Level, hours int) func(*events.Data) {
	return func(d *events.Data) { d.Level, d.Until = level, foldtest.Noon.Add(time.Duration(hours)*time.Hour) }
}

// ended ends the levels until a number of hours after noon.
func ended(hours int) func(*events.Data) {
	return func(d *events.Data) { d.Until = foldtest.Noon.Add(time.Duration(hours) * time.Hour) }
}
