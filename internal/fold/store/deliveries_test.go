package store_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/store/storetest"
)

// twin is one conversation, folded twice: as a room, and with single deliveries to
// its members.
type twin struct {
	room, single *storetest.Memory
	messages     map[int64]events.Data
	recalled     map[int64]bool
	// before are the messages posted before the last join, and the messages that a reset
	// makes count for their sender too. They are not repeated: a room would then learn
	// that the member sent them.
	before  map[int64]bool
	members []string
	// since are, by member, the messages that were posted since the member joined, above
	// the position at joining or of the last reset, which from has: the room does not know
	// the senders and mentions of others.
	since map[string]map[int64]bool
	from  map[string]int64
	last  int64
	named int
	story []events.Event
}

func (w *twin) event(typ events.Type, change func(*events.Data), users ...string) events.Event {
	w.named++
	return foldtest.Event(fmt.Sprint("event ", w.named), typ, "c", change, users...)
}

// delivery returns a message of the room as it is delivered to some users.
func (w *twin) delivery(seq int64, users ...string) events.Event {
	return w.event(events.MessageDelivered, func(d *events.Data) {
		m := w.messages[seq]
		d.Seq, d.SenderID = seq, m.SenderID
		d.MentionedUserIDs = slices.DeleteFunc(slices.Clone(users), func(id string) bool {
			return !m.MentionsAll && !slices.Contains(m.MentionedUserIDs, id)
		})
	}, users...)
}

// step draws an event and returns it for the room and as single deliveries.
func (w *twin) step(t *rapid.T) (events.Event, []events.Event) {
	seq := rapid.Int64Range(1, 12).Draw(t, "seq")
	user := rapid.SampledFrom(users).Draw(t, "user")
	member := slices.Contains(w.members, user)
	switch kind := rapid.SampledFrom([]string{"post", "post", "post", "post", "recall", "change", "join", "join", "leave", "read", "level", "mark", "reset", "end"}).Draw(t, "kind"); {
	case kind == "post" && !w.before[seq]:
		if _, again := w.messages[seq]; !again {
			w.messages[seq] = events.Data{
				Seq: seq, SenderID: rapid.SampledFrom(append([]string{""}, users...)).Draw(t, "sender"),
				MentionedUserIDs: rapid.SliceOfNDistinct(rapid.SampledFrom(users), 0, len(users), rapid.ID).Draw(t, "mentioned"),
				MentionsAll:      rapid.IntRange(0, 3).Draw(t, "mentions all") == 0,
			}
		}
		w.last = max(w.last, seq)
		for _, id := range w.members {
			w.since[id][seq] = w.since[id][seq] || seq > w.from[id]
		}
		posted := w.event(events.RoomPosted, func(d *events.Data) { *d = w.messages[seq]; d.ConversationID = "c" })
		if len(w.members) == 0 {
			return posted, nil
		}
		return posted, []events.Event{w.delivery(seq, w.members...)}
	case kind == "change" && !w.before[seq] && !w.read(seq):
		return w.change(t, seq)
	case kind == "recall":
		w.recalled[seq] = true
		return w.event(events.RoomRecalled, foldtest.Seq(seq)), []events.Event{w.event(events.MessageRecalled, foldtest.Seq(seq), users...)}
	case kind == "end":
		return w.end(rapid.Int64Range(0, 12).Draw(t, "last"), rapid.Int64Range(0, 12).Draw(t, "up to"))
	case kind == "join" && !member:
		return w.join(t, user)
	case member && kind == "leave":
		w.members = slices.DeleteFunc(slices.Clone(w.members), func(id string) bool { return id == user })
		return w.event(events.RoomLeft, nil, user), append(w.reads(w.last, user), w.event(events.ConversationLeft, nil, user))
	case member && kind == "read":
		return w.event(events.ConversationRead, foldtest.UpTo(seq), user), w.reads(seq, user)
	case member && kind == "reset":
		upTo := rapid.Int64Range(0, 12).Draw(t, "up to")
		w.from[user] = min(w.from[user], upTo)
		for seq := range w.messages {
			w.before[seq] = w.before[seq] || !w.since[user][seq]
		}
		return w.event(events.ConversationReset, foldtest.UpTo(upTo), user), w.reset(upTo, user)
	case member && kind == "level":
		level := foldtest.Level(rapid.SampledFrom([]events.Level{events.LevelAll, events.LevelMentions, events.LevelNone}).Draw(t, "level"))
		e := w.event(events.ConversationLevelSet, level, user)
		return e, []events.Event{e}
	case member && kind == "mark" && !w.single.User(user).Conversation("c").Left(): // that one cannot be marked
		e := w.event(events.ConversationMarkedUnread, nil, user)
		return e, []events.Event{e}
	}
	all := w.event(events.UserReadAll, func(d *events.Data) { d.ConversationID = "" }, user)
	if !member {
		return all, nil
	}
	return all, append([]events.Event{all}, w.reads(w.last, user)...)
}

// read reports whether a member has read a message: the room remembers which users it mentioned then.
func (w *twin) read(seq int64) bool {
	return slices.ContainsFunc(w.members, func(id string) bool { return w.room.User(id).Conversations["c"].ReadSeq >= seq })
}

