package gateway

import (
	"context"
	"errors"
	"maps"
	"time"
)

// This file repeats reads that were ahead of a room. An app may have a message before
// the log has it, and its read then covers only what the log has. In conversations
// the fold remembers the rest for a minute. A message to a room looks at no member,
// so there the gateway of the app remembers the read, and appends it again once the
// room has the message.

const (
	// claimSpan is how long a read by an app is remembered, as in the fold.
	claimSpan = time.Minute
	// maxClaims is the most rooms of a user with such a read.
	maxClaims = 32
)

// claim is a read of a room up to a message that the room did not have.
type claim struct {
	upTo  int64
	until time.Time
}

// readAhead remembers a read by an app of the user if it is ahead of a room. Call it
// before the read is appended: the message may come right after.
func (h *hub) readAhead(userID, conversationID string, upTo int64) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if in, ok := h.users[userID]; ok && in.member != nil {
		in.member.claim(conversationID, upTo)
	}
}

func (m *member) claim(conversationID string, upTo int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.account != nil { // otherwise honour finds out
		if entry, ok := m.account.Memberships[conversationID]; !ok || upTo <= entry.Room.LastSeq {
			return
		}
	}
	now := time.Now()
	maps.DeleteFunc(m.claims, func(_ string, c claim) bool { return now.After(c.until) })
	former, claimed := m.claims[conversationID]
	if former.upTo > upTo || !claimed && len(m.claims) == maxClaims {
		return
	}
	if m.claims == nil {
		m.claims = map[string]claim{}
	}
	m.claims[conversationID] = claim{upTo, now.Add(claimSpan)}
}

// forgetAhead forgets a read that was ahead of a room: the user has marked messages of
// it since.
func (h *hub) forgetAhead(userID, conversationID string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if in, ok := h.users[userID]; ok && in.member != nil {
		in.member.mu.Lock()
		defer in.member.mu.Unlock()
		delete(in.member.claims, conversationID)
	}
}

// honour repeats the reads whose messages the rooms have by now. The caller holds the
// mutexes of the hub and of m.
func (m *member) honour() {
	if m.account == nil || len(m.claims) == 0 {
		return
	}
	now := time.Now()
	for id, c := range m.claims {
		entry, ok := m.account.Memberships[id]
		switch {
		case !ok || max(entry.ReadSeq, entry.ReachedSeq) >= c.upTo || now.After(c.until):
		case entry.Room.LastSeq < c.upTo:
			continue
		case len(m.user.sessions) > 0:
			m.user.sessions[0].readAgain(again{id, c.upTo})
		}
		delete(m.claims, id)
	}
}

// again is a read to append again.
type again struct {
	conversationID string
	upTo           int64
}

// readAgain makes the worker append a read.
func (s *session) readAgain(r again) {
	s.mu.Lock()
	s.reads = append(s.reads, r)
	s.mu.Unlock()
	s.schedule(taskRead)
}

// repeatReads appends the reads that wait. If one fails, the message stays unread
// until the next read.
func (s *session) repeatReads(ctx context.Context) {
	s.mu.Lock()
	reads := s.reads
	s.reads = nil
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.gateway.cfg.ReadTimeout)
	defer cancel()
	for _, r := range reads {
		if err := s.gateway.cfg.Commands.Read(ctx, s.who(), "", r.conversationID, r.upTo); err != nil && ctx.Err() == nil && !errors.Is(err, ErrTokenEnded) {
			s.gateway.log.WarnContext(ctx, "a read that was ahead of a room could not be repeated", "error", err)
		}
	}
}
