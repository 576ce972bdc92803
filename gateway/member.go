package gateway

import (
	"context"
	"errors"
	"sync"

	"github.com/badged/badged/gateway/internal/view"
	"github.com/badged/badged/pubsub"
)

// member is a user with sessions here who has memberships, or may have some.
type member struct {
	user *interest
	// seats are by room. They may include rooms that the user has left. Guarded by
	// the mutex of the hub.
	seats map[string]*seat

	// mu is locked after that of the hub and before those of mailboxes.
	mu sync.Mutex
	// account is nil while it is unknown. Then mailboxes are syncing, or will be.
	account *view.Account
	// applied is the last step at which an update changed the account.
	applied int64
	// announced is what updates had while the account was unknown.
	announced announced
	// claims are reads by the user's apps that are ahead of rooms, by conversation;
	// usually nil.
	claims map[string]claim
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
	case a.epoch != s.Epoch || a.version > view.RestOf(s).Version:
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
		m.lose(view.Moment(u.AppendedAt), nil)
		return
	}
	result, merged := m.account.Update(u)
	m.take(result, merged, view.Moment(u.AppendedAt), step)
	if result == view.Missed {
		m.announced.add(u, step)
	}
}

// take offers an update of the account to the sessions, or makes them sync.
func (m *member) take(result view.Outcome, merged *pubsub.Update, since view.Moment, step int64) {
	switch result {
	case view.Known:
	case view.Applied:
		m.applied = max(m.applied, step)
		if merged.Version > merged.BaseVersion {
			m.user.offer(merged)
		}
		m.honour()
	case view.Missed:
		m.drop(step)
		m.lose(since, nil)
	}
}

// drop makes the account unknown. The tables must have all that it had.
func (m *member) drop(step int64) {
	a := m.account
	m.account = nil
	m.announced = announced{step: max(step, m.applied), epoch: a.Rest.Epoch, version: a.Rest.Version, changes: make(map[string]int64, len(a.Memberships))}
	for id, entry := range a.Memberships {
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
func (m *member) lose(since view.Moment, except *session) {
	for _, s := range m.user.sessions {
		if s != except {
			s.mailbox.Lose(since)
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
	result, merged := m.account.Follow(n.latest, n.base)
	if result == view.Applied {
		merged.AppendedAt = int64(n.since)
	}
	if result == view.Missed {
		n.missed++
	}
	m.take(result, merged, n.since, n.step)
}

// settle takes over the state that a session was sent, from a read of the tables
// that began at a step. It returns false if the tables must be read again: they have
// changed since, or the bus has just begun to listen for a room. whole says that the
// tables deny what was known before. The error is that of the bus.
func (h *hub) settle(ctx context.Context, s *session, state *pubsub.Snapshot, began int64, whole bool, at view.Moment) (settled bool, err error) {
	h.mu.RLock()
	in := h.users[s.userID]
	if in.member == nil && len(state.Memberships) == 0 {
		defer h.mu.RUnlock()
		return s.mailbox.Synced(view.HoldingOf(&state.Badge), at, nil), nil
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
	if m.account != nil && len(m.account.Memberships) == 0 && len(m.seats) == 0 {
		m.user.member = nil
	}
}

// settle is hub.settle once the bus listens. The caller holds the mutex of the hub.
func (m *member) settle(s *session, state *pubsub.Snapshot, began int64, whole bool, at view.Moment) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.announced.in(state, began) {
		return false
	}
	ahead, ok := m.load(s, state, began, whole)
	if ok {
		m.honour()
	}
	return ok && s.mailbox.Synced(view.HoldingOf(&state.Badge), at, ahead)
}

// load brings the account up to a state read from the tables for a session. ahead is
// what the account has and the state lacks. It returns false if the tables must be
// read again.
func (m *member) load(s *session, state *pubsub.Snapshot, began int64, whole bool) (ahead *pubsub.Update, ok bool) {
	if m.account == nil || m.account.Rest.Epoch != state.Epoch {
		return m.replace(s, state, began)
	}
	overtaken := m.account.Ahead(state)
	if overtaken && m.applied < began {
		whole = true // what the account has was forged, or Postgres has lost it
	}
	switch {
	case whole && overtaken && m.applied >= began:
		return nil, false // the newer part may be true
	case whole:
		return m.replace(s, state, began)
	}
	news, ahead, ok := m.account.Merge(state)
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
	m.account = view.NewAccount(state)
	m.announced = announced{}
	m.lose(0, s)
	var newer []*view.Membership
	for id, entry := range m.account.Memberships {
		seat := m.seats[id]
		if seat == nil {
			continue
		}
		latest, base := seat.room.share(entry, state.Epoch, began)
		if latest == nil {
			continue
		}
		switch result, _ := m.account.Follow(latest, base); result {
		case view.Known:
		case view.Applied:
			newer = append(newer, entry)
		case view.Missed:
			m.drop(began)
			return nil, false
		}
	}
	if len(newer) > 0 {
		ahead = m.account.Since(state.Version, newer)
	}
	return ahead, true
}
