package gateway

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/badged/badged/gateway/internal/view"
	"github.com/badged/badged/pubsub"
)

// rooms are the rooms with members on this gateway.
type rooms struct {
	metrics *Metrics
	// byAddress is guarded by the mutex of the hub.
	byAddress map[pubsub.Address]*room
	// steps is a logical clock of this gateway. It orders updates and reads of the tables: if
	// an update arrived at an earlier step than a read began, the result of the read includes
	// the state that the update announced.
	steps atomic.Int64
	// gap is the step of the last call of HandleGap.
	gap atomic.Int64

	mu sync.Mutex
	// due are the rooms whose newest state must be sent to their members now.
	due []*room
	// ready wakes hub.pass: it contains a value while due may contain rooms.
	ready chan struct{}
}

func newRooms(metrics *Metrics) rooms {
	return rooms{metrics: metrics, byAddress: map[pubsub.Address]*room{}, ready: make(chan struct{}, 1)}
}

// now advances the clock by one step and returns the new step.
func (r *rooms) now() int64 { return r.steps.Add(1) }

// room is a room in one partition that has members on this gateway.
type room struct {
	address pubsub.Address
	// The mutex of the hub guards seats, joined, leaving and since. seats are the room's
	// members on this gateway.
	seats []*seat
	// joined is nil, except while a call of Join for the room runs. It is then a channel that is
	// closed when the call returns. since is the step at which the call returned.
	joined chan struct{}
	since  int64
	// leaving is nil until Leave is called for the room. It is then a channel that is closed when
	// the call returns.
	leaving chan struct{}

	mu sync.Mutex
	// latest is the newest state from the bus, or nil. came is the step at which latest arrived.
	// base is the value of Changes in an earlier state of the room: the bus has lost no update of
	// the room between that state and latest.
	latest *pubsub.RoomUpdate
	came   int64
	base   int64
	// read is a state from the tables, of epoch readEpoch. Members whose state of the room is
	// equal share this copy, to save memory.
	read      *pubsub.Room
	readEpoch string
	// dirty is true while latest must still be sent to the members. latest is sent at the time
	// `next`, or later. oldest is the append time of the oldest change that was not sent yet.
	dirty  bool
	next   time.Time
	oldest view.DBTime
}

// seat is an entry in the list of a room's members.
type seat struct {
	member *member
	room   *room
	index  int // index in room.seats
}

// share is called with a membership that was read from the tables. If other members have an equal
// state of the room, share makes the membership use the same copy, to save memory. began is the
// step at which the read began. If the bus has delivered a newer state after this step, share
// returns that state as latest, together with room.base. Otherwise latest is nil.
//
// If a state arrived from the bus before the read began, the read must have returned it or a
// newer state, unless the state was forged. So if the read has returned an older state, share
// deletes the state from the bus.
func (r *room) share(m *view.Membership, epoch string, began int64) (latest *pubsub.RoomUpdate, base int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.latest == nil || r.latest.Epoch != epoch:
	case sameState(&r.latest.Room, m.Room):
		m.Room = &r.latest.Room
		return nil, 0
	case r.latest.Changes > m.Room.Changes && r.came >= began:
		return r.latest, r.base
	case r.latest.Changes > m.Room.Changes:
		r.latest = nil
	}
	if r.read == nil || r.readEpoch != epoch || !sameState(r.read, m.Room) {
		r.read, r.readEpoch = m.Room, epoch
	}
	m.Room = r.read
	return nil, 0
}

// sameState reports whether two states of a room with the same epoch are equal. It is not
// enough to compare Changes: when a chunk of older messages is closed or deleted, Changes stays
// the same, since members see no change, but the counts of closed chunks differ.
func sameState(a, b *pubsub.Room) bool {
	return a.Changes == b.Changes && a.Since == b.Since &&
		a.ClosedLive == b.ClosedLive && a.ClosedAll == b.ClosedAll && a.ClosedChanges == b.ClosedChanges
}

// followRooms runs until ctx is done. When the layout of partitions changes, such as after a
// split, the members on this gateway are still listed in the rooms of the old partition.
// followRooms then makes all accounts unknown, so that the sessions read the tables again.
// After this read the members are listed in the rooms of the new partition.
func (g *Gateway) followRooms(ctx context.Context) {
	for {
		moved := g.cfg.RoomsMoved()
		select {
		case <-ctx.Done():
			return
		case <-moved:
			g.hub.HandleGap()
		}
	}
}

