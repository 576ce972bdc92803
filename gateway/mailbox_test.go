package gateway

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/badged/badged/gateway/internal/view"
	"github.com/badged/badged/pubsub"
)

// Whatever updates the bus loses, repeats or delays, the client's version never goes back, its
// numbers are the numbers of its version, and it is up to date after a comparison with the
// tables. No comparison returns Denied.
func TestMailboxConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		db := newTables()
		history := map[int64]map[string]int64{0: {}} // unread by version
		m := view.NewMailbox(func() {})
		c := heldState{conversations: map[string]int64{}}
		var sent []pubsub.Update
		steps := rapid.IntRange(1, 60).Draw(t, "steps")
		for range steps {
			switch rapid.SampledFrom([]string{"commit", "commit", "lose", "late", "deliver", "compare"}).Draw(t, "step") {
			case "commit":
				u := commit(t, db, history)
				sent = append(sent, u)
				m.Offer(&u)
			case "lose":
				sent = append(sent, commit(t, db, history))
			case "late":
				if len(sent) > 0 {
					u := rapid.SampledFrom(sent).Draw(t, "update")
					m.Offer(&u)
				}
			case "deliver":
				c.take(t, m, db, history)
			case "compare":
				before, now := m.Mark(), db.user("ann").Badge
				if rapid.Bool().Draw(t, "commits meanwhile") {
					u := commit(t, db, history)
					sent = append(sent, u)
					m.Offer(&u)
				}
				switch m.Compare(before, view.HoldingOf(&now), 0) {
				case view.Behind:
					m.Repair(view.HoldingOf(&now))
				case view.Denied:
					t.Fatalf("the comparison denied %+v", before)
				case view.UpToDate:
				}
			}
		}
		now := db.user("ann").Badge
		m.Repair(view.HoldingOf(&now))
		c.take(t, m, db, history)
		if newest := db.user("ann").Version; c.version != newest { // more may have been committed meanwhile
			t.Fatalf("after being compared the client holds version %d of %d", c.version, newest)
		}
		if d := m.Take(); d.Badge != nil || d.Sync {
			t.Fatalf("an up-to-date client has more pending: %+v", d)
		}
	})
}

func commit(t *rapid.T, db *tables, history map[int64]map[string]int64) pubsub.Update {
	before := db.user("ann").Version
	u := db.commit("ann", rapid.SampledFrom([]string{"c1", "c2", "c3"}).Draw(t, "conversation"), rapid.Int64Range(0, 9).Draw(t, "unread"))
	state := maps.Clone(history[before])
	for _, c := range u.Conversations {
		state[c.ConversationID] = c.Unread
	}
	history[u.Version] = state
	return u
}

// heldState is the state that a client holds.
type heldState struct {
	version       int64
	conversations map[string]int64
}

// take does what a session does with its mailbox. During a read of the tables, more changes may
// be committed and announced.
func (c *heldState) take(t *rapid.T, m *view.Mailbox, db *tables, history map[int64]map[string]int64) {
	d := m.Take()
	if d.Badge != nil {
		c.apply(t, *d.Badge, d.Conversations, history)
	}
	for d.Sync {
		m.Read()
		state, err := db.read(pubsub.Held{UserID: "ann", Epoch: db.epoch, Version: c.version})
		if err != nil {
			t.Fatal(err)
		}
		if rapid.IntRange(0, 2).Draw(t, "commits meanwhile") == 0 {
			u := commit(t, db, history)
			m.Offer(&u)
		}
		if state.Version > c.version {
			c.apply(t, state.Badge, state.Conversations, history)
		}
		d.Sync = !m.Synced(view.HoldingOf(&state.Badge), 0, nil)
	}
}

func (c *heldState) apply(t *rapid.T, b pubsub.Badge, conversations []pubsub.Conversation, history map[int64]map[string]int64) {
	if b.Version <= c.version {
		t.Fatalf("version %d came after version %d", b.Version, c.version)
	}
	c.version = b.Version
	for _, conv := range conversations {
		c.conversations[conv.ConversationID] = conv.Unread
	}
	if want := history[b.Version]; fmt.Sprint(want) != fmt.Sprint(c.conversations) {
		t.Fatalf("at version %d the client holds %v, the truth was %v", b.Version, c.conversations, want)
	}
	var total int64
	for _, unread := range c.conversations {
		total += unread
	}
	if total != b.Total {
		t.Fatalf("at version %d the total is %d, the parts add up to %d", b.Version, b.Total, total)
	}
}

// A client that does not read costs memory for each changed conversation, not for each change.
func TestMailboxMerges(t *testing.T) {
	db := newTables()
	m := view.NewMailbox(func() {})
	m.Synced(view.Holding{Epoch: "e1"}, 0, nil)
	for i := range int64(1000) {
		u := db.commit("ann", fmt.Sprintf("c%d", i%3), i)
		m.Offer(&u)
	}
	d := m.Take()
	if d.Sync || d.Badge == nil || d.Badge.Version != 1000 || len(d.Conversations) != 3 {
		t.Fatalf("took %+v", d)
	}
	for i, c := range d.Conversations {
		if want := int64(1000 - i); c.Version != want {
			t.Errorf("conversation %d is of version %d, want %d: most recent first", i, c.Version, want)
		}
	}
	if d := m.Take(); d.Badge != nil || len(d.Replies) != 0 {
		t.Errorf("took twice: %+v", d)
	}
}
