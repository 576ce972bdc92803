package gateway

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/gateway/internal/view"
	"github.com/badged/badged/gateway/internal/workers"
	"github.com/badged/badged/pubsub"
)

// lobby returns a room with the given number of changes, each a message. The messages up to
// `since` are in closed chunks.
func lobby(changes, since int64) *pubsub.Room {
	r := &pubsub.Room{ConversationID: "lobby", Changes: changes, LastSeq: changes, Category: "chat", Since: since, ClosedLive: since}
	if changes > since {
		r.Live = pubsub.Seqs{{First: since + 1, Last: changes}}
	}
	return r
}

// inLobby returns the state, read from the tables, of a user who has read no message of the
// lobby.
func inLobby(room *pubsub.Room) *pubsub.Snapshot {
	m := pubsub.Membership{Level: "default", Room: room}
	if room.Since > 0 {
		m.Behind = &pubsub.Behind{Live: room.ClosedLive, First: 1}
	}
	rest := pubsub.Badge{UserID: "ann", Epoch: "e1", Version: 1, Categories: map[string]pubsub.Numbers{}}
	s := &pubsub.Snapshot{Badge: rest, Rest: rest, Memberships: []pubsub.Membership{m}}
	s.Version += room.Changes
	s.Total = room.Changes
	return s
}

func updateOf(room *pubsub.Room, base int64) *pubsub.RoomUpdate {
	return &pubsub.RoomUpdate{Room: *room, Epoch: "e1", Partition: 3, BaseChanges: base}
}

// An account follows a room, and knows when it cannot.
func TestAccountFollowsItsRoom(t *testing.T) {
	closedToo := lobby(12, 5)
	closedToo.ClosedChanges++
	unknownFirst := inLobby(lobby(10, 5))
	unknownFirst.Memberships[0].Behind = &pubsub.Behind{}
	for name, tc := range map[string]struct {
		state  *pubsub.Snapshot
		update *pubsub.RoomUpdate
		base   int64 // of the chain that the update ends
		want   view.Outcome
		total  int64
	}{
		"the next change":                           {inLobby(lobby(10, 0)), updateOf(lobby(11, 0), 10), 10, view.Applied, 11},
		"the same change again":                     {inLobby(lobby(10, 0)), updateOf(lobby(10, 0), 9), 9, view.Known, 10},
		"an earlier change":                         {inLobby(lobby(10, 0)), updateOf(lobby(8, 0), 7), 7, view.Known, 10},
		"several changes at once":                   {inLobby(lobby(10, 0)), updateOf(lobby(15, 0), 14), 8, view.Applied, 15},
		"a change after one that was lost":          {inLobby(lobby(10, 0)), updateOf(lobby(12, 0), 11), 11, view.Missed, 0},
		"another epoch":                             {inLobby(lobby(10, 0)), &pubsub.RoomUpdate{Room: *lobby(11, 0), Epoch: "e2", BaseChanges: 10}, 10, view.Missed, 0},
		"a change above closed chunks":              {inLobby(lobby(10, 5)), updateOf(lobby(12, 5), 11), 10, view.Applied, 12},
		"a change in closed chunks":                 {inLobby(lobby(10, 5)), updateOf(closedToo, 11), 10, view.Missed, 0},
		"a chunk that closes further up":            {inLobby(lobby(10, 5)), updateOf(lobby(12, 9), 11), 10, view.Applied, 12},
		"a chunk that closes over the read pos":     {inLobby(lobby(10, 0)), updateOf(lobby(12, 9), 11), 10, view.Missed, 0},
		"a chunk that may have the first one":       {unknownFirst, updateOf(lobby(12, 9), 11), 10, view.Missed, 0},
		"a room that the user is no longer part of": {&pubsub.Snapshot{Badge: pubsub.Badge{Epoch: "e1"}}, updateOf(lobby(12, 0), 11), 10, view.Known, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := view.NewAccount(tc.state)
			got, update := a.Follow(tc.update, tc.base)
			if got != tc.want {
				t.Fatalf("outcome %d, want %d", got, tc.want)
			}
			if got == view.Missed {
				return
			}
			if a.Badge.Total != tc.total {
				t.Errorf("the badge is %+v, want %d", a.Badge, tc.total)
			}
			if got == view.Applied && (update.Total != tc.total || update.Categories["chat"].Total != tc.total || update.BaseVersion != tc.state.Version || update.Conversations[0].Unread != tc.total) {
				t.Errorf("clients get %+v", update)
			}
		})
	}
}

