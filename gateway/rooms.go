package gateway

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/badged/badged/pubsub"
)

// rooms are the rooms with members here.
type rooms struct {
	metrics *Metrics
	// byAddress is guarded by the mutex of the hub.
	byAddress map[pubsub.Address]*room
	// steps orders what happens here: a read of the tables that began at a later
	// step includes what the bus had announced at an earlier one.
	steps atomic.Int64
	// gap is the step of the last gap of the bus.
	gap atomic.Int64

	mu sync.Mutex
	// due are rooms whose members have yet to get the newest state.
	due []*room
	// ready holds a token while due may hold some.
	ready chan struct{}
}

func newRooms(metrics *Metrics) rooms {
	return rooms{metrics: metrics, byAddress: map[pubsub.Address]*room{}, ready: make(chan struct{}, 1)}
}

// now begins a step and returns it.
func (r *rooms) now() int64 { return r.steps.Add(1) }

// room is a room in one partition with members here.
type room struct {
	address pubsub.Address
	// seats, joined, leaving and since are guarded by the mutex of the hub.
	seats []*seat
	// joined is closed when Join has returned, and nil from then on. since is the
	// step of that.
	joined chan struct{}
	since  int64
	// leaving is set while Leave runs, and closed after it.
	leaving chan struct{}

	mu sync.Mutex
	// latest is the newest state from the bus, nil if there is none, and came the
	// step at which it came. It has every change since the state with base changes:
	// no update in between was lost.
	latest *pubsub.RoomUpdate
	came   int64
	base   int64
	// read is a state from the tables that members share, of epoch readEpoch.
	read      *pubsub.Room
	readEpoch string
	// dirty is set while members have yet to get latest, at next at the earliest.
	// oldest is when the oldest change in it was appended.
	dirty  bool
	next   time.Time
	oldest moment
}

// seat is a member's place in a room.
type seat struct {
	member *member
	room   *room
	at     int // in room.seats
}

// member is a user with sessions here who has memberships, or may have some.
type member struct {
	user *interest
	// seats are by room. They may include rooms that the user has left. Guarded by
	// the mutex of the hub.
	seats map[string]*seat

	// mu is locked after that of the hub and before those of mailboxes.
	mu sync.Mutex
	// account is nil while it is unknown. Then mailboxes are syncing, or will be.
	account *account
	// applied is the last step at which an update changed the account.
	applied int64
	// announced is what updates had while the account was unknown.
	announced announced
}

// announced is what the tables must have, unless it was forged.
type announced struct {
	step  int64 // of the last announcement
	epoch string
	// version is that without memberships.
	version int64
	// changes of rooms, by conversation.
	changes map[string]int64
}

func (a *announced) add(u *pubsub.Update, step int64) {
	if a.epoch != u.Epoch {
		*a = announced{epoch: u.Epoch}
	}
	a.step, a.version = step, max(a.version, u.Version)
	for i := range u.Memberships {
		room := u.Memberships[i].Room
		if a.changes == nil {
			a.changes = map[string]int64{}
		}
		a.changes[room.ConversationID] = max(a.changes[room.ConversationID], room.Changes)
	}
}

// in reports whether a state read from the tables has all that was announced since
// the read began.
func (a *announced) in(s *pubsub.Snapshot, began int64) bool {
	switch {
	case a.step < began:
		return true
	case a.epoch != s.Epoch || a.version > restOf(s).Version:
		return false
	}
	for i := range s.Memberships {
		room := s.Memberships[i].Room
		if a.changes[room.ConversationID] > room.Changes {
			return false
		}
	}
	return true
}

// memberOf returns the member for a user, and makes one if needed.
func (h *hub) memberOf(in *interest) *member {
	h.mu.Lock()
	defer h.mu.Unlock()
	if in.member == nil {
		in.member = &member{user: in, seats: map[string]*seat{}}
	}
	return in.member
}

// update applies an update of the user that came at a step. The caller holds the
// mutex of the hub.
func (m *member) update(u *pubsub.Update, step int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.account == nil {
		m.announced.add(u, step)
		m.lose(moment(u.AppendedAt), nil)
		return
	}
	result, merged := m.account.update(u)
	m.take(result, merged, moment(u.AppendedAt), step)
	if result == missed {
		m.announced.add(u, step)
	}
}

