package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"
)

// handle carries out a frame of a client that has been greeted, or returns why
// the session must end.
func (s *session) handle(ctx context.Context, f clientFrame) *closing {
	switch f.T {
	case framePing:
		if ending := s.pinged(); ending != nil {
			return ending
		}
		return s.reply(bareFrame{framePong})
	case framePong:
		return nil // being heard is all there is to it
	case frameHello:
		return &closing{code: CloseProtocol, reason: "a second hello"}
	}
	refused, ending := s.limit(f)
	if ending != nil {
		return ending
	}
	if refused != nil {
		return s.reply(*refused)
	}
	switch f.T {
	case frameAuth:
		return s.refresh(ctx, f)
	case frameRead, frameReadAll, frameMarkUnread:
		if refused := s.gateway.command(ctx, s.userID, f); refused != nil {
			return s.reply(*refused)
		}
		return s.reply(okFrame{T: "ok", ID: f.ID})
	}
	return s.reply(errorFrame{T: "error", ID: f.ID, Code: codeInvalid, Message: "unknown type of frame"})
}

// reply queues an answer, or returns why the session must end.
func (s *session) reply(frame any) *closing {
	if !s.mailbox.reply(frame) {
		return &closing{code: CloseSlow, reason: "too many answers wait to be read"}
	}
	return nil
}

// limit counts a frame, and returns the answer to one that is too many, or why
// the session must end.
func (s *session) limit(f clientFrame) (refused *errorFrame, ending *closing) {
	perSecond := s.gateway.cfg.Limits.Commands
	if perSecond <= 0 {
		return nil, nil
	}
	if s.allowance == nil {
		s.allowance = newAllowance(perSecond)
	}
	wait, listens := s.allowance.take(time.Now())
	if wait == 0 {
		return nil, nil
	}
	s.gateway.metrics.limited.Inc()
	if !listens {
		return nil, noRoom(CloseRateLimited, "too many commands", wait)
	}
	return tooMany(f, wait), nil
}

// pinged counts a ping, which is not a command, or returns why the session must
// end.
func (s *session) pinged() *closing {
	if s.pings == nil {
		s.pings = rate.NewLimiter(pingsPerSecond, burstOf(pingsPerSecond))
	}
	if wait := take(s.pings, time.Now()); wait > 0 {
		return noRoom(CloseRateLimited, "too many pings", wait)
	}
	return nil
}

// tooMany is the answer to a command that may come again after a while.
func tooMany(f clientFrame, wait time.Duration) *errorFrame {
	return &errorFrame{
		T: "error", ID: f.ID, Code: codeRateLimited, Message: "too many commands; try again",
		RetryMS: wait.Milliseconds() + 1, // rather late than refused once more
	}
}

// refresh takes a fresh token, or returns why the session must end.
func (s *session) refresh(ctx context.Context, f clientFrame) *closing {
	refusal := s.authenticate(ctx, f.Token)
	switch {
	case refusal == nil:
		return s.reply(okFrame{T: "ok", ID: f.ID, ExpiresAt: s.expiresAt()})
	case refusal.code == CloseResync: // the old token is good still
		return s.reply(errorFrame{
			T: "error", ID: f.ID, Code: codeUnavailable, Message: refusal.reason,
			RetryMS: refusal.reconnect.Milliseconds(),
		})
	}
	return refusal
}

// command makes what a user did durable, or returns why it is not.
func (g *Gateway) command(ctx context.Context, userID string, f clientFrame) *errorFrame {
	timeout, cancel := context.WithTimeout(ctx, g.cfg.ReadTimeout)
	defer cancel()
	err := g.carryOut(timeout, userID, f)
	g.metrics.command(f.T, err)
	var refused *commandError
	var invalid InvalidError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return &errorFrame{T: "error", ID: f.ID, Code: refused.code, Message: refused.message}
	case errors.As(err, &invalid):
		return &errorFrame{T: "error", ID: f.ID, Code: codeInvalid, Message: invalid.Invalid()}
	}
	if ctx.Err() == nil {
		g.log.WarnContext(ctx, "a client's command failed", "command", f.T, "error", err)
	}
	return &errorFrame{
		T: "error", ID: f.ID, Code: codeUnavailable, Message: "not saved; try again",
		RetryMS: (time.Second + rand.N(time.Second)).Milliseconds(), //nolint:gosec // spreads load, guards nothing
	}
}

// commandError is a refusal of the gateway itself.
type commandError struct{ code, message string }

// Error implements error.
func (e *commandError) Error() string { return e.message }

func (g *Gateway) carryOut(ctx context.Context, userID string, f clientFrame) error {
	key := f.key()
	if f.T == frameReadAll {
		return g.cfg.Commands.ReadAll(ctx, userID, key, f.Category)
	}
	if f.T == frameRead && f.UpToSeq < 1 {
		return &commandError{codeInvalid, "up_to_seq must be at least 1"}
	}
	last, err := g.lastSeq(ctx, userID, f.ConversationID)
	if err != nil {
		return err
	}
	if last == 0 { // or a client could make up conversations without end
		return &commandError{codeNotFound, "no message of this conversation was delivered to you"}
	}
	if f.T == frameMarkUnread {
		return g.cfg.Commands.MarkUnread(ctx, userID, key, f.ConversationID)
	}
	// A client cannot have read what it was not given, and must not be able to
	// silence a conversation for ever.
	return g.cfg.Commands.Read(ctx, userID, key, f.ConversationID, min(f.UpToSeq, last))
}

// lastSeq returns the last message delivered to a user, when it is the caller's
// turn to ask.
func (g *Gateway) lastSeq(ctx context.Context, userID, conversationID string) (int64, error) {
	select {
	case g.lookups <- struct{}{}:
		defer func() { <-g.lookups }()
		return g.cfg.Badges.LastSeq(ctx, userID, conversationID)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