// The account of a user with many categories computes the changed categories, of the rest and of
// the rooms. If it cannot compute them, the tables are read.
func TestAccountOfManyCategories(t *testing.T) {
	name := func(i int) string { return fmt.Sprintf("project-%03d", i) }
	two := pubsub.Numbers{Total: 2, UnreadConversations: 1, Unseen: 2}
	room := lobby(10, 0)
	for _, tc := range []struct {
		of    string
		known bool
	}{{"a first category", true}, {name(300), true}, {"the last/one", false}} {
		room.Category = "chat"
		state := inLobby(room)
		state.Rest = pubsub.Badge{UserID: "ann", Epoch: "e1", Version: 1, Categories: map[string]pubsub.Numbers{"chat": {}}}
		for i := range 600 {
			state.Rest.Categories[name(i)] = two
			state.Rest.Add(two)
		}
		a := view.NewAccount(state)
		next := *lobby(11, 0)
		next.Category = tc.of
		outcome, got := a.Follow(updateOf(&next, 10), 10)
		if !tc.known {
			if outcome != view.Missed {
				t.Errorf("of a room in %s the account has %d, %+v", tc.of, outcome, got)
			}
			continue
		}
		want := map[string]pubsub.Numbers{"chat": {}}
		n := state.Rest.Categories[tc.of]
		n.Add(pubsub.Numbers{Total: 11, UnreadConversations: 1, Unseen: 11})
		want[tc.of] = n
		if diff := cmp.Diff(want, got.Categories); outcome != view.Applied || diff != "" || got.Total != 1211 {
			t.Errorf("room in %q, total %d (-want +got):\n%s", tc.of, got.Total, diff)
		}
	}
}

// quietBus is a subscription that acknowledges everything.
type quietBus struct{}

func (quietBus) Join(context.Context, ...pubsub.Address) error  { return nil }
func (quietBus) Leave(context.Context, ...pubsub.Address) error { return nil }
func (quietBus) Close() error                                   { return nil }

// An account is read from the tables again until the hub had subscribed to all rooms before the
// read. A gap of the bus makes accounts unknown: the next state of a room would be wrong for a
// sender whose own update was lost.
func TestAccountsAreReadAgain(t *testing.T) {
	h := newHub(&Config{Metrics: NewMetrics(nil), RoomsOf: inThree}, new(workers.Pool))
	h.subscription = quietBus{}
	s := &session{userID: "ann", mailbox: view.NewMailbox(func() {})}
	if err := h.join(t.Context(), s, pubsub.Address{ID: "ann", Partition: 3}); err != nil {
		t.Fatal(err)
	}
	read := func(want bool) {
		t.Helper()
		began := h.rooms.now()
		s.mailbox.Read()
		settled, err := h.settle(t.Context(), s, inLobby(lobby(10, 0)), began, false, 0)
		if settled != want || err != nil {
			t.Fatalf("a read of the tables counts: %v, %v, want %v", settled, err, want)
		}
	}
	post := func(changes int64) {
		h.HandleRoom(updateOf(lobby(changes, 0), changes-1))
		h.tell(h.rooms.byAddress[pubsub.Address{ID: "lobby", Partition: 3, Room: true}], nil)
	}
	read(false) // the bus has just begun to listen
	read(true)
	post(11)
	if d := s.mailbox.Take(); d.Badge == nil || d.Badge.Total != 11 || d.Sync {
		t.Fatalf("after a message the client gets %+v", d)
	}
	h.HandleGap()
	post(12)
	if d := s.mailbox.Take(); d.Badge != nil {
		t.Errorf("after a gap the client gets %+v without a read", d.Badge)
	}
	h.renew([]string{"ann"})
	if d := s.mailbox.Take(); !d.Sync {
		t.Error("after a gap the tables are not read")
	}
}

// addressBus notes the addresses that are joined.
type addressBus struct {
	quietBus
	joined map[pubsub.Address]bool
}

func (b addressBus) Join(_ context.Context, addresses ...pubsub.Address) error {
	for _, a := range addresses {
		b.joined[a] = true
	}
	return nil
}

func (b addressBus) Leave(_ context.Context, addresses ...pubsub.Address) error {
	for _, a := range addresses {
		delete(b.joined, a)
	}
	return nil
}

// After a split of the user's partition, the hub subscribes to the room in the new partition of
// the user, and no longer in the old partition.
func TestMembersFollowASplit(t *testing.T) {
	partition := 3
	h := newHub(&Config{Metrics: NewMetrics(nil), RoomsOf: func(string) int { return partition }}, new(workers.Pool))
	bus := addressBus{joined: map[pubsub.Address]bool{}}
	h.subscription = bus
	s := &session{userID: "ann", mailbox: view.NewMailbox(func() {})}
	if err := h.join(t.Context(), s, pubsub.Address{ID: "ann", Partition: 3}); err != nil {
		t.Fatal(err)
	}
	read := func() {
		t.Helper()
		for settled := false; !settled; {
			began := h.rooms.now()
			s.mailbox.Read()
			var err error
			if settled, err = h.settle(t.Context(), s, inLobby(lobby(10, 0)), began, false, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	read()
	old := pubsub.Address{ID: "lobby", Partition: 3, Room: true}
	if !bus.joined[old] {
		t.Fatalf("joined are %v", bus.joined)
	}
	partition = 19
	h.HandleGap()
	read()
	next := pubsub.Address{ID: "lobby", Partition: 19, Room: true}
	if !bus.joined[next] || bus.joined[old] || len(h.rooms.byAddress) != 1 {
		t.Fatalf("after the split joined are %v, and rooms %v", bus.joined, h.rooms.byAddress)
	}
	u := updateOf(lobby(11, 0), 10)
	u.Partition = 19
	h.HandleRoom(u)
	h.tell(h.rooms.byAddress[next], nil)
	if d := s.mailbox.Take(); d.Badge == nil || d.Badge.Total != 11 {
		t.Errorf("after a message the client gets %+v", d)
	}
}
