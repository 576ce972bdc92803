package pubsub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// errLinkEnded is returned when go-redis dials a second time for a link.
var errLinkEnded = errors.New("the connection is lost")

// redisLink is one connection that receives messages.
//
// After an error, a PubSub of go-redis reconnects and subscribes again, so its caller does not
// notice that messages were lost. A link is a PubSub whose dialer refuses to dial a second
// time. So if the connection is lost, receive returns an error and the link ends.
//
// One goroutine may receive while others send.
type redisLink struct {
	pubsub *redis.PubSub
	// subscribe and unsubscribe are methods of pubsub: SSubscribe and SUnsubscribe if
	// [Redis.bySlot] is true, otherwise Subscribe and Unsubscribe.
	subscribe, unsubscribe redisCommand

	// canary is a channel in the same slot as the other channels. The listener publishes test
	// messages on it, to check that Redis delivers messages: a pong only shows that Redis
	// answers.
	canary string
	heard  atomic.Uint64 // number of the last canary that arrived

	// ctx ends with the link. The dialer finds the link in ctx, and closes the connection when
	// ctx ends, so that reads and writes return at once even if Redis does not answer.
	ctx context.Context
	end context.CancelCauseFunc

	// silence is the timeout of every read and write.
	silence time.Duration

	established atomic.Bool // the dial is done
}

// redisCommand is a method of a PubSub that sends a command. Redis answers a ping with a pong,
// and other commands with one acknowledgement per channel.
type redisCommand func(ctx context.Context, args ...string) error

// redisLinkKey is the key of a link in its context.
type redisLinkKey struct{}

// openLink connects to the server of the channels with a tag (see [canaryChannel]), and
// subscribes to a canary channel. The first message that the link receives is Redis's
// acknowledgement of this subscription. silence is the timeout of every read and write. The
// link ends when ctx is done, or when close is called.
func openLink(ctx context.Context, client redis.UniversalClient, tag string, bySlot bool, silence time.Duration) (*redisLink, error) {
	link := &redisLink{canary: canaryChannel(tag), silence: silence}
	ctx, link.end = context.WithCancelCause(ctx)
	link.ctx = context.WithValue(ctx, redisLinkKey{}, link)
	link.pubsub = client.Subscribe(link.ctx) // Without a channel, Subscribe does not connect.
	link.subscribe, link.unsubscribe = link.pubsub.Subscribe, link.pubsub.Unsubscribe
	if bySlot {
		link.subscribe, link.unsubscribe = link.pubsub.SSubscribe, link.pubsub.SUnsubscribe
	}
	if err := link.send(link.subscribe, link.canary); err != nil {
		link.close(err)
		return nil, fmt.Errorf("connect: %w", err)
	}
	link.established.Store(true)
	return link, nil
}

// send sends a command. It does not wait for the answer. After any error the caller must close
// the link.
func (k *redisLink) send(command redisCommand, args ...string) error {
	ctx, cancel := context.WithTimeout(k.ctx, k.silence)
	defer cancel()
	return command(ctx, args...)
}

// receive returns the next *redis.Message, *redis.Subscription or *redis.Pong. After any error
// the caller must close the link. This includes a timeout: it may occur in the middle of a
// message, and go-redis then cannot parse the rest of the stream.
func (k *redisLink) receive() (any, error) {
	reply, err := receiveFrom(k.ctx, k.pubsub, k.silence)
	if err == nil {
		return reply, nil
	}
	if cause := context.Cause(k.ctx); cause != nil {
		return nil, cause
	}
	if netErr, ok := errors.AsType[net.Error](err); ok && netErr.Timeout() {
		return nil, fmt.Errorf("silent for %v: %w", k.silence, err)
	}
	return nil, fmt.Errorf("receive: %w", err)
}

// receiveFrom calls ReceiveTimeout of go-redis. ReceiveTimeout panics on an answer that does
// not have the form of a message; receiveFrom returns an error instead. If timeout is 0,
// receiveFrom waits without a limit.
func receiveFrom(ctx context.Context, p *redis.PubSub, timeout time.Duration) (reply any, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			reply, err = nil, fmt.Errorf("the server's answer is no message (%v): is it Redis?", cause)
		}
	}()
	return p.ReceiveTimeout(ctx, timeout)
}

// close ends the link; receive then returns cause. close may be called more than once.
func (k *redisLink) close(cause error) {
	k.end(cause)
	_ = k.pubsub.Close() // The connection is closed already, or is about to be.
}
