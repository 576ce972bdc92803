package gateway

import (
	"context"
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
	user     pubsub.User
	sessions map[*session]struct{}
	// joined is closed once the bus has acknowledged the interest, or cannot.
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
		for s := range in.sessions {
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
			in = &interest{user: user, sessions: map[*session]struct{}{s: {}}, joined: make(chan struct{})}
			h.users[user.ID] = in
			h.mu.Unlock()
			defer close(in.joined)
			return h.subscription.Join(ctx, user)
		}
		if in.leaving == nil {
			in.sessions[s] = struct{}{}
			h.mu.Unlock()
			select {
			case <-in.joined:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		left := in.leaving
		h.mu.Unlock()
		select {
		case <-left:
		case <-ctx.Done():
			return ctx.Err()
		}
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
	if _, ok := in.sessions[s]; !ok {
		h.mu.Unlock()
		return nil
	}
	delete(in.sessions, s)
	if len(in.sessions) > 0 {
		h.mu.Unlock()
		return nil
	}
	in.leaving = make(chan struct{})
	h.mu.Unlock()

	<-in.joined
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
	sessions := make([]*session, 0, len(in.sessions))
	for s := range in.sessions {
		sessions = append(sessions, s)
	}
	return sessions
}
