package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/internal/base/category"
	"github.com/badged/badged/internal/base/limit"
)

// handle executes a frame that arrived after the hello. If the session must end, it returns a
// closing with the reason.
func (s *session) handle(ctx context.Context, f protocol.ClientFrame) *closing {
	// The worker also checks the expiry, but a slow client may delay the worker.
	if !time.Now().Before(s.expiresAt()) {
		return tokenEnded()
	}
	switch f.T {
	case protocol.FramePing:
		if ending := s.gaveSign(); ending != nil {
			return ending
		}
		return s.reply(protocol.BareFrame{T: protocol.FramePong})
	case protocol.FramePong:
		return s.gaveSign() // a pong needs no answer
	case protocol.FrameHello:
		return &closing{code: protocol.CloseProtocol, reason: "hello was sent twice"}
	}
	return s.limited(f, func() *closing {
		switch {
		case f.T == protocol.FrameAuth:
			return s.refresh(ctx, f)
		case slices.Contains(protocol.CommandTypes(), f.T):
			refused, ending := s.gateway.command(ctx, s.currentIdentity(), f)
			switch {
			case ending != nil:
				return ending
			case refused != nil:
				return s.reply(*refused)
			}
			return s.reply(protocol.OKFrame{T: "ok", ID: f.ID})
		}
		return s.reply(*notValid(f, "unknown type of frame"))
	})
}

// refuse handles a frame that could not be decoded. It returns a closing, which ends the session,
// if the frame is not a JSON object, is a hello, or arrived before the hello was accepted.
// Otherwise it answers with an error frame, and the session continues.
func (s *session) refuse(f protocol.ClientFrame, reason error) *closing {
	if s.userID == "" || f.T == protocol.FrameHello || errors.Is(reason, protocol.ErrNotObject) {
		return &closing{code: protocol.CloseProtocol, reason: reason.Error()}
	}
	return s.limited(f, func() *closing { return s.reply(*notValid(f, reason.Error())) })
}

// limited calls carryOut, which executes a frame. But if the user's rate limit is exceeded,
// limited answers with an error frame instead, or returns the closing with which to end the
// session.
func (s *session) limited(f protocol.ClientFrame, carryOut func() *closing) *closing {
	refused, ending := s.limit(f)
	switch {
	case ending != nil:
		return ending
	case refused != nil:
		return s.reply(*refused)
	}
	return carryOut()
}

// reply queues an answer. It returns a closing if too many answers are already queued: the
// client then reads its answers too slowly.
func (s *session) reply(frame any) *closing {
	if !s.mailbox.Reply(frame) {
		return noRoom(protocol.CloseRateLimited, "the client reads its answers too slowly", 0)
	}
	return nil
}

// limit counts a frame against the user's rate limit. If the limit is exceeded, it returns an
// error frame for the client. After too many refused frames, it returns a closing instead, and
// the session must end.
func (s *session) limit(f protocol.ClientFrame) (refused *protocol.ErrorFrame, ending *closing) {
	wait := s.gateway.commands.Turn(s.userID, time.Now())
	if wait == 0 {
		s.refused = max(0, s.refused-1)
		return nil, nil
	}
	s.gateway.metrics.limited.Inc()
	if s.refused++; s.refused > limit.MaxRefused {
		return nil, noRoom(protocol.CloseRateLimited, "too many commands", wait)
	}
	return tooMany(f, wait), nil
}

// gaveSign counts a ping or a pong against the client's rate limit. Frames of badge.v1 and
// control frames of WebSocket both count. It returns a closing if the client exceeds the limit.
func (s *session) gaveSign() *closing {
	if s.signs == nil {
		s.signs = limit.NewLimiter(signsPerSecond)
	}
	if wait := limit.Take(s.signs, time.Now()); wait > 0 {
		return noRoom(protocol.CloseRateLimited, "too many pings and pongs", wait)
	}
	return nil
}

// notValid returns the answer to a frame that the client should not repeat.
func notValid(f protocol.ClientFrame, message string) *protocol.ErrorFrame {
	return &protocol.ErrorFrame{T: "error", ID: f.ID, Code: protocol.CodeInvalid, Message: message}
}

// tooMany returns the answer to a command that exceeds the user's rate limit.
func tooMany(f protocol.ClientFrame, wait time.Duration) *protocol.ErrorFrame {
	return &protocol.ErrorFrame{
		T: "error", ID: f.ID, Code: protocol.CodeRateLimited, Message: "too many commands; try again",
		RetryMS: wait.Milliseconds() + 1, // Round up: a client that sends too early is refused again.
	}
}

// refresh replaces the token of the session. If the session must end, it returns a closing with
// the reason.
func (s *session) refresh(ctx context.Context, f protocol.ClientFrame) *closing {
	before := s.currentIdentity().Categories
	refusal := s.authenticate(ctx, f.Token)
	switch {
	case refusal == nil:
		if !slices.Equal(before, s.currentIdentity().Categories) {
			s.mailbox.Renew()
		}
		s.schedule(taskCheck) // the fresh one may expire sooner
		return s.reply(protocol.OKFrame{T: "ok", ID: f.ID, ExpiresInMS: s.expiresIn()})
	case refusal.code == protocol.CloseResync: // the old token is still valid
		return s.reply(protocol.ErrorFrame{
			T: "error", ID: f.ID, Code: protocol.CodeUnavailable, Message: refusal.reason,
			RetryMS: refusal.reconnect.Milliseconds(),
		})
	}
	return refusal
}

