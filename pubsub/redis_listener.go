package pubsub

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/internal/base/wait"
)

// The delay before a reconnect doubles with each failed attempt, from minReconnectDelay to
// maxReconnectDelay. After a successful connection it starts again with minReconnectDelay. Each
// listener multiplies the two constants by random factors between 1/2 and 1, so that listeners do
// not all reconnect to Redis at the same time.
const (
	minReconnectDelay = 50 * time.Millisecond
	maxReconnectDelay = 5 * time.Second
)

const (
	// subscribeChunk is the maximum number of channels in one SUBSCRIBE. It is limited since Redis
	// serves no other client while it runs a command.
	subscribeChunk = 1000
	// maxMisses is how many canaries must be lost in a row before the connection is replaced.
	maxMisses = 2
)

var (
	// errDeaf reports that Redis answers on a connection but delivers no messages on it.
	errDeaf = errors.New("messages do not arrive, though Redis accepts them and answers pings")
	// errMoved reports that another master now serves the channels of a connection.
	errMoved = errors.New("the channels have moved to another master")
)

// redisListener subscribes to channels. If its connection is lost, it reconnects and subscribes
// again. It calls onMessage and onGap in the goroutine of run. Its methods are safe for
// concurrent use.
type redisListener struct {
	redisInterests

	bus       *Redis
	tag       string // of the channels, see canaryChannel
	onMessage func(channel, payload string)
	onGap     func()

	ctx    context.Context // ends with the listener
	cancel context.CancelFunc
	done   chan struct{} // closed when run has returned

	// Only the goroutine of run uses the fields below.

	connected   bool // Redis has answered on the current connection
	connections int  // number of connections on which Redis has answered
}

// await waits until Redis has acknowledged channels. It fails with the error of ctx, or with
// [ErrClosed].
func (l *redisListener) await(ctx context.Context, channels []string) error {
	for {
		err := ctx.Err()
		batch := l.pending(channels, err != nil)
		switch {
		case l.ctx.Err() != nil:
			return ErrClosed
		case batch == nil:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-batch.done:
		case <-l.ctx.Done():
		case <-ctx.Done():
		}
	}
}

// close ends the listener and returns when run has returned.
func (l *redisListener) close() {
	l.cancel()
	<-l.done
}

// run connects, and reconnects when the connection is lost, until close is called.
func (l *redisListener) run() {
	defer l.bus.running.Done()
	defer close(l.done)
	defer l.bus.away.Add(-1)
	some := func(d time.Duration) time.Duration { return d/2 + rand.N(d/2) } //nolint:gosec // jitter, not a secret
	delays := wait.Backoff{First: some(minReconnectDelay), Last: some(maxReconnectDelay)}
	delays.Retry(l.ctx, l.connection, func(err error, delay time.Duration) {
		l.bus.lookAgain()
		l.bus.cfg.Logger.Warn("no connection to Redis: updates may be lost", "channels", l.tag, "error", err, "retry_in", delay)
	})
}

// connection opens one connection and serves it until it is lost.
func (l *redisListener) connection(ctx context.Context) error {
	link, err := l.open(ctx)
	if err != nil {
		return err
	}
	l.begin()
	var serving sync.WaitGroup
	serving.Go(func() { link.close(l.write(link)) })
	serving.Go(func() { link.close(l.watch(link)) })
	err = l.read(link)
	link.close(err)
	serving.Wait()
	if l.connected {
		l.connected = false
		l.bus.away.Add(1)
	}
	l.end()
	return err
}

func (l *redisListener) open(ctx context.Context) (*redisLink, error) {
	asking, cancel := context.WithTimeout(ctx, l.bus.cfg.PublishTimeout)
	defer cancel()
	bySlot, err := l.bus.bySlot(asking, canaryChannel(l.tag))
	if err != nil {
		return nil, err
	}
	return openLink(ctx, l.bus.client, l.tag, bySlot, l.bus.cfg.PingInterval+l.bus.cfg.PongTimeout)
}

// read handles messages and acknowledgements until the link ends.
func (l *redisListener) read(link *redisLink) error {
	for {
		reply, err := link.receive()
		if err != nil {
			return err
		}
		if !l.connected {
			l.connected = true
			l.bus.away.Add(-1)
			l.bus.cfg.Logger.Info("connected to Redis", "channels", l.tag)
			if l.connections++; l.connections > 1 {
				l.bus.counters.reconnects.Add(1)
			}
		}
		switch reply := reply.(type) {
		case *redis.Message:
			l.take(link, reply.Channel, reply.Payload)
		case *redis.Subscription:
			if reply.Channel != link.canary {
				if l.acknowledge() {
					l.onGap()
				}
			} else if reply.Kind == "sunsubscribe" { // The slot has moved.
				return errMoved
			}
		}
	}
}

// take handles one message.
func (l *redisListener) take(link *redisLink, channel, payload string) {
	isCanary := channel == link.canary
	if !isCanary && !l.wants(channel) {
		return
	}
	body, ok := l.bus.keys.open(channel, payload)
	switch {
	case !ok:
		l.bus.unsigned(channel)
	case isCanary:
		if n, err := strconv.ParseUint(body, 10, 64); err == nil {
			link.heard.Store(n)
		}
	default:
		l.onMessage(channel, body)
	}
}

// write sends the commands for joins and leaves until the link ends.
func (l *redisListener) write(link *redisLink) error {
	for {
		select {
		case <-link.ctx.Done():
			return nil
		case <-l.changed:
		}
		subscribe, unsubscribe := l.changes()
		for chunk := range slices.Chunk(subscribe, subscribeChunk) {
			if err := link.send(link.subscribe, chunk...); err != nil {
				return fmt.Errorf("subscribe: %w", err)
			}
		}
		for chunk := range slices.Chunk(unsubscribe, subscribeChunk) {
			if err := link.send(link.unsubscribe, chunk...); err != nil {
				return fmt.Errorf("unsubscribe: %w", err)
			}
		}
	}
}

// watch pings Redis and publishes canaries until the link ends. It returns an error if
// maxMisses canaries in a row do not arrive. A canary is sent in the same way as an update:
// over a connection that publishes and, in a cluster, to the master of the same slot. If Redis
// does not accept a canary, the canary does not count as missing, since pings detect a Redis
// that is down.
//
// watch also pings while messages arrive, since a ping costs less than recording the time of
// each message.
func (l *redisListener) watch(link *redisLink) error {
	tick := time.NewTicker(l.bus.cfg.PingInterval)
	defer tick.Stop()
	// accepted is the number of the last canary, or 0 if Redis did not accept it. misses counts
	// canaries that were lost in a row.
	accepted, misses := uint64(0), 0
	for n := uint64(1); ; n++ {
		select {
		case <-link.ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := link.send(link.pubsub.Ping); err != nil {
			return fmt.Errorf("ping: %w", err)
		}
		if accepted > link.heard.Load() {
			misses++
			l.bus.counters.canariesMissed.Add(1)
		} else {
			misses = 0
		}
		if misses == maxMisses {
			return errDeaf
		}
		// Limit the time for the publish: if Redis does not answer, the publish must not delay
		// the next ping or the end of the link.
		ctx, cancel := context.WithTimeout(link.ctx, l.bus.cfg.PingInterval)
		accepted = 0
		if l.bus.send(ctx, redisMessage{link.canary, strconv.AppendUint(nil, n, 10)}) == nil {
			accepted = n
		}
		cancel()
	}
}
