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

// errLinkEnded refuses a second dial of a link.
var errLinkEnded = errors.New("the connection is lost")

// redisLink is one connection that listens.
//
// A PubSub of go-redis outlives its connection: after an error it reconnects and
// subscribes again, and hides that messages were lost. A link is a PubSub whose
// dialer refuses to dial twice. Every loss thus returns an error, which ends the
// link.
//
// One goroutine may receive while another subscribes.
type redisLink struct {
	pubsub *redis.PubSub
	// sharded is set for channels of one shard of a cluster.
	sharded bool

	// ctx ends with the link and closes its connection: reads and writes return
	// at once, even if Redis is stuck. It carries the link, so that the dialer
	// finds it.
	ctx context.Context
	end context.CancelCauseFunc

	// silence bounds every read and write.
	silence time.Duration

	established atomic.Bool // the dial is done
}

type redisLinkKey struct{}

func linkOf(ctx context.Context) *redisLink {
	link, _ := ctx.Value(redisLinkKey{}).(*redisLink)
	return link
}

// openLink connects to the server of channel and subscribes to it; that
// acknowledgement is the first message that the link receives. The link ends when
// ctx is done, or with close.
func openLink(ctx context.Context, client redis.UniversalClient, channel string, sharded bool, silence time.Duration) (*redisLink, error) {
	link := &redisLink{sharded: sharded, silence: silence}
	ctx, link.end = context.WithCancelCause(ctx)
	ctx = context.WithValue(ctx, redisLinkKey{}, link)
	link.ctx = ctx
	link.pubsub = client.Subscribe(ctx) // Without a channel it does not connect.
	if err := link.subscribe(ctx, []string{channel}); err != nil {
		link.close(err)
		return nil, fmt.Errorf("connect: %w", err)
	}
	link.established.Store(true)
	return link, nil
}

// dial is called by go-redis through the dialer, and dials once.
func (k *redisLink) dial(dial func() (net.Conn, error)) (net.Conn, error) {
	if k.established.Load() {
		return nil, errLinkEnded
	}
	conn, err := dial()
	if err != nil {
		return nil, err
	}
	context.AfterFunc(k.ctx, func() { _ = conn.Close() })
	return conn, nil
}

// ping is answered with a pong, subscribe and unsubscribe with an acknowledgement
// of each channel. They do not wait for the answer. Any error ends the link. ctx
// is that of the link.

func (k *redisLink) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, k.silence)
	defer cancel()
	return k.pubsub.Ping(ctx)
}

func (k *redisLink) subscribe(ctx context.Context, channels []string) error {
	ctx, cancel := context.WithTimeout(ctx, k.silence)
	defer cancel()
	if k.sharded {
		return k.pubsub.SSubscribe(ctx, channels...)
	}
	return k.pubsub.Subscribe(ctx, channels...)
}

func (k *redisLink) unsubscribe(ctx context.Context, channels []string) error {
	ctx, cancel := context.WithTimeout(ctx, k.silence)
	defer cancel()
	if k.sharded {
		return k.pubsub.SUnsubscribe(ctx, channels...)
	}
	return k.pubsub.Unsubscribe(ctx, channels...)
}

// receive returns the next *redis.Message, *redis.Subscription or *redis.Pong.
// Any error ends the link. So does silence: go-redis loses its place in the
// stream when a timeout hits inside a message.
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

// receiveFrom is ReceiveTimeout of go-redis, which panics if an answer has not the form of a
// message. A timeout of 0 is none.
func receiveFrom(ctx context.Context, p *redis.PubSub, timeout time.Duration) (reply any, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			reply, err = nil, fmt.Errorf("the server's answer is no message (%v): is it Redis?", cause)
		}
	}()
	return p.ReceiveTimeout(ctx, timeout)
}

// close ends the link for a reason that receive then returns. It may be called
// more than once.
func (k *redisLink) close(cause error) {
	k.end(cause)
	_ = k.pubsub.Close() // The connection is closed already, or is about to be.
}
