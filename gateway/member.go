package gateway

import (
	"context"
	"errors"
	"sync"

	"github.com/badged/badged/gateway/internal/view"
	"github.com/badged/badged/pubsub"
)

// member is a user who has sessions on this gateway and who is, or may be, a member of rooms.
type member struct {
	user *interest
	// seats are the user's entries in the member lists of rooms, by conversation id. They may
	// include rooms that the user has left. The mutex of the hub guards them.
	seats map[string]*seat

	// mu is locked after the mutex of the hub and before the mutexes of mailboxes.
	mu sync.Mutex
	// account is nil while it is unknown. The mailboxes of the user's sessions then wait for a
	// read of the tables (they are syncing), or begin to sync at the user's next update or
	// reconciliation.
	account *view.Account
	// applied is the step (see rooms.steps) at which the last update that changed the account
	// arrived.
	applied int64
	// announced is the newest state that updates have announced while the account is unknown.
	announced announced
	// claims are the user's reads up to messages that the rooms do not have yet, by
	// conversation; usually nil. See claims.go.
	claims map[string]claim
}

// announced describes the newest state that updates from the bus have announced. The tables
// have this state or a newer state, unless an update was forged or Postgres has lost a commit.
type announced struct {
	step  int64 // when the last update arrived, see rooms.steps
	epoch string
	// version is the user's version without the changes of rooms (see pubsub.Membership).
	version int64
	// changes has Room.Changes of each announced membership, by conversation.
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

// includedIn reports whether the state s, which was read from the tables, includes the announced
// state. began is the step at which the read began. If the last announcement arrived before this
// step, includedIn returns true without comparing: the announced state was then in the tables, or
// it was forged.
func (a *announced) includedIn(s *pubsub.Snapshot, began int64) bool {
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

// memberOf returns the member of a user, and creates it if it does not exist.
func (h *hub) memberOf(in *interest) *member {
	h.mu.Lock()
	defer h.mu.Unlock()
	if in.member == nil {
		in.member = &member{user: in, seats: map[string]*seat{}}
	}
	return in.member
}

// update applies an update of the user to the account. step is when the update arrived (see
// rooms.steps). The caller holds the mutex of the hub.
func (m *member) update(u *pubsub.Update, step int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.account == nil {
		m.announced.add(u, step)
		m.lose(view.DBTime(u.AppendedAt), nil)
		return
	}
	result, merged := m.account.Update(u)
	m.take(result, merged, view.DBTime(u.AppendedAt), step)
	if result == view.Missed {
		m.announced.add(u, step)
	}
}

// take handles the result of Account.Update or Account.Follow. If the update was applied, take
// adds the merged update to the mailboxes of the user's sessions. If an earlier update was
// missed, it makes the sessions sync. since is when the oldest change of the update was
// appended, and step is when the update arrived (see rooms.steps).
func (m *member) take(result view.Outcome, merged *pubsub.Update, since view.DBTime, step int64) {
	switch result {
	case view.Known:
	case view.Applied:
		m.applied = max(m.applied, step)
		if merged.Version > merged.BaseVersion {
			m.user.offer(merged)
		}
		m.repeatReadyReads()
	case view.Missed:
		m.drop(step)
		m.lose(since, nil)
	}
}

// drop makes the account unknown, because an update that arrived at the given step cannot be
// applied. It records the account's former state as announced. So if a read of the tables began
// at this step or earlier, the result of the read is used only if it includes the former state.
func (m *member) drop(step int64) {
	a := m.account
	m.account = nil
	m.announced = announced{step: max(step, m.applied), epoch: a.Rest.Epoch, version: a.Rest.Version, changes: make(map[string]int64, len(a.Memberships))}
	for id, entry := range a.Memberships {
		m.announced.changes[id] = entry.Room.Changes
	}
}

func (m *member) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account = nil
}

func (m *member) renew() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.account == nil {
		m.lose(0, nil)
	}
}

// lose makes all sessions of the user sync, that is, read the tables again, except for the
// session `except`. since is the append time of the oldest change that the sessions lack; 0 if
// unknown.
func (m *member) lose(since view.DBTime, except *session) {
	for _, s := range m.user.sessions {
		if s != except {
			s.mailbox.Lose(since)
		}
	}
}

// follow applies the newest state of a room to the account, and adds the change to the
// mailboxes of the user's sessions.
func (m *member) follow(n *roomNews) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.account == nil {
		return // replace will apply the state
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

// settle updates the account of a user after a session was sent a state that was read from the
// tables. It also updates the session's mailbox. `began` is the step (see rooms.steps), and
// `readAt` the time, at which the read began. `whole` is true if the client needed the whole
// state (see view.Reading).
//
// settled is false if the tables must be read again, because a newer state was announced after
// the read began, or because the subscription to a room began only after the read. err is an
// error of the bus.
func (h *hub) settle(ctx context.Context, s *session, state *pubsub.Snapshot, began int64, whole bool, readAt view.DBTime) (settled bool, err error) {
	h.mu.RLock()
	interest := h.users[s.userID]
	if interest.member == nil && len(state.Memberships) == 0 {
		defer h.mu.RUnlock()
		return s.mailbox.Synced(view.HoldingOf(&state.Badge), readAt, nil), nil
	}
	h.mu.RUnlock()
	m := h.memberOf(interest)
	listening, err := h.watch(ctx, m, state, began)
	if !listening {
		return false, err
	}
	err = errors.Join(err, h.unwatch(ctx, m, state))

	h.mu.RLock()
	settled = h.rooms.gap.Load() < began && m.settle(s, state, began, whole, readAt)
	h.mu.RUnlock()
	if settled && len(state.Memberships) == 0 {
		h.dismiss(m)
	}
	return settled, err
}

// dismiss removes the member of a user if the user has no memberships any more.
func (h *hub) dismiss(m *member) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.account != nil && len(m.account.Memberships) == 0 && len(m.seats) == 0 {
		m.user.member = nil
	}
}

// settle is the part of hub.settle that updates the account and the session's mailbox. It is
// called when the subscriptions to all rooms of the user exist. The caller holds the mutex of the
// hub.
func (m *member) settle(s *session, state *pubsub.Snapshot, began int64, whole bool, readAt view.DBTime) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.announced.includedIn(state, began) {
		return false
	}
	ahead, ok := m.load(s, state, began, whole)
	if ok {
		m.repeatReadyReads()
	}
	return ok && s.mailbox.Synced(view.HoldingOf(&state.Badge), readAt, ahead)
}

// load updates the account with a state that was read from the tables for a session. ahead has
// the changes that are in the account but not in the state; the session must still get these
// changes. ok is false if the tables must be read again.
func (m *member) load(s *session, state *pubsub.Snapshot, began int64, whole bool) (ahead *pubsub.Update, ok bool) {
	if m.account == nil || m.account.Rest.Epoch != state.Epoch {
		return m.replace(s, state, began)
	}
	overtaken := m.account.Ahead(state)
	if overtaken && m.applied < began {
		whole = true // the newer part of the account was forged, or Postgres has lost it
	}
	switch {
	case whole && overtaken && m.applied >= began:
		return nil, false // the newer part of the account arrived during the read, and may be right
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

// replace makes a new account from a state that was read from the tables for a session. It then
// applies the states of rooms that have arrived from the bus since the read began. It returns
// these changes as `ahead`: the session must still get them. It makes the user's other sessions
// sync, since they may lack changes that the state from the tables includes.
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
