package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// handle carries out a frame of a client that has been greeted.
func (s *session) handle(f clientFrame) {
	switch f.T {
	case framePing:
		s.reply(bareFrame{framePong})
	case framePong:
		// Being heard is all there is to it.
	case frameAuth:
		if s.authenticate(f.Token) {
			s.reply(okFrame{T: "ok", ID: f.ID, ExpiresAt: s.expiry()})
		}
	case frameRead, frameReadAll, frameMarkUnread:
		s.reply(s.command(f))
	case frameHello:
		s.end(closing{code: CloseProtocol, reason: "a second hello"})
	default:
		s.reply(errorFrame{T: "error", ID: f.ID, Code: codeInvalid, Message: "unknown type of frame"})
	}
}

// reply queues an answer.
func (s *session) reply(frame any) {
	if !s.mailbox.reply(frame) {
		s.end(closing{code: CloseSlow, reason: "too many answers wait to be read"})
	}
}

// command makes what the user did durable and returns the answer to it.
func (s *session) command(f clientFrame) any {
	ctx, cancel := context.WithTimeout(s.ctx, s.gateway.cfg.ReadTimeout)
	defer cancel()
	err := s.carryOut(ctx, f)
	s.gateway.metrics.command(f.T, err)
	var refused *commandError
	var invalid InvalidError
	switch {
	case err == nil:
		return okFrame{T: "ok", ID: f.ID}
	case errors.As(err, &refused):
		return errorFrame{T: "error", ID: f.ID, Code: refused.code, Message: refused.message}
	case errors.As(err, &invalid):
		return errorFrame{T: "error", ID: f.ID, Code: codeInvalid, Message: invalid.Invalid()}
	}
	if s.ctx.Err() == nil {
		s.gateway.log.WarnContext(s.ctx, "a client's command failed", "command", f.T, "error", err)
	}
	return errorFrame{
		T: "error", ID: f.ID, Code: codeUnavailable, Message: "not saved; try again",
		RetryMS: (time.Second + rand.N(time.Second)).Milliseconds(), //nolint:gosec // spreads load, guards nothing
	}
}

// commandError is a refusal of the gateway itself.
type commandError struct{ code, message string }

// Error implements error.
func (e *commandError) Error() string { return e.message }

func (s *session) carryOut(ctx context.Context, f clientFrame) error {
	g := s.gateway
	key := f.key()
	if f.T == frameReadAll {
		return g.cfg.Commands.ReadAll(ctx, s.userID, key, f.Category)
	}
	if f.T == frameRead && f.UpToSeq < 1 {
		return &commandError{codeInvalid, "up_to_seq must be at least 1"}
	}
	last, err := g.cfg.Badges.LastSeq(ctx, s.userID, f.ConversationID)
	if err != nil {
		return err
	}
	if last == 0 { // or a client could make up conversations without end
		return &commandError{codeNotFound, "no message of this conversation was delivered to you"}
	}
	if f.T == frameMarkUnread {
		return g.cfg.Commands.MarkUnread(ctx, s.userID, key, f.ConversationID)
	}
	// A client cannot have read what it was not given, and must not be able to
	// silence a conversation for ever.
	return g.cfg.Commands.Read(ctx, s.userID, key, f.ConversationID, min(f.UpToSeq, last))
}
