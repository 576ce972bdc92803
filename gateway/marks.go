package gateway

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/internal/base/category"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/pubsub"
)

const (
	// catchUpTimeout is how long a command waits until the tables have caught up with the log.
	// It is short, since the client's next frame is not handled during the wait.
	catchUpTimeout = 2 * time.Second
	// While a command waits, the tables are read repeatedly. The pause between two reads
	// doubles each time, from firstCatchUpPause up to lastCatchUpPause.
	firstCatchUpPause = 5 * time.Millisecond
	lastCatchUpPause  = 200 * time.Millisecond
)

// errBehind reports that the tables did not catch up with the log in time.
var errBehind = errors.New("not saved: the badges do not include all published events yet; try again")

// mayMark returns an error if the user has left a conversation, or if the user has no such
// conversation. In the first case a mark would have no effect. In the second case the mark
// would create a conversation, and clients could create conversations without limit.
func (g *Gateway) mayMark(ctx context.Context, userID, conversationID string) error {
	c, err := g.conversation(ctx, userID, conversationID)
	if err != nil || isListed(c) {
		return err
	}
	// An event that creates the conversation, or with which the user joins it again, may be in
	// the log but not yet in the tables.
	if err := g.catchUp(ctx, userID); err != nil {
		return err
	}
	c, err = g.conversation(ctx, userID, conversationID)
	switch {
	case err != nil || isListed(c):
		return err
	case c.Left:
		return &commandError{protocol.CodeNotFound, "you have left this conversation"}
	}
	return &commandError{protocol.CodeNotFound, "no message of this conversation was delivered to you"}
}

// mayMarkMessages returns an error if the frame's seqs or from_seq are invalid for its
// conversation: from_seq is for rooms, and seqs is for other conversations.
func (g *Gateway) mayMarkMessages(ctx context.Context, userID string, f *protocol.ClientFrame) error {
	switch {
	case f.Seqs != nil && f.FromSeq != nil:
		return &commandError{protocol.CodeInvalid, "give seqs or from_seq, not both"}
	case f.FromSeq != nil && *f.FromSeq < 1:
		return &commandError{protocol.CodeInvalid, "from_seq must be at least 1"}
	case f.FromSeq == nil && len(f.Seqs) == 0: // an event without seqs would mark the whole conversation
		return &commandError{protocol.CodeInvalid, "seqs must name at least one message"}
	}
	var member bool
	err := g.lookUp(ctx, userID, func() (err error) {
		member, err = g.cfg.Badges.IsMember(ctx, userID, f.ConversationID)
		return err
	})
	switch {
	case err != nil:
		return err
	case member && f.Seqs != nil:
		return &commandError{protocol.CodeInvalid, "seqs must be absent in a room: give from_seq"}
	case !member && f.FromSeq != nil:
		return &commandError{protocol.CodeInvalid, "from_seq works only in rooms that you have joined; give seqs instead"}
	}
	return nil
}

// mayTouch returns an error if a conversation is not in the categories of the client's token.
// The error is the same if the conversation does not exist, so that a client cannot find out
// which conversations exist in other categories.
func (g *Gateway) mayTouch(ctx context.Context, identity Identity, conversationID string) error {
	visible := func() (bool, error) {
		c, err := g.conversation(ctx, identity.UserID, conversationID)
		return isListed(c) && category.AnyCovers(identity.Categories, c.Category), err
	}
	ok, err := visible()
	if err != nil || ok {
		return err
	}
	// An event that creates the conversation may be in the log but not yet in the tables.
	if err := g.catchUp(ctx, identity.UserID); err != nil {
		return err
	}
	if ok, err = visible(); err == nil && !ok {
		err = &commandError{protocol.CodeNotFound, "you have no such conversation in the categories of your token"}
	}
	return err
}

// isListed reports whether a conversation is in the user's list: it has messages or a level,
// or is a room of the user.
func isListed(c pubsub.Conversation) bool { return !c.Left && c.Version > 0 }

// catchUp waits until a user's badge in the tables includes every event that the log has at the
// time of the call. It returns errBehind after catchUpTimeout.
func (g *Gateway) catchUp(ctx context.Context, userID string) error {
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	var head int64
	err := g.lookUp(ctx, userID, func() (err error) {
		head, err = g.cfg.Badges.Head(ctx, userID)
		return err
	})
	for pause := firstCatchUpPause; err == nil; pause = min(2*pause, lastCatchUpPause) {
		var folded bool
		err = g.lookUp(ctx, userID, func() (err error) {
			folded, err = g.cfg.Badges.Folded(ctx, []string{userID}, head)
			return err
		})
		if err != nil || folded {
			break
		}
		err = wait.For(ctx, pause)
	}
	if err != nil && ctx.Err() != nil {
		return errBehind
	}
	return err
}

// conversation reads a conversation of a user.
func (g *Gateway) conversation(ctx context.Context, userID, conversationID string) (c pubsub.Conversation, err error) {
	err = g.lookUp(ctx, userID, func() error {
		c, err = g.cfg.Badges.Conversation(ctx, userID, conversationID)
		return err
	})
	return c, err
}

// lookUp runs a query for a user. Before the query, it waits until no other lookUp of the same
// user runs, and until fewer than lookupsAtOnce run for all users.
func (g *Gateway) lookUp(ctx context.Context, userID string, query func() error) error {
	leave, ok := g.lookupsOf.Enter(ctx, userID)
	if !ok {
		return cmp.Or(ctx.Err(), context.DeadlineExceeded)
	}
	defer leave()
	select {
	case g.lookups <- struct{}{}:
		defer func() { <-g.lookups }()
		return query()
	case <-ctx.Done():
		return ctx.Err()
	}
}
