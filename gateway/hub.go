package gateway

import (
	"context"
	"slices"
	"sync"

	"github.com/badged/badged/pubsub"
)

// hub knows which sessions each user has here, and keeps the subscription to
// exactly those users. It is the bus's handler.
type hub struct {
	mu    sync.RWMutex
	users map[string]*interest
	// gap is told, without blocking, that updates may have been lost.
	gap chan struct{}
	// subscription is set before the first session comes.
	subscription pubsub.Subscription
}

// interest is a user who has sessions here, or had until a moment ago.
type interest struct {
	user pubsub.User
	// sessions are few, mostly one.
	sessions []*session
	// joined is closed once the bus has acknowledged the interest, or cannot,
	// and nil from then on.
	joined chan struct{}
	// leaving is not nil while the bus is told that the interest has ended,
	// and closed after that. Whoever comes in between waits: a join and a leave
	// under way at once might be carried out in either order.
	leaving chan struct{}
}

func newHub() *hub {
	return &hub{users: map[string]*interest{}, gap: make(chan struct{}, 1)}
}

// HandleUpdate implements pubsub.Handler.
func (h *hub) HandleUpdate(u *pubsub.Update) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if in, ok := h.users[u.UserID]; ok {
		for _, s := range in.sessions {
			s.mailbox.offer(u)
		}
	}
}

// HandleGap implements pubsub.Handler.
func (h *hub) HandleGap() {
	select {
	case h.gap <- struct{}{}:
	default: // a sweep is due already
	}
}

// join adds a session and returns once the bus has acknowledged its user: from
// then on every update reaches the session's mailbox. An error means that the
// bus did not, and that the session lives off reconciliation for now.
func (h *hub) join(ctx context.Context, s *session, user pubsub.User) error {
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

// await returns once a channel is closed, as one that is nil was, or with the
// error of ctx.
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

// leave removes a session, and ends the interest in its user with the last.
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
	joined := in.joined
	h.mu.Unlock()

	if joined != nil {
		<-joined
	}
	err := h.subscription.Leave(ctx, in.user)

	h.mu.Lock()
	delete(h.users, userID)
	h.mu.Unlock()
	close(in.leaving)
	return err
}

// userIDs returns the users who have sessions, in no set order.
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