// command executes a command. If the command fails, it returns an error frame. If the
// connection must end, it returns a closing instead.
func (g *Gateway) command(ctx context.Context, identity Identity, f protocol.ClientFrame) (*protocol.ErrorFrame, *closing) {
	timeout, cancel := context.WithTimeout(ctx, g.cfg.ReadTimeout)
	defer cancel()
	err := g.carryOut(timeout, identity, f)
	g.metrics.command(f.T, err)
	var refused *commandError
	var blamed InvalidError
	switch {
	case err == nil:
		return nil, nil
	case errors.Is(err, ErrTokenEnded):
		return nil, g.ended(identity, tokenRevoked())
	case errors.Is(err, errBehind):
		return notSaved(f, errBehind.Error()), nil
	case errors.As(err, &refused):
		return &protocol.ErrorFrame{T: "error", ID: f.ID, Code: refused.code, Message: refused.message}, nil
	case errors.As(err, &blamed):
		return notValid(f, blamed.Invalid()), nil
	}
	if ctx.Err() == nil {
		g.log.WarnContext(ctx, "a client's command failed", "command", f.T, "error", err)
	}
	return notSaved(f, "not saved; try again"), nil
}

// ended returns the closing for a connection whose token has expired or was revoked. If this
// gateway knows neither an expiry nor a revocation, ended returns `otherwise`.
func (g *Gateway) ended(id Identity, otherwise *closing) *closing {
	switch {
	case !time.Now().Before(id.ExpiresAt):
		return tokenEnded()
	case g.revoked(id):
		return tokenRevoked()
	}
	return otherwise
}

// notSaved returns the answer to a command that was not stored and that the client should
// repeat.
func notSaved(f protocol.ClientFrame, message string) *protocol.ErrorFrame {
	return &protocol.ErrorFrame{
		T: "error", ID: f.ID, Code: protocol.CodeUnavailable, Message: message,
		RetryMS: (time.Second + rand.N(time.Second)).Milliseconds(), //nolint:gosec // spreads load, guards nothing
	}
}

// commandError is the error of a command that the gateway itself rejects.
type commandError struct{ code, message string }

// Error implements error.
func (e *commandError) Error() string { return e.message }

func (g *Gateway) carryOut(ctx context.Context, identity Identity, f protocol.ClientFrame) error {
	userID, key := identity.UserID, f.Key()
	if f.T == protocol.FrameReadAll || f.T == protocol.FrameSeenAll || f.T == protocol.FrameLevel {
		path := ""
		if f.Category != nil {
			if path = *f.Category; path == "" { // probably a mistake: the app has not set its filter
				return &commandError{protocol.CodeInvalid, "category must not be empty: leave it out to name everything"}
			}
		}
		return g.ofCategory(ctx, identity, key, path, &f)
	}
	if !canBeID(f.ConversationID) { // Postgres would return an error for such an id
		return &commandError{protocol.CodeInvalid, "conversation_id must have 1 to 128 bytes of UTF-8, without control characters"}
	}
	if identity.Categories != nil {
		if err := g.mayTouch(ctx, identity, f.ConversationID); err != nil {
			return err
		}
	}
	if f.T == protocol.FrameMarkUnread {
		if err := g.mayMark(ctx, userID, f.ConversationID); err != nil {
			return err
		}
		messages := Messages{Seqs: f.Seqs}
		if f.Seqs != nil || f.FromSeq != nil {
			if err := g.mayMarkMessages(ctx, userID, &f); err != nil {
				return err
			}
		}
		if f.FromSeq != nil {
			messages.FromSeq = *f.FromSeq
			g.hub.forgetAhead(userID, f.ConversationID)
		}
		return g.cfg.Commands.MarkUnread(ctx, identity, key, f.ConversationID, messages)
	}
	if f.UpToSeq < 1 {
		return &commandError{protocol.CodeInvalid, "up_to_seq must be at least 1"}
	}
	if f.T == protocol.FrameSeen {
		return g.cfg.Commands.Seen(ctx, identity, key, f.ConversationID, f.UpToSeq)
	}
	g.hub.readAhead(userID, f.ConversationID, f.UpToSeq)
	// The fold limits the read to messages that precede the read in the log. The gateway cannot
	// apply this limit, since the tables may be behind the log.
	return g.cfg.Commands.Read(ctx, identity, key, f.ConversationID, f.UpToSeq)
}

// ofCategory executes a command for the conversations that a category covers. path is the
// category; if it is empty, the command applies to all conversations that the client may see.
func (g *Gateway) ofCategory(ctx context.Context, identity Identity, key, path string, f *protocol.ClientFrame) error {
	command := func(key, path string) error {
		switch f.T {
		case protocol.FrameSeenAll:
			return g.cfg.Commands.SeenAll(ctx, identity, key, path)
		case protocol.FrameLevel:
			return g.cfg.Commands.SetLevel(ctx, identity, key, path, f.Level)
		}
		return g.cfg.Commands.ReadAll(ctx, identity, key, path)
	}
	switch {
	case identity.Categories == nil:
		return command(key, path)
	case path == "":
		for _, c := range category.Tops(identity.Categories) {
			if err := command(keyFor(key, c), c); err != nil {
				return err
			}
		}
		return nil
	case !category.AnyCovers(identity.Categories, path):
		return &commandError{protocol.CodeInvalid, "your token does not include the category"}
	}
	return command(key, path)
}

// keyFor is called when one command of a client is executed once for each of several
// categories. It derives an idempotency key for one category from the key of the client's
// command.
func keyFor(key, category string) string {
	id, err := uuid.Parse(key)
	if err != nil {
		return "" // a command without a key
	}
	return uuid.NewSHA1(id, []byte(category)).String()
}
