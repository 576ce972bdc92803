package gateway

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/badged/badged/gateway/internal/workers"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/pubsub"
)

// hub maps users to their sessions on this gateway. It subscribes on the bus to exactly these
// users, and to the rooms of which they are members (rooms.go). It handles the updates that it
// receives from the bus.
type hub struct {
	mu    sync.RWMutex
	users map[string]*interest
	rooms rooms
	pool  *workers.Pool
	// roomsOf returns the partition of the rooms of a user.
	roomsOf func(userID string) int
	// gap contains a value after the bus has reported lost updates, until reconcile receives
	// the value and begins to compare all clients with the tables.
	gap chan struct{}
	// look is [Revocations].Look. It is called when a message on the bus says that connections
	// of a user must end.
	look func()
	// subscription is set before the first session joins.
	subscription pubsub.Subscription
}

// interest is a user whose updates the hub subscribes to. The user has sessions on this
// gateway, or the last session has ended and the hub is unsubscribing from the user.
type interest struct {
	user pubsub.Address
	// sessions usually has one element.
	sessions []*session
	// joined is nil, except while a call of Join for the user runs. It is then a channel that is
	// closed when the call returns.
	joined chan struct{}
	// leaving is nil until Leave is called for the user. It is then a channel that is closed when
	// the call returns. New sessions of the user wait until the channel is closed before they
	// call Join, since a concurrent Join and Leave could take effect in either order.
	leaving chan struct{}
	// member is nil for a user without memberships.
	member *member
}

func newHub(cfg *Config, writers *workers.Pool) *hub {
	return &hub{users: map[string]*interest{}, rooms: newRooms(cfg.Metrics), pool: writers, roomsOf: cfg.RoomsOf, gap: make(chan struct{}, 1), look: func() {}}
}

// HandleUpdate implements pubsub.Handler.
func (h *hub) HandleUpdate(u *pubsub.Update) {
	if u.Ended {
		h.look()
		return
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	interest, ok := h.users[u.UserID]
	for ok && interest.member == nil && len(u.Memberships) > 0 { // the user has joined the first room
		h.mu.RUnlock()
		h.memberOf(interest)
		h.mu.RLock()
		interest, ok = h.users[u.UserID]
	}
	switch {
	case !ok:
	case interest.member != nil:
		interest.member.update(u, h.rooms.now())
	default:
		interest.offer(u)
	}
}

// offer adds an update to the mailboxes of all sessions of the user. The caller holds the mutex
// of the hub.
func (in *interest) offer(u *pubsub.Update) {
	for _, s := range in.sessions {
		s.mailbox.Offer(u)
	}
}

// HandleGap implements pubsub.Handler: the bus calls it after it may have lost updates. If the
// bus has lost an update of a user, later updates of the user's rooms do not reveal the loss. So
// HandleGap makes every account unknown (see member.account). The sessions of a user then read
// the tables at the next reconciliation, or at the next update of the user.
func (h *hub) HandleGap() {
	h.rooms.gap.Store(h.rooms.now())
	h.mu.RLock()
	for _, interest := range h.users {
		if interest.member != nil {
			interest.member.forget()
		}
	}
	h.mu.RUnlock()
	wait.Wake(h.gap)
}

// join adds a session, and returns when the bus has acknowledged the subscription to the
// session's user. From then on the session's mailbox gets every update of the user that the bus
// delivers. After an error, the session gets its changes through reconciliation until the bus
// works again.
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

// await returns nil when the channel is nil or closed, or the error of ctx.
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

// leave removes a session. If it was the user's last session, leave also unsubscribes from the
// user and from the user's rooms.
func (h *hub) leave(ctx context.Context, s *session, userID string) error {
	h.mu.Lock()
	interest, ok := h.users[userID]
	if !ok {
		h.mu.Unlock()
		return nil
	}
	at := slices.Index(interest.sessions, s)
	if at < 0 {
		h.mu.Unlock()
		return nil
	}
	interest.sessions = slices.Delete(interest.sessions, at, at+1)
	if len(interest.sessions) > 0 {
		h.mu.Unlock()
		return nil
	}
	interest.leaving = make(chan struct{})
	joined, m := interest.joined, interest.member
	h.mu.Unlock()

	if joined != nil {
		<-joined
	}
	err := errors.Join(h.subscription.Leave(ctx, interest.user), h.unwatch(ctx, m, nil))

	h.mu.Lock()
	delete(h.users, userID)
	h.mu.Unlock()
	close(interest.leaving)
	return err
}

// renew is called before the clients of users are compared with the tables. If a user's account
// is unknown (see member.account), renew makes the user's sessions sync, that is, read the
// tables again.
func (h *hub) renew(userIDs []string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, id := range userIDs {
		if interest, ok := h.users[id]; ok && interest.member != nil {
			interest.member.renew()
		}
	}
}

// countUsers returns the number of users with sessions.
func (h *hub) countUsers() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.users)
}

// userIDs returns the users with sessions for which the function isIncluded returns true, in any
// order.
func (h *hub) userIDs(isIncluded func(userID string) bool) (ids []string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for id := range h.users {
		if isIncluded(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (h *hub) sessionsOf(userID string) []*session {
	h.mu.RLock()
	defer h.mu.RUnlock()
	interest, ok := h.users[userID]
	if !ok {
		return nil
	}
	return slices.Clone(interest.sessions)
}
