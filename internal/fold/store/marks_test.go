package store_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/fold/store/storetest"
)

// posts returns messages of a room with the seqs 1 to n times a distance, of which ann
// sent one in every.
func posts(n, distance, every int64) (history []events.Event) {
	for i := int64(1); i <= n; i++ {
		e := foldtest.Event(fmt.Sprint("post ", i), events.RoomPosted, "hall", foldtest.Seq(i*distance))
		if i%every == 0 {
			e.Data.SenderID = "ann"
		}
		history = append(history, e)
	}
	return history
}

// marked has ann read a room to its end and mark it from a message on.
func marked(t *testing.T, m *storetest.Memory, end, from int64) (unread, first int64) {
	t.Helper()
	m.Commit(t, foldtest.Event("read", events.ConversationRead, "hall", foldtest.UpTo(end), "ann"))
	m.Commit(t, foldtest.Event("mark", events.ConversationMarkedUnread, "hall", foldtest.From(from), "ann"))
	c := m.User("ann").Conversations["hall"]
	v := c.ViewIn(m.Rooms["hall"], nil)
	return v.Unread, v.FirstUnread
}

// A member sent 100 of 200 messages: a mark counts no message of the member's own, and
// so reaches back behind the 65th last one, in whatever order they came.
func TestMarksReachBackToWhatIsKnown(t *testing.T) {
	history := append(posts(200, 1, 2), foldtest.Event("recall", events.RoomRecalled, "hall", foldtest.Seq(200)))
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, seed))
		rng.Shuffle(len(history), func(i, j int) { history[i], history[j] = history[j], history[i] })
		m := storetest.NewMemory()
		m.Commit(t, foldtest.Event("join", events.RoomJoined, "hall", nil, "ann"))
		for len(history) > 0 {
			n := min(len(history), 1+rng.IntN(50))
			m.Commit(t, history[:n]...)
			history = history[n:]
		}
		history = append(posts(200, 1, 2), foldtest.Event("recall", events.RoomRecalled, "hall", foldtest.Seq(200)))
		if unread, first := marked(t, m, 200, 1); unread != 64 || first != 73 {
			t.Fatalf("with seed %d, %d messages from %d on are unread, want 64 from 73 on", seed, unread, first)
		}
	}
}

// A message that was recalled, and counts again after a change without mentions, is no mention
// after a mark either, whether the member had read it before the recall or not.
func TestMarksForgetMentionsOfRecalledMessages(t *testing.T) {
	for name, before := range map[string][]events.Event{
		"not read": nil,
		"read":     {foldtest.Event("read before", events.ConversationRead, "hall", foldtest.UpTo(1), "ann")},
	} {
		t.Run(name, func(t *testing.T) {
			m := storetest.NewMemory()
			m.Commit(t, foldtest.Event("join", events.RoomJoined, "hall", nil, "ann"))
			m.Commit(t, foldtest.Event("post", events.RoomPosted, "hall", func(d *events.Data) { d.Seq, d.MentionedUserIDs = 1, []string{"ann"} }))
			m.Commit(t, append(before, foldtest.Event("recall", events.RoomRecalled, "hall", foldtest.Seq(1)))...)
			m.Commit(t, foldtest.Event("reset", events.ConversationReset, "hall", foldtest.UpTo(0), "ann"))
			m.Commit(t, foldtest.Event("change", events.RoomChanged, "hall", foldtest.Seq(1)))
			if unread, _ := marked(t, m, 1, 1); unread != 1 {
				t.Errorf("%d messages are unread, want 1", unread)
			}
			if v := m.User("ann").Conversations["hall"].ViewIn(m.Rooms["hall"], nil); v.Mentions != 0 {
				t.Errorf("%d messages mention ann, want none", v.Mentions)
			}
		})
	}
}

