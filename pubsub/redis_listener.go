package pubsub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/internal/wait"
)

// Reconnects wait between half of a delay and all of it. The delay doubles from
// the least to the greatest, and starts anew after a connection that lasted.
const (
	minReconnectDelay = 50 * time.Millisecond
	maxReconnectDelay = 5 * time.Second
)

// subscribeChunk is the most channels of one SUBSCRIBE. Redis serves no other
// client while it runs one.
const subscribeChunk = 1000

// redisListener keeps channels subscribed, and reconnects as often as needed. Its
// callbacks run in one goroutine, that of run. Its methods are safe for concurrent
// use.
type redisListener struct {
	redisInterests

	bus          *Redis
	tag          string // of the channels
	log          *slog.Logger
	pingInterval time.Duration
	silence      time.Duration // after which a connection is dead
	onMessage    func(channel, payload string)
	onGap        func()

	ctx    context.Context // the life of the listener
	cancel context.CancelFunc
	done   chan struct{} // closed when run has returned

	connections int // on which Redis answered; only run uses it
	// connected is set while there is a connection on which Redis has
	// answered.
	connected atomic.Bool
	canary    canary
}

func newRedisListener(r *Redis, tag string, onMessage func(channel, payload string), onGap func()) *redisListener {
	l := &redisListener{
		redisInterests: newRedisInterests(),
		canary:         newCanary(tag, r.execute),
		bus:            r,
		tag:            tag,
		log:            r.cfg.Logger,
		pingInterval:   r.cfg.PingInterval,
		silence:        r.cfg.PingInterval + r.cfg.PongTimeout,
		onMessage:      onMessage,
		onGap:          onGap,
		done:           make(chan struct{}),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// await waits until Redis has acknowledged channels, for which want has returned
// waits.
func (l *redisListener) await(ctx context.Context, channels []string, waits []<-chan struct{}) error {
	for _, ready := range waits {
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

// leave unsubscribes from channels.
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
	delays := wait.Backoff{First: minReconnectDelay, Last: maxReconnectDelay}
	for l.ctx.Err() == nil {
		began := time.Now()
		connected, err := l.connection()
		if l.ctx.Err() != nil {
			return
		}
		l.bus.lookAgain()
		if lasted := time.Since(began); connected && lasted > maxReconnectDelay {
			delays.Reset()
		}
		delay := delays.Next()
		delay = delay/2 + rand.N(delay/2) //nolint:gosec // jitter, not a secret
		l.log.Warn("no connection to Redis: updates may be lost", "channels", l.tag, "error", err, "retry_in", delay)
		_ = wait.For(l.ctx, delay)
	}
}

// connection opens one connection and stays until it is lost. connected
// reports whether Redis ever answered on it.
func (l *redisListener) connection() (connected bool, err error) {
	link, err := l.open()
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
			l.log.Info("connected to Redis", "channels", l.tag)
			if l.connections++; l.connections > 1 {
				l.bus.counters.reconnects.Add(1)
			}
		}
		if err := l.handle(reply); err != nil {
			return connected, err
		}
	}
}

// open opens a connection and subscribes to the canary.
func (l *redisListener) open() (*redisLink, error) {
	ctx, cancel := context.WithTimeout(l.ctx, l.bus.cfg.PublishTimeout)
	defer cancel()
	sharded, err := l.bus.sharded(ctx, l.canary.channel)
	if err != nil {
		return nil, err
	}
	return openLink(l.ctx, l.bus.client, l.canary.channel, sharded, l.silence)
}

// errMoved reports that another shard now serves the channels, among them that of
// the canary.
var errMoved = errors.New("the channels have moved to another shard")

// handle handles what was received. An error ends the connection.
func (l *redisListener) handle(reply any) error {
	switch reply := reply.(type) {
	case *redis.Message:
		l.take(reply.Channel, reply.Payload)
	case *redis.Subscription:
		if reply.Channel == l.canary.channel {
			if reply.Kind == "sunsubscribe" { // sent unasked
				return errMoved
			}
			break
		}
		l.acknowledge(reply.Channel)
	}
	if l.gapIsDue() {
		l.onGap()
	}
	return nil
}

// take handles a message.
func (l *redisListener) take(channel, payload string) {
	isCanary := channel == l.canary.channel
	if !isCanary && !l.wants(channel) {
		return
	}
	body, ok := l.bus.keys.open(channel, payload)
	switch {
	case !ok:
		l.bus.unsigned(channel)
	case isCanary:
		l.canary.hear(body)
	default:
		l.onMessage(channel, body)
	}
}

// write sends the commands of joins and leaves, and pings, until the link ends.
// It pings even while messages arrive: that costs less than to track them.
func (l *redisListener) write(link *redisLink) {
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

// watch publishes canaries until the link ends. It ends the link when too many in
// a row do not arrive.
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
			l.bus.counters.canariesMissed.Add(1)
		} else {
			misses = 0
		}
		if misses == maxMisses {
			link.close(errDeaf)
			return
		}
		// A Redis that is frozen must not delay the next canary, or the end of
		// the link.
		ctx, cancel := context.WithTimeout(link.ctx, l.pingInterval)
		l.canary.send(ctx)
		cancel()
	}
}

// writeChanges sends one chunk of commands, and signals if there are more.
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
