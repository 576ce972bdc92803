package demo

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/badged/badged/events"
)

// post sends messages as the page does.
func (f *fixture) post(t *testing.T, body string) (c cost) {
	t.Helper()
	w := ask(t, f, http.MethodPost, "/demo/room/messages", body)
	if err := json.Unmarshal(w.Body.Bytes(), &c); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", body, w.Code, w.Body)
	}
	return c
}

const (
	postOne  = `{"conversation_id":"town-hall","messages":1}`
	copyOne  = `{"conversation_id":"town-hall-copy","messages":1}`
	postMany = `{"conversation_id":"town-hall","messages":20}`
)

// A message to the room writes the same number of rows for any number of members; a message to
// the copy writes at least two rows for each member.
func TestCostOfAMessage(t *testing.T) {
	f := newFixture(t)
	f.fold(t)
	f.crowd.runUntilEnd(t)
	p := openPage(t, serve(t, f))
	var rows []int
	for _, members := range []int{50, 2000} {
		f.askMembers(t, members)
		p.until(t, members)
		f.post(t, postOne) // the first of its sender may add rows
		room := f.post(t, postOne)
		group := f.post(t, copyOne)
		if room.Members != members || group.Members != members {
			t.Errorf("of %d members: %+v, %+v", members, room, group)
		}
		if least := 2 * (members - 1); group.Rows < least || group.Rows > least+100 {
			t.Errorf("a message to a group of %d wrote %d rows, want %d and a few", members, group.Rows, least)
		}
		// In each partition the rows of the log, the room and the position; and the sender's
		// rows.
		if room.Rows < 3*partitions || room.Rows > 5*partitions {
			t.Errorf("a message to a room of %d wrote %d rows, want %d and a few", members, room.Rows, 3*partitions)
		}
		rows = append(rows, room.Rows)
	}
	if d := rows[1] - rows[0]; d < -3 || d > 3 {
		t.Errorf("a message to the room wrote %v rows, want about the same", rows)
	}
}

func TestMessagesToTheRoom(t *testing.T) {
	f := newFixture(t)
	f.fold(t)
	p := openPage(t, serve(t, f))
	if c := f.post(t, postMany); c.Seq != 20 || c.Members != fewestMembers || c.Rows != 0 {
		t.Errorf("20 messages cost %+v", c)
	}
	for seq := range int64(20) {
		m := p.nextMessage(t)
		if m.Seq != seq+1 || m.ConversationID != townHall || !slices.Contains(guestIDs(0, fewestMembers-hosts), m.SenderID) {
			t.Errorf("message %d is %+v, want one of a guest", seq+1, m)
		}
	}
	if n := f.count(t, `SELECT unread FROM badged.unread WHERE user_id = 'ada' AND conversation_id = $1`, townHall); n != 20 {
		t.Errorf("ada has %d unread, want 20", n)
	}

	// The people in the room write, recall and read as in other conversations.
	f.mustSend(t, townHall, "ada", "@Ben look")
	if _, err := f.store.recall(t.Context(), mustConversation(t, townHall), "ada", 21); err != nil {
		t.Fatal(err)
	}
	all := f.published(t)
	if e := all["town-hall/21"]; e.Type != events.RoomPosted || e.Data.SenderID != "ada" || !slices.Contains(e.Data.MentionedUserIDs, "ben") {
		t.Errorf("published %+v", e)
	}
	if e := all["town-hall/21/read"]; e.Type != events.ConversationRead || e.Data.UpToSeq != 20 {
		t.Errorf("published %+v", e)
	}
	if e := all["town-hall/21/recalled"]; e.Type != events.RoomRecalled || e.Data.Seq != 21 {
		t.Errorf("published %+v", e)
	}
}

func TestMessagesToTheRoomAreChecked(t *testing.T) {
	f := newFixture(t)
	for _, body := range []string{
		`{"conversation_id":"lunch","messages":1}`, `{"conversation_id":"dinner","messages":1}`,
		`{"conversation_id":"town-hall","messages":0}`, `{"conversation_id":"town-hall","messages":51}`, `post`,
	} {
		if w := ask(t, f, http.MethodPost, "/demo/room/messages", body); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
	f.pool.Close()
	if w := ask(t, f, http.MethodPost, "/demo/room/messages", postOne); w.Code != http.StatusServiceUnavailable {
		t.Errorf("without a database: %d %s", w.Code, w.Body)
	}
}

// A message to more users than an event may have becomes several events.
func TestMessageToManyUsers(t *testing.T) {
	c := mustConversation(t, copied)
	users := append(slices.Clone(c.Members), guestIDs(0, 25_000)...)
	evs := eventsOf(c, &message{ConversationID: copied, Seq: 7, SenderID: "guest-9", MentionedUserIDs: []string{"ada"}}, users)
	ids, got := map[string]bool{}, map[string]bool{}
	for _, e := range evs {
		if err := e.Validate(); err != nil {
			t.Errorf("%s: %v", e.ID, err)
		}
		ids[e.ID] = true
		for _, id := range e.Data.UserIDs {
			got[id] = true
		}
	}
	if len(evs) != 3 || len(ids) != 3 || len(got) != 25_001 || got["guest-9"] {
		t.Errorf("%d events with %d ids for %d users, want 3 for all but the sender", len(evs), len(ids), len(got))
	}
}
