package gateway

import (
	"context"
	"errors"
	"maps"
	"time"
)

// This file handles reads that are ahead of a room. An app may receive a message from its own
// backend before the message is in the log. If the user reads the message at this moment, the
// fold limits the read to the messages that precede it in the log. For other conversations the
// fold stores the rest of the read for a minute, and applies it when the message arrives. In a
// room the fold cannot apply the rest later, since a message to a room changes no rows of
// members. So the gateway stores such a read as a claim, and appends the read a second time when
// the room has the message.

const (
	// claimSpan is how long the gateway stores a claim: a read up to a message that the room does
	// not have yet. In conversations that are not rooms, the fold stores such a read, for the
	// same time.
	claimSpan = time.Minute
	// maxClaims is the maximum number of claims of one user. Each room has at most one.
	maxClaims = 32
)

// claim is a read of a room up to the message with the seq `upTo`, where the room does not have
// this message yet. The claim expires at the time `until`.
type claim struct {
	upTo  int64
	until time.Time
}

// readAhead is called for each read command, before the read is appended to the log. If the read
// goes beyond the last message of a room, readAhead stores a claim. A call after the append would
// be too late: the message may arrive immediately after the append.
func (h *hub) readAhead(userID, conversationID string, upTo int64) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if interest, ok := h.users[userID]; ok && interest.member != nil {
		interest.member.claim(conversationID, upTo)
	}
}

func (m *member) claim(conversationID string, upTo int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.account != nil { // otherwise repeatReadyReads checks the claim later
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

// forgetAhead deletes the claim of a user on a room: the read that is to be appended again when
// the room has the message. It is called when the user marks messages of the room unread, since
// that second append would undo the mark.
func (h *hub) forgetAhead(userID, conversationID string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if interest, ok := h.users[userID]; ok && interest.member != nil {
		interest.member.mu.Lock()
		defer interest.member.mu.Unlock()
		delete(interest.member.claims, conversationID)
	}
}

// repeatReadyReads is called after the account has changed. If a room now has the message up to
// which a claim reads, repeatReadyReads queues that read again and deletes the claim. It also
// deletes claims that have expired, claims of rooms that the user has left, and claims that the
// read position has reached. The caller holds the mutexes of the hub and of m.
func (m *member) repeatReadyReads() {
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
			m.user.sessions[0].readAgain(repeatedRead{id, c.upTo})
		}
		delete(m.claims, id)
	}
}

// repeatedRead is a read that must be appended a second time.
type repeatedRead struct {
	conversationID string
	upTo           int64
}

// readAgain queues a read, which the worker of the session then appends.
func (s *session) readAgain(r repeatedRead) {
	s.mu.Lock()
	s.reads = append(s.reads, r)
	s.mu.Unlock()
	s.schedule(taskRead)
}

// repeatReads appends to the log, a second time, each read that readAgain has queued. If an append
// fails, the messages of that read stay unread until the user's next read.
func (s *session) repeatReads(ctx context.Context) {
	s.mu.Lock()
	reads := s.reads
	s.reads = nil
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.gateway.cfg.ReadTimeout)
	defer cancel()
	for _, r := range reads {
		if err := s.gateway.cfg.Commands.Read(ctx, s.currentIdentity(), "", r.conversationID, r.upTo); err != nil && ctx.Err() == nil && !errors.Is(err, ErrTokenEnded) {
			s.gateway.log.WarnContext(ctx, "cannot append again a read that was ahead of the messages of its room", "error", err)
		}
	}
}
