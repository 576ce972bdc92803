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
	// steps is a logical clock of this gateway. A read of the tables that began at a later
	// step includes everything that the bus had announced at an earlier step.
	steps atomic.Int64
	// gap is the step of the last gap of the bus.
	gap atomic.Int64

	mu sync.Mutex
	// due are the rooms whose newest state must still be sent to their members.
	due []*room
	// ready contains a token while due may contain rooms.
	ready chan struct{}
}

func newRooms(metrics *Metrics) rooms {
	return rooms{metrics: metrics, byAddress: map[pubsub.Address]*room{}, ready: make(chan struct{}, 1)}
}

// now begins a step and returns it.
func (r *rooms) now() int64 { return r.steps.Add(1) }

// room is a room in one partition that has members on this gateway.
type room struct {
	address pubsub.Address
	// The mutex of the hub guards seats, joined, leaving and since.
	seats []*seat
	// joined is closed, and set to nil, when Join has returned. since is the step at which
	// Join returned.
	joined chan struct{}
	since  int64
	// leaving is set while Leave runs, and closed afterwards.
	leaving chan struct{}

	mu sync.Mutex
	// latest is the newest state from the bus, or nil, and came is the step at which latest
	// arrived. base is the Changes of an earlier state: the bus has lost no update of the room
	// between that state and latest.
	latest *pubsub.RoomUpdate
	came   int64
	base   int64
	// read is a state from the tables, of epoch readEpoch, that members share to save memory.
	read      *pubsub.Room
	readEpoch string
	// dirty is set while latest must still be sent to the members, at the time next or later.
	// oldest is when the oldest change in latest was appended.
	dirty  bool
	next   time.Time
	oldest view.Moment
}

// seat is a member's entry in the list of a room's members.
type seat struct {
	member *member
	room   *room
	at     int // in room.seats
}

// share replaces the room's state in a membership that was read from the tables by an equal
// state in memory, to save memory. latest is a state from the bus that is newer than the
// tables and arrived after the read began, otherwise nil; base is the base of latest (see
// room). If a newer state had arrived before the read began, the tables would have it, unless
// it was forged. So share drops such a state.
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

// sameState reports whether two states of a room with the same epoch are equal. It also
// compares the counts of the closed chunks, the older messages of the room: chunks are closed
// and deleted without a change that members see.
func sameState(a, b *pubsub.Room) bool {
	return a.Changes == b.Changes && a.Since == b.Since &&
		a.ClosedLive == b.ClosedLive && a.ClosedAll == b.ClosedAll && a.ClosedChanges == b.ClosedChanges
}

// followRooms makes all members read their states again when their rooms move to another
// partition, since the members still have seats in the rooms of the old partition. It runs
// until ctx is done.
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

// watch gives a member a seat in each room of a state, and waits until the bus has
// acknowledged the subscriptions to these rooms. listening is true if all these subscriptions
// had begun before the state was read. It is also true if the bus does not acknowledge in
// time: then reconciliation has to find lost updates.
func (h *hub) watch(ctx context.Context, m *member, state *pubsub.Snapshot, began int64) (listening bool, err error) {
	listening = true
	var joining []*room
	var waits []<-chan struct{}
	partition := h.roomsOf(m.user.user.ID)
	h.mu.Lock()
	var stale []*seat // seats in rooms of the partition before a split
	for _, s := range m.seats {
		if s.room.address.Partition != partition {
			stale = append(stale, s)
		}
	}
	empty := m.rise(stale)
	for i := range state.Memberships {
		id := state.Memberships[i].Room.ConversationID
		address := pubsub.Address{ID: id, Partition: partition, Room: true}
		r := h.rooms.byAddress[address]
		switch {
		case r == nil:
			r = &room{address: address, joined: make(chan struct{})}
			h.rooms.byAddress[address] = r
			joining = append(joining, r)
		case r.leaving != nil: // a concurrent Join and Leave might take effect in either order
			waits = append(waits, r.leaving)
			continue
		case r.joined != nil:
			waits = append(waits, r.joined)
		}
		listening = listening && r.joined == nil && r.since < began
		m.sit(r)
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

// sit gives a member a seat in a room, unless it has one. The caller holds the mutex of the
// hub.
func (m *member) sit(r *room) {
	id := r.address.ID
	if m.seats[id] == nil {
		s := &seat{member: m, room: r, at: len(r.seats)}
		r.seats = append(r.seats, s)
		m.seats[id] = s
	}
}

// joinRooms subscribes to rooms, and returns when the bus has acknowledged them.
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

// unwatch removes the seats of a member in rooms that a state does not have, or all seats if
// state is nil. Then it ends the subscriptions to rooms that have no members left.
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
	empty := m.rise(gone)
	h.mu.Unlock()
	return h.leaveRooms(ctx, empty)
}

// rise removes seats of a member, and returns the rooms that have no seats left. The caller
// holds the mutex of the hub.
func (m *member) rise(seats []*seat) (empty []*room) {
	for _, s := range seats {
		r := s.room
		delete(m.seats, r.address.ID)
		last := len(r.seats) - 1
		r.seats[s.at] = r.seats[last]
		r.seats[s.at].at = s.at
		r.seats[last] = nil
		if r.seats = r.seats[:last]; last == 0 {
			r.leaving = make(chan struct{})
			empty = append(empty, r)
		}
	}
	return empty
}

// leaveRooms unsubscribes from rooms without members.
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