// change changes which users a message mentions, which then counts again if it was recalled.
func (w *twin) change(t *rapid.T, seq int64) (events.Event, []events.Event) {
	m, known := w.messages[seq]
	if !known {
		m = events.Data{Seq: seq}
	}
	m.MentionedUserIDs = rapid.SliceOfNDistinct(rapid.SampledFrom(users), 0, len(users), rapid.ID).Draw(t, "mentioned then")
	m.MentionsAll = rapid.IntRange(0, 3).Draw(t, "mentions all then") == 0
	w.messages[seq], w.last = m, max(w.last, seq)
	delete(w.recalled, seq)
	for _, id := range w.members {
		w.since[id][seq] = w.since[id][seq] || seq > w.from[id]
	}
	changed := w.event(events.RoomChanged, func(d *events.Data) { *d = m; d.ConversationID = "c" })
	if len(w.members) == 0 {
		return changed, nil
	}
	single := w.delivery(seq, w.members...)
	single.Type = events.MessageChanged
	return changed, []events.Event{single}
}

// reads returns a read up to a seq, if there is one. A sender's last message is
// delivered to others only, so a read of all does not reach it.
func (w *twin) reads(upTo int64, user string) []events.Event {
	if upTo == 0 {
		return nil
	}
	return []events.Event{w.event(events.ConversationRead, foldtest.UpTo(upTo), user)}
}

// join makes a user a member, who has read everything or up to a seq: then the user
// gets what there is above, without being its sender or mentioned by name.
func (w *twin) join(t *rapid.T, user string) (events.Event, []events.Event) {
	w.members = append(slices.Clone(w.members), user)
	w.since[user] = map[int64]bool{}
	for seq := range w.messages {
		w.before[seq] = true
	}
	upTo := rapid.Int64Range(0, w.last).Draw(t, "up to")
	joined := w.event(events.RoomJoined, foldtest.UpTo(upTo), user)
	if upTo == 0 {
		upTo = w.last
	}
	w.from[user] = upTo
	return joined, w.reset(upTo, user)
}

// end ends the room at a message, and resets every member.
func (w *twin) end(last, upTo int64) (events.Event, []events.Event) {
	ended := w.event(events.RoomReset, func(d *events.Data) { d.Seq, d.UpToSeq = last, upTo })
	gone := func(seq int64) bool { return seq > last }
	maps.DeleteFunc(w.messages, func(seq int64, _ events.Data) bool { return gone(seq) })
	sets := []map[int64]bool{w.recalled, w.before}
	for id := range w.since {
		sets, w.from[id] = append(sets, w.since[id]), min(w.from[id], last)
	}
	for _, set := range sets {
		maps.DeleteFunc(set, func(seq int64, _ bool) bool { return gone(seq) })
	}
	w.last = last
	var single []events.Event
	for _, id := range w.members {
		single = append(single, w.reset(max(upTo, min(last, w.room.User(id).Conversations["c"].ReadSeq)), id)...)
	}
	return ended, single
}

// reset returns the events by which all messages above a seq are unread for a member,
// without those that are known to be the member's own.
func (w *twin) reset(upTo int64, user string) []events.Event {
	reset := w.event(events.ConversationReset, foldtest.UpTo(upTo), user)
	mentions := []events.Event{}
	for seq := upTo + 1; seq <= w.last; seq++ {
		m, posted := w.messages[seq]
		if !posted || w.recalled[seq] || w.since[user][seq] && m.SenderID == user {
			continue
		}
		reset.Data.Seqs = append(reset.Data.Seqs, seq)
		if m.MentionsAll || w.since[user][seq] && slices.Contains(m.MentionedUserIDs, user) {
			mentions = append(mentions, w.event(events.MessageDelivered, func(d *events.Data) {
				d.Seq, d.MentionedUserIDs = seq, d.UserIDs
			}, user))
		}
	}
	single := append([]events.Event{reset}, mentions...)
	for seq := range w.recalled { // the room still knows them
		single = append(single, w.event(events.MessageRecalled, foldtest.Seq(seq), user))
	}
	return single
}

// Played as a room and as single deliveries to its members, the same history
// gives the same numbers at every step.
func TestRoomsEqualDeliveries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &twin{room: storetest.NewMemory(), single: storetest.NewMemory(), messages: map[int64]events.Data{}, recalled: map[int64]bool{}, before: map[int64]bool{}, since: map[string]map[int64]bool{}, from: map[string]int64{}}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			posted, deliveries := w.step(t)
			w.story = append(w.story, posted)
			w.room.Commit(t, posted)
			if len(deliveries) > 0 {
				w.single.Commit(t, deliveries...)
			}
			for _, id := range users {
				if want, got := w.numbers(w.single, id), w.numbers(w.room, id); got != want {
					t.Fatalf("after\n%sof which the last as single events is\n%sthe room gives %s %s, want %s", foldtest.Story(w.story), foldtest.Story(deliveries), id, got, want)
				}
			}
		}
	})
}

// numbers returns the numbers of a user as text.
func (w *twin) numbers(m *storetest.Memory, id string) string {
	u := m.User(id)
	sums, v := u.Sums(m.Rooms), badge.View{}
	if c, ok := u.Conversations["c"]; ok {
		if v = c.View(); c.Member() {
			v = c.ViewIn(m.Rooms["c"], sums.Levels)
		}
	}
	return fmt.Sprintf("total %d, mentions %d, categories %v; unread %d from %d, mentions %d, marked %v",
		sums.Total, sums.Mentions, sums.Categories, v.Unread, v.FirstUnread, v.Mentions, v.Marked)
}