// take offers an update of the account to the sessions, or makes them sync.
func (m *member) take(result outcome, merged *pubsub.Update, since moment, step int64) {
	switch result {
	case known:
	case applied:
		m.applied = max(m.applied, step)
		if merged.Version > merged.BaseVersion {
			m.user.offer(merged)
		}
	case missed:
		m.drop(step)
		m.lose(since, nil)
	}
}

// drop makes the account unknown. The tables must have all that it had.
func (m *member) drop(step int64) {
	a := m.account
	m.account = nil
	m.announced = announced{step: max(step, m.applied), epoch: a.rest.Epoch, version: a.rest.Version, changes: make(map[string]int64, len(a.memberships))}
	for id, entry := range a.memberships {
		m.announced.changes[id] = entry.Room.Changes
	}
}

// forget makes the account unknown.
func (m *member) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account = nil
}

// renew makes the sessions sync if the account is unknown.
func (m *member) renew() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.account == nil {
		m.lose(0, nil)
	}
}

// lose makes the sessions sync, except for one.
func (m *member) lose(since moment, except *session) {
	for _, s := range m.user.sessions {
		if s != except {
			s.mailbox.lose(since)
		}
	}
}

// follow applies the newest state of a room.
func (m *member) follow(n *news) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.account == nil {
		return // load will
	}
	result, merged := m.account.follow(n.latest, n.base)
	if result == applied {
		merged.AppendedAt = int64(n.since)
	}
	if result == missed {
		n.missed++
	}
	m.take(result, merged, n.since, n.step)
}

// settle takes over the state that a session was sent, from a read of the tables
// that began at a step. It returns false if the tables must be read again: they have
// changed since, or the bus has just begun to listen for a room. whole says that the
// tables deny what was known before. The error is that of the bus.
func (h *hub) settle(ctx context.Context, s *session, state *pubsub.Snapshot, began int64, whole bool, at moment) (settled bool, err error) {
	h.mu.RLock()
	in := h.users[s.userID]
	if in.member == nil && len(state.Memberships) == 0 {
		defer h.mu.RUnlock()
		return s.mailbox.synced(holdingOf(&state.Badge), at, nil), nil
	}
	h.mu.RUnlock()
	m := h.memberOf(in)
	listening, err := h.watch(ctx, m, state, began)
	if !listening {
		return false, err
	}
	err = errors.Join(err, h.unwatch(ctx, m, state))

	h.mu.RLock()
	settled = h.rooms.gap.Load() < began && m.settle(s, state, began, whole, at)
	h.mu.RUnlock()
	if settled && len(state.Memberships) == 0 {
		h.dismiss(m)
	}
	return settled, err
}

// dismiss forgets that a user is a member, if the user is none.
func (h *hub) dismiss(m *member) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.account != nil && len(m.account.memberships) == 0 && len(m.seats) == 0 {
		m.user.member = nil
	}
}

// settle is hub.settle once the bus listens. The caller holds the mutex of the hub.
func (m *member) settle(s *session, state *pubsub.Snapshot, began int64, whole bool, at moment) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.announced.in(state, began) {
		return false
	}
	ahead, ok := m.load(s, state, began, whole)
	return ok && s.mailbox.synced(holdingOf(&state.Badge), at, ahead)
}

// load brings the account up to a state read from the tables for a session. ahead is
// what the account has and the state lacks. It returns false if the tables must be
// read again.
func (m *member) load(s *session, state *pubsub.Snapshot, began int64, whole bool) (ahead *pubsub.Update, ok bool) {
	if m.account == nil || m.account.rest.Epoch != state.Epoch {
		return m.replace(s, state, began)
	}
	overtaken := m.account.ahead(state)
	if overtaken && m.applied < began {
		whole = true // what the account has was forged, or Postgres has lost it
	}
	switch {
	case whole && overtaken && m.applied >= began:
		return nil, false // the newer part may be true
	case whole:
		return m.replace(s, state, began)
	}
	news, ahead, ok := m.account.merge(state)
	switch {
	case ok && news != nil:
		m.user.offer(news)
	case !ok && overtaken:
		return nil, false
	case !ok:
		return m.replace(s, state, began)
	}
	return ahead, true
}

