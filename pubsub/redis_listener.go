package pubsub

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Reconnects wait between half of a delay and all of it. The delay doubles from
// the least to the greatest, and starts anew after a connection that lasted.
const (
	minReconnectDelay = 50 * time.Millisecond
	maxReconnectDelay = 5 * time.Second
)

// subscribeChunk bounds the channels of one SUBSCRIBE, which Redis works through
// without a look at anybody else.
const subscribeChunk = 1000

// redisListener keeps the channels it is asked for subscribed, over as many
// connections, one after the other, as that takes. Its callbacks are called from
// one goroutine, that of run. Its methods are safe for concurrent use.
type redisListener struct {
	redisInterests

	client       redis.UniversalClient
	log          *slog.Logger
	counters     *counters
	pingInterval time.Duration
	silence      time.Duration // after which a connection is dead
	onMessage    func(channel, payload string)
	onGap        func()

	ctx    context.Context // the life of the listener
	cancel context.CancelFunc
	done   chan struct{} // closed when run has returned

	connections int // on which Redis spoke; for run alone
	// connected is set while there is a connection on which Redis has spoken.
	connected atomic.Bool
	canary    canary
}

func newRedisListener(r *Redis, onMessage func(channel, payload string), onGap func()) *redisListener {
	l := &redisListener{
		redisInterests: newRedisInterests(),
		canary:         newCanary(r.execute),
		client:         r.client,
		log:            r.cfg.Logger,
		counters:       &r.counters,
		pingInterval:   r.cfg.PingInterval,
		silence:        r.cfg.PingInterval + r.cfg.PongTimeout,
		onMessage:      onMessage,
		onGap:          onGap,
		done:           make(chan struct{}),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// join wants channels and waits until Redis has acknowledged each.
func (l *redisListener) join(ctx context.Context, channels ...string) error {
	for _, ready := range l.want(channels...) {
		select {
		case <-ready:
		case <-l.ctx.Done():
			return ErrClosed
		case <-ctx.Done():
			if l.giveUp(channels...) {
				return ctx.Err()
			}
			return nil
		}
	}
	if l.ctx.Err() != nil {
		return ErrClosed
	}
	return nil
}

// leave ends the interest in channels.
func (l *redisListener) leave(channels ...string) error {
	if l.ctx.Err() != nil {
		return ErrClosed
	}
	l.unwant(channels...)
	return nil
}

// close ends the listener and returns when run has.
func (l *redisListener) close() {
	l.cancel()
	<-l.done
}

// run connects, again and again, until close.
func (l *redisListener) run() {
	defer close(l.done)
	delay := minReconnectDelay
	for l.ctx.Err() == nil {
		began := time.Now()
		connected, err := l.connection()
		if l.ctx.Err() != nil {
			return
		}
		if lasted := time.Since(began); connected && lasted > maxReconnectDelay {
			delay = minReconnectDelay
		}
		wait := delay/2 + rand.N(delay/2) //nolint:gosec // jitter, not a secret
		l.log.Warn("no connection to Redis: updates may be lost", "error", err, "retry_in", wait)
		delay = min(2*delay, maxReconnectDelay)
		select {
		case <-time.After(wait):
		case <-l.ctx.Done():
		}
	}
}

// connection opens one connection and stays until it is lost. connected says
// whether Redis ever spoke on it.
func (l *redisListener) connection() (connected bool, err error) {
	link, err := openLink(l.ctx, l.client, l.silence)
	if err != nil {
		return false, err
	}
	l.begin()
	var serving sync.WaitGroup
	serving.Go(func() { l.write(link) })
	serving.Go(func() { l.watch(link) })
	defer func() {
		link.close(err)
		serving.Wait()
		l.connected.Store(false)
		l.end()
	}()

	for {
		reply, err := link.receive()
		if err != nil {
			return connected, err
		}
		if !connected {
			connected = true
			l.connected.Store(true)
			l.log.Info("connected to Redis")
			if l.connections++; l.connections > 1 {
				l.counters.reconnects.Add(1)
			}
		}
		l.handle(reply)
	}
}

// handle takes what was received.
func (l *redisListener) handle(reply any) {
	switch reply := reply.(type) {
	case *redis.Message:
		if reply.Channel == l.canary.channel {
			l.canary.hear(reply.Payload)
		} else if l.wants(reply.Channel) {
			l.onMessage(reply.Channel, reply.Payload)
		}
	case *redis.Subscription:
		l.acknowledge(reply.Channel)
	}
	if l.gapIsDue() {
		l.onGap()
	}
}

// write brings to Redis what join and leave want, and pings, until the link
// ends. Pings are sent whether or not Redis is talking: they cost less than to
// know.
func (l *redisListener) write(link *redisLink) {
	if err := link.subscribe(link.ctx, []string{l.canary.channel}); err != nil {
		link.close(fmt.Errorf("subscribe: %w", err))
		return
	}
	ping := time.NewTicker(l.pingInterval)
	defer ping.Stop()
	for {
		select {
		case <-link.ctx.Done():
			return
		case <-ping.C:
			if err := link.ping(link.ctx); err != nil {
				link.close(fmt.Errorf("ping: %w", err))
				return
			}
		case <-l.changed:
			if err := l.writeChanges(link); err != nil {
				link.close(err)
				return
			}
		}
	}
}

// watch publishes canaries until the link ends, and ends it when too many of
// them in a row do not come.
func (l *redisListener) watch(link *redisLink) {
	tick := time.NewTicker(l.pingInterval)
	defer tick.Stop()
	for misses := 0; ; {
		select {
		case <-link.ctx.Done():
			return
		case <-tick.C:
		}
		if l.canary.missing() {
			misses++
			l.counters.canariesMissed.Add(1)
		} else {
			misses = 0
		}
		if misses == maxMisses {
			link.close(errDeaf)
			return
		}
		// The next is due after that, and the end of the link must not wait
		// longer for a Redis that is frozen.
		ctx, cancel := context.WithTimeout(link.ctx, l.pingInterval)
		l.canary.send(ctx)
		cancel()
	}
}

// writeChanges writes one chunk of what is to be changed, and signals if there
// is more.
func (l *redisListener) writeChanges(link *redisLink) error {
	subscribe, unsubscribe := l.changes(subscribeChunk)
	if len(subscribe) > 0 {
		if err := link.subscribe(link.ctx, subscribe); err != nil {
			return fmt.Errorf("subscribe: %w", err)
		}
	}
	if len(unsubscribe) > 0 {
		if err := link.unsubscribe(link.ctx, unsubscribe); err != nil {
			return fmt.Errorf("unsubscribe: %w", err)
		}
	}
	return nil
}
