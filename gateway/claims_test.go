package gateway

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/gateway/internal/view"
	"github.com/badged/badged/gateway/internal/workers"
	"github.com/badged/badged/pubsub"
)

// stateOfHall returns a state of a room with messages up to a seq; each message is one change.
func stateOfHall(last int64) *pubsub.RoomUpdate {
	return &pubsub.RoomUpdate{Epoch: "e1", BaseChanges: last - 1, Room: pubsub.Room{
		ConversationID: "hall", Changes: last, LastSeq: last, Category: "chat", Live: pubsub.Seqs{{First: 1, Last: last}},
	}}
}

// A read that was ahead of a room is appended again when the room has the message that the read
// names: not earlier, not twice, not after a minute, and not if the message is read by then.
func TestReadsAheadOfARoomAreRepeated(t *testing.T) {
	follow := func(last int64) func(*member) {
		return func(m *member) { m.follow(&roomNews{latest: stateOfHall(last), base: 10}) }
	}
	claimed := func(upTo int64) func(*member) { return func(m *member) { m.claim("hall", upTo) } }
	for name, tc := range map[string]struct {
		steps []func(*member)
		want  []repeatedRead
	}{
		"when it comes":           {[]func(*member){claimed(12), follow(11), follow(12)}, []repeatedRead{{"hall", 12}}},
		"behind a later one":      {[]func(*member){claimed(11), follow(12)}, []repeatedRead{{"hall", 11}}},
		"once":                    {[]func(*member){claimed(11), follow(11), follow(12)}, []repeatedRead{{"hall", 11}}},
		"not before":              {[]func(*member){claimed(12), follow(11)}, nil},
		"the furthest of several": {[]func(*member){claimed(12), claimed(11), follow(12)}, []repeatedRead{{"hall", 12}}},
		"not if it is there":      {[]func(*member){claimed(10), follow(11)}, nil},
		"while the room is unknown": {[]func(*member){func(m *member) {
			account := m.account
			m.account = nil
			m.claim("hall", 11)
			m.claim("no room", 11)
			m.account = account
		}, follow(11)}, []repeatedRead{{"hall", 11}}},
		"not of another room": {[]func(*member){func(m *member) { m.claim("elsewhere", 11) }, follow(11)}, nil},
		"not after a minute": {[]func(*member){claimed(11), func(m *member) {
			m.claims["hall"] = claim{11, time.Now().Add(-time.Nanosecond)}
		}, follow(11)}, nil},
		"not if the fold has read it": {[]func(*member){claimed(11), func(m *member) {
			m.update(&pubsub.Update{Badge: pubsub.Badge{UserID: "ann", Epoch: "e1", Version: 2}, BaseVersion: 1, Memberships: []pubsub.Membership{
				{ReadSeq: 11, Level: "all", Room: &stateOfHall(11).Room},
			}}, 1)
		}, follow(12)}, nil},
		"not after leaving": {[]func(*member){claimed(11), func(m *member) {
			m.update(&pubsub.Update{Badge: pubsub.Badge{UserID: "ann", Epoch: "e1", Version: 2}, BaseVersion: 1, Conversations: []pubsub.Conversation{
				{ConversationID: "hall", Left: true, Version: 2},
			}}, 1)
		}, follow(11)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := &Gateway{metrics: NewMetrics(nil), pool: new(workers.Pool)}
			s := newSession(g) // its worker has not begun
			state := pubsub.Snapshot{Badge: pubsub.Badge{UserID: "ann", Epoch: "e1", Version: 11, Categories: map[string]pubsub.Numbers{}}}
			state.Rest = pubsub.Badge{UserID: "ann", Epoch: "e1", Version: 1, Categories: map[string]pubsub.Numbers{}}
			state.Memberships = []pubsub.Membership{{Level: "all", ReadSeq: 5, Room: &stateOfHall(10).Room}}
			m := &member{user: &interest{sessions: []*session{s}}, account: view.NewAccount(&state)}
			s.mailbox.Synced(view.HoldingOf(&state.Badge), 0, nil)
			for _, step := range tc.steps {
				step(m)
			}
			if diff := cmp.Diff(tc.want, s.reads, cmp.AllowUnexported(repeatedRead{})); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// Reads that are ahead of rooms are remembered of few rooms.
func TestReadsAheadOfRoomsAreBounded(t *testing.T) {
	m := &member{user: &interest{}, account: &view.Account{Memberships: map[string]*view.Membership{}}}
	for i := range 2 * maxClaims {
		id := string(rune('a' + i))
		m.account.Memberships[id] = &view.Membership{Membership: pubsub.Membership{Room: &pubsub.Room{ConversationID: id}}}
		m.claim(id, 1)
	}
	if len(m.claims) != maxClaims {
		t.Errorf("%d claims, want %d", len(m.claims), maxClaims)
	}
}