// watch adds a member to the lists of members of all rooms in a state that was read from the
// tables. It subscribes to these rooms, and waits until the bus has acknowledged the
// subscriptions. began is the step at which the read began. listening is true if all
// subscriptions existed before the read began: then no update after the read is lost. listening
// is also true if the bus does not acknowledge in time: reconciliation then detects lost
// updates.
func (h *hub) watch(ctx context.Context, m *member, state *pubsub.Snapshot, began int64) (listening bool, err error) {
	listening = true
	var joining []*room
	var waits []<-chan struct{}
	partition := h.roomsOf(m.user.user.ID)
	h.mu.Lock()
	var stale []*seat // seats in rooms of the former partition, after a split
	for _, s := range m.seats {
		if s.room.address.Partition != partition {
			stale = append(stale, s)
		}
	}
	empty := m.leaveLists(stale)
	for i := range state.Memberships {
		id := state.Memberships[i].Room.ConversationID
		address := pubsub.Address{ID: id, Partition: partition, Room: true}
		r := h.rooms.byAddress[address]
		switch {
		case r == nil:
			r = &room{address: address, joined: make(chan struct{})}
			h.rooms.byAddress[address] = r
			joining = append(joining, r)
		case r.leaving != nil: // a concurrent Join and Leave could take effect in either order
			waits = append(waits, r.leaving)
			continue
		case r.joined != nil:
			waits = append(waits, r.joined)
		}
		listening = listening && r.joined == nil && r.since < began
		m.joinRoom(r)
	}
	h.rooms.metrics.rooms.Set(float64(len(h.rooms.byAddress)))
	h.mu.Unlock()

	err = h.leaveRooms(ctx, empty)
	if len(joining) > 0 {
		joined := h.joinRooms(ctx, joining)
		listening, err = joined != nil, errors.Join(err, joined)
	}
	for _, wait := range waits {
		if err := await(ctx, wait); err != nil {
			return true, err
		}
	}
	return listening && len(waits) == 0, err
}

// joinRoom adds a member to the list of members of a room, unless the list has the member already.
// The caller holds the mutex of the hub.
func (m *member) joinRoom(r *room) {
	id := r.address.ID
	if m.seats[id] == nil {
		s := &seat{member: m, room: r, index: len(r.seats)}
		r.seats = append(r.seats, s)
		m.seats[id] = s
	}
}

// joinRooms subscribes to rooms, and returns when the bus has acknowledged the subscriptions.
func (h *hub) joinRooms(ctx context.Context, joining []*room) error {
	addresses := make([]pubsub.Address, len(joining))
	for i, r := range joining {
		addresses[i] = r.address
	}
	err := h.subscription.Join(ctx, addresses...)
	h.mu.Lock()
	defer h.mu.Unlock()
	since := h.rooms.now()
	for _, r := range joining {
		close(r.joined)
		r.joined, r.since = nil, since
	}
	return err
}

// unwatch removes a member from the member lists of rooms: of all rooms that are not in
// state.Memberships or, if state is nil, of all rooms. Then it unsubscribes from rooms that
// have no members on this gateway any more.
func (h *hub) unwatch(ctx context.Context, m *member, state *pubsub.Snapshot) error {
	if m == nil {
		return nil
	}
	h.mu.Lock()
	var gone []*seat
	for id, s := range m.seats {
		if state != nil && slices.ContainsFunc(state.Memberships, func(m pubsub.Membership) bool { return m.Room.ConversationID == id }) ||
			s.room.joined != nil { // another session of the user is joining the room
			continue
		}
		gone = append(gone, s)
	}
	empty := m.leaveLists(gone)
	h.mu.Unlock()
	return h.leaveRooms(ctx, empty)
}

// leaveLists removes a member's entries (seats) from the lists of members of rooms. It returns
// the rooms whose lists are now empty. The caller holds the mutex of the hub.
func (m *member) leaveLists(seats []*seat) (empty []*room) {
	for _, s := range seats {
		r := s.room
		delete(m.seats, r.address.ID)
		last := len(r.seats) - 1
		r.seats[s.index] = r.seats[last]
		r.seats[s.index].index = s.index
		r.seats[last] = nil
		if r.seats = r.seats[:last]; last == 0 {
			r.leaving = make(chan struct{})
			empty = append(empty, r)
		}
	}
	return empty
}

// leaveRooms unsubscribes from rooms that have no members on this gateway, and deletes the
// rooms.
func (h *hub) leaveRooms(ctx context.Context, empty []*room) error {
	if len(empty) == 0 {
		return nil
	}
	addresses := make([]pubsub.Address, len(empty))
	for i, r := range empty {
		addresses[i] = r.address
	}
	err := h.subscription.Leave(ctx, addresses...)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range empty {
		delete(h.rooms.byAddress, r.address)
		close(r.leaving)
	}
	h.rooms.metrics.rooms.Set(float64(len(h.rooms.byAddress)))
	return err
}