// replace makes an account from a state read from the tables for a session, and
// from states of rooms that came since. Other sessions may lack more than these, and
// sync.
func (m *member) replace(s *session, state *pubsub.Snapshot, began int64) (ahead *pubsub.Update, ok bool) {
	m.account = newAccount(state)
	m.announced = announced{}
	m.lose(0, s)
	var newer []*membership
	for id, entry := range m.account.memberships {
		seat := m.seats[id]
		if seat == nil {
			continue
		}
		latest, base := seat.room.share(entry, state.Epoch, began)
		if latest == nil {
			continue
		}
		switch result, _ := m.account.follow(latest, base); result {
		case known:
		case applied:
			newer = append(newer, entry)
		case missed:
			m.drop(began)
			return nil, false
		}
	}
	if len(newer) > 0 {
		ahead = m.account.since(state.Version, newer)
	}
	return ahead, true
}

// share makes a membership, read from the tables, use the state of the room that
// others use, if that is equal. It returns the newest state from the bus if that came
// after the read began: the tables have an earlier one, or it was forged.
func (r *room) share(m *membership, epoch string, began int64) (latest *pubsub.RoomUpdate, base int64) {
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

// sameState reports whether two states of a room in an epoch are equal. Chunks may be
// closed, or go, without a change that members see.
func sameState(a, b *pubsub.Room) bool {
	return a.Changes == b.Changes && a.Since == b.Since &&
		a.ClosedLive == b.ClosedLive && a.ClosedAll == b.ClosedAll && a.ClosedChanges == b.ClosedChanges
}

// watch gives a member a seat in each room of a state, and returns when the bus has
// acknowledged these. listening is set if it had before the state was read, or if it
// does not in time: then reconciliation finds what is lost.
func (h *hub) watch(ctx context.Context, m *member, state *pubsub.Snapshot, began int64) (listening bool, err error) {
	listening = true
	var joining []*room
	var waits []<-chan struct{}
	h.mu.Lock()
	for i := range state.Memberships {
		id := state.Memberships[i].Room.ConversationID
		address := pubsub.Address{ID: id, Partition: m.user.user.Partition, Room: true}
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

	if len(joining) > 0 {
		err = h.joinRooms(ctx, joining)
		listening = err != nil
	}
	for _, wait := range waits {
		if err := await(ctx, wait); err != nil {
			return true, err
		}
	}
	return listening && len(waits) == 0, err
}

// sit gives a member a seat in a room. The caller holds the mutex of the hub.
func (m *member) sit(r *room) {
	id := r.address.ID
	if m.seats[id] == nil {
		s := &seat{member: m, room: r, at: len(r.seats)}
		r.seats = append(r.seats, s)
		m.seats[id] = s
	}
}

// joinRooms returns when the bus has acknowledged rooms.
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

// unwatch takes the seats of a member that are not in rooms of a state; all without
// a state. Rooms without members are left on the bus.
func (h *hub) unwatch(ctx context.Context, m *member, state *pubsub.Snapshot) error {
	if m == nil {
		return nil
	}
	h.mu.Lock()
	var empty []*room
	var addresses []pubsub.Address
	for id, s := range m.seats {
		r := s.room
		if state != nil && slices.ContainsFunc(state.Memberships, func(m pubsub.Membership) bool { return m.Room.ConversationID == id }) ||
			r.joined != nil { // another session of the user joins it
			continue
		}
		delete(m.seats, id)
		last := len(r.seats) - 1
		r.seats[s.at] = r.seats[last]
		r.seats[s.at].at = s.at
		r.seats[last] = nil
		if r.seats = r.seats[:last]; last == 0 {
			r.leaving = make(chan struct{})
			empty, addresses = append(empty, r), append(addresses, r.address)
		}
	}
	h.mu.Unlock()
	if len(empty) == 0 {
		return nil
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