// Messages of the member's own are left out also where the room has closed chunks, and
// recalls of them are followed.
func TestMarkedMessagesOfClosedChunks(t *testing.T) {
	m := storetest.NewMemory()
	m.Commit(t, foldtest.Event("join", events.RoomJoined, "hall", nil, "ann"))
	m.Commit(t, posts(400, 10, 20)...)
	if since := m.Rooms["hall"].Since; since < 2000 {
		t.Fatalf("the closed chunks of the room end at %d", since)
	}
	m.Commit(t, foldtest.Event("recall", events.RoomRecalled, "hall", foldtest.Seq(400)))
	if unread, first := marked(t, m, 4000, 300); unread != 371-19 || first != 300 {
		t.Errorf("%d messages from %d on are unread, want %d from 300 on", unread, first, 371-19)
	}
	m.Commit(t, foldtest.Event("older", events.ConversationRead, "hall", foldtest.UpTo(1000), "ann"),
		foldtest.Event("older, by an app", events.ConversationRead, "hall", foldtest.ByApp(3990), "ann"))
	if v := m.User("ann").Conversations["hall"].ViewIn(m.Rooms["hall"], nil); v.Unread != 371-19 || v.ReadSeq != 4000 {
		t.Errorf("after reads that are older than the mark, %d messages are unread with position %d", v.Unread, v.ReadSeq)
	}
	m.Commit(t, foldtest.Event("own", events.RoomRecalled, "hall", foldtest.Seq(600)), foldtest.Event("other", events.RoomRecalled, "hall", foldtest.Seq(610)))
	c := m.User("ann").Conversations["hall"]
	if n := c.ViewIn(m.Rooms["hall"], nil).Unread; n != 371-19-1 {
		t.Errorf("%d messages are unread after a recall of one of them and one of the member's own, want %d", n, 371-19-1)
	}
	m.Commit(t, foldtest.Event("to the end", events.ConversationRead, "hall", foldtest.ByApp(4000), "ann"))
	if v := m.User("ann").Conversations["hall"].ViewIn(m.Rooms["hall"], nil); v.Unread != 0 {
		t.Errorf("after a read to the end, %d messages are unread", v.Unread)
	}
}

// A reset goes back as far as it says: to messages of closed chunks, whose own ones are
// left out as far as they are remembered, and to before the position at joining.
func TestResetsGoBackToClosedChunks(t *testing.T) {
	m := storetest.NewMemory()
	m.Commit(t, foldtest.Event("other", events.RoomJoined, "hall", foldtest.UpTo(1), "bob"))
	m.Commit(t, posts(400, 10, 4)...) // ann is no member yet
	m.Commit(t, foldtest.Event("join", events.RoomJoined, "hall", foldtest.UpTo(2000), "ann"))
	m.Commit(t, posts(400, 10, 4)...)
	m.Commit(t, foldtest.Event("read", events.ConversationRead, "hall", foldtest.UpTo(1e15), "ann"))
	if m.Rooms["hall"].Since < 3000 {
		t.Fatalf("the closed chunks of the room end at %d", m.Rooms["hall"].Since)
	}
	for i, tc := range []struct{ upTo, unread, first int64 }{
		{2990, 101 - 26, 3010}, // 3000, 3040 and so on are ann's own
		{1001, 300 - 50, 1010}, // of those up to 2000 it is not known
		{4000, 0, 0}, {0, 350, 10},
	} {
		m.Commit(t, foldtest.Event(fmt.Sprint("reset ", i), events.ConversationReset, "hall", foldtest.UpTo(tc.upTo), "ann"))
		if v := m.User("ann").Conversations["hall"].ViewIn(m.Rooms["hall"], nil); v.Unread != tc.unread || v.FirstUnread != tc.first || v.ReadSeq != tc.upTo {
			t.Errorf("after a reset to %d, %d messages from %d on are unread and the position is %d, want %d from %d on", tc.upTo, v.Unread, v.FirstUnread, v.ReadSeq, tc.unread, tc.first)
		}
	}
}
