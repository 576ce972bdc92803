package gateway

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/badged/badged/gateway/internal/crew"
	"github.com/badged/badged/pubsub"
)

// hub maps users to their sessions here, and keeps the bus subscribed to exactly
// those users and the rooms that they are members of (rooms.go). It is the handler
// of the subscription.
type hub struct {
	mu    sync.RWMutex
	users map[string]*interest
	rooms rooms
	crew  *crew.Crew
	// roomsOf returns the partition of the rooms of a user.
	roomsOf func(userID string) int
	// gap holds a token after updates may have been lost.
	gap chan struct{}
	// look is called when the bus says that connections of a user are to end.
	look func()
	// subscription is set before the first session joins.
	subscription pubsub.Subscription
}

// interest is a user with sessions here, or whose last session is leaving.
type interest struct {
	user pubsub.Address
	// sessions has mostly one element.
	sessions []*session
	// joined is closed when Join has returned, and nil from then on.
	joined chan struct{}
	// leaving is set while Leave runs, and closed after it. New sessions wait for
	// it: a concurrent Join and Leave might take effect in either order.
	leaving chan struct{}
	// member is nil for a user without memberships, as most may be.
	member *member
}

func newHub(cfg *Config, writers *crew.Crew) *hub {
	return &hub{users: map[string]*interest{}, rooms: newRooms(cfg.Metrics), crew: writers, roomsOf: cfg.RoomsOf, gap: make(chan struct{}, 1), look: func() {}}
}

// HandleUpdate implements pubsub.Handler.
func (h *hub) HandleUpdate(u *pubsub.Update) {
	if u.Ended {
		h.look()
		return
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	in, ok := h.users[u.UserID]
	for ok && in.member == nil && len(u.Memberships) > 0 { // the user has joined a first room
		h.mu.RUnlock()
		h.memberOf(in)
		h.mu.RLock()
		in, ok = h.users[u.UserID]
	}
	switch {
	case !ok:
	case in.member != nil:
		in.member.update(u, h.rooms.now())
	default:
		in.offer(u)
	}
}

// offer puts an update into the mailboxes of the user. The caller holds the mutex
// of the hub.
func (in *interest) offer(u *pubsub.Update) {
	for _, s := range in.sessions {
		s.mailbox.Offer(u)
	}
}

// HandleGap implements pubsub.Handler. An update of a room does not tell whether one
// of a member was lost, so no account is valid any more. The sessions sync when
// reconciliation or an update comes to their user.
func (h *hub) HandleGap() {
	h.rooms.gap.Store(h.rooms.now())
	h.mu.RLock()
	for _, in := range h.users {
		if in.member != nil {
			in.member.forget()
		}
	}
	h.mu.RUnlock()
	select {
	case h.gap <- struct{}{}:
	default: // it holds one already
	}
}

// join adds a session and returns when the bus has acknowledged its user: from
// then on every update reaches the session's mailbox. After an error, updates
// reach it by reconciliation until the bus is back.
func (h *hub) join(ctx context.Context, s *session, user pubsub.Address) error {
	for {
		h.mu.Lock()
		in, ok := h.users[user.ID]
		if !ok {
			joined := make(chan struct{})
			in = &interest{user: user, sessions: []*session{s}, joined: joined}
			h.users[user.ID] = in
			h.mu.Unlock()
			err := h.subscription.Join(ctx, user)
			h.mu.Lock()
			in.joined = nil
			h.mu.Unlock()
			close(joined)
			return err
		}
		if in.leaving == nil {
			in.sessions = append(in.sessions, s)
			joined := in.joined
			h.mu.Unlock()
			return await(ctx, joined)
		}
		left := in.leaving
		h.mu.Unlock()
		if err := await(ctx, left); err != nil {
			return err
		}
	}
}

// await returns when a channel is nil or closed, or with the error of ctx.
func await(ctx context.Context, closed <-chan struct{}) error {
	if closed == nil {
		return nil
	}
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave removes a session, and leaves the user on the bus with the last one.
func (h *hub) leave(ctx context.Context, s *session, userID string) error {
	h.mu.Lock()
	in, ok := h.users[userID]
	if !ok {
		h.mu.Unlock()
		return nil
	}
	at := slices.Index(in.sessions, s)
	if at < 0 {
		h.mu.Unlock()
		return nil
	}
	in.sessions = slices.Delete(in.sessions, at, at+1)
	if len(in.sessions) > 0 {
		h.mu.Unlock()
		return nil
	}
	in.leaving = make(chan struct{})
	joined, m := in.joined, in.member
	h.mu.Unlock()

	if joined != nil {
		<-joined
	}
	err := errors.Join(h.subscription.Leave(ctx, in.user), h.unwatch(ctx, m, nil))

	h.mu.Lock()
	delete(h.users, userID)
	h.mu.Unlock()
	close(in.leaving)
	return err
}

// renew makes the sessions of users sync whose accounts are unknown.
func (h *hub) renew(userIDs []string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, id := range userIDs {
		if in, ok := h.users[id]; ok && in.member != nil {
			in.member.renew()
		}
	}
}

// userIDs returns the users with sessions, in any order.
func (h *hub) userIDs() []string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	ids := make([]string, 0, len(h.users))
	for id := range h.users {
		ids = append(ids, id)
	}
	return ids
}

// sessionsOf returns the sessions of a user.
func (h *hub) sessionsOf(userID string) []*session {
	h.mu.RLock()
	defer h.mu.RUnlock()
	in, ok := h.users[userID]
	if !ok {
		return nil
	}
	return slices.Clone(in.sessions)
}
