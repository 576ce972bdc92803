package pubsub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/badged/badged/internal/base/defaults"
)

// Defaults of [RedisConfig].
const (
	DefaultPublishTimeout = 2 * time.Second
	DefaultPingInterval   = 3 * time.Second
	DefaultPongTimeout    = 3 * time.Second
)

// RedisConfig configures a [Redis] bus. Zero durations mean the defaults.
type RedisConfig struct {
	// URL is a go-redis URL: redis://, rediss:// or unix://. For a cluster, give at least one
	// parameter addr=HOST:PORT, which names a further seed node. For a master with Sentinels,
	// give the parameter master_name=NAME; the addresses in the URL are then the Sentinels.
	// Required.
	//
	// The parameters max_retries, dialer_retries and protocol have no effect. A publish is
	// never retried, since a retry could change the order of updates; the next reconciliation
	// corrects clients that missed an update. RESP3 is not used, since pub/sub does not need
	// it.
	URL string

	// Keys are secrets of at least MinKeyBytes that all processes share. The first key signs
	// every message. A message without a signature by one of the keys is dropped, so only
	// processes with a key can send updates to clients. Default: messages are not signed. Then
	// any program that can publish on this Redis can send false updates to clients. A client
	// shows a false update until the client is next compared with the tables.
	Keys []string

	// PublishTimeout limits how long a call of Wake, or one of the two pipelines of a call of
	// Publish, takes from the dial to the reply. Default 2s.
	PublishTimeout time.Duration

	// PingInterval is how often each subscription pings Redis and publishes a canary, a test
	// message to itself. If Redis accepts two canaries in a row and delivers neither, the
	// subscription reconnects. Default 3s.
	PingInterval time.Duration

	// PongTimeout is how long Redis may take to answer a ping. If nothing arrives for
	// PingInterval + PongTimeout, the subscription reconnects. Default 3s.
	PongTimeout time.Duration

	// Logger logs lost and restored connections and dropped messages. Default: nothing is
	// logged.
	Logger *slog.Logger
}

// complaintInterval is the minimum time between two log lines about dropped messages.
const complaintInterval = 10 * time.Second

// MinKeyBytes is the minimum length of a key of a [RedisConfig]. An attacker who sees signed
// messages might guess a shorter key.
const MinKeyBytes = 32

// check fills in the defaults and returns an error if a setting is invalid.
func (c *RedisConfig) check() error {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	for i, key := range c.Keys {
		if len(key) < MinKeyBytes {
			return fmt.Errorf("key %d has %d bytes and must have %d or more; `openssl rand -hex 32` makes one", i+1, len(key), MinKeyBytes)
		}
	}
	return cmp.Or(
		defaults.Set("PublishTimeout", &c.PublishTimeout, DefaultPublishTimeout),
		defaults.Set("PingInterval", &c.PingInterval, DefaultPingInterval),
		defaults.Set("PongTimeout", &c.PongTimeout, DefaultPongTimeout),
	)
}

// Redis is a bus for several processes. It uses Redis pub/sub, with one channel per user, and
// one channel per room and partition.
//
// Each subscription has its own connection, so that a slow subscription does not delay other
// subscriptions. In a cluster, a subscription has one connection for each partition of its
// addresses. If a connection is lost, or nothing arrives on it in time, the subscription
// reconnects, joins all addresses again, and calls HandleGap. Redis itself disconnects a
// subscriber that reads too slowly (client-output-buffer-limit); the subscription then reconnects
// in the same way.
//
// In a cluster of Redis 7.0 or later, the updates of a partition pass through a single master. In
// older clusters, the bus uses classic pub/sub, where every node forwards every message to all
// other nodes.
type Redis struct {
	cfg      RedisConfig
	client   redis.UniversalClient
	cluster  *redisCluster // nil if Redis is no cluster
	counters counters
	keys     keys
	// malformedLog and unsignedLog limit how often dropped messages are logged.
	malformedLog, unsignedLog rate.Sometimes

	ctx  context.Context // ends when Close begins
	end  context.CancelFunc
	away atomic.Int64 // listeners without a live connection

	mu      sync.Mutex     // locked while a send or listener starts, and when Close begins
	running sync.WaitGroup // sends and listeners; none starts after ctx has ended
}

var _ Bus = (*Redis)(nil)

// NewRedis returns a bus on the Redis of cfg, or an error if cfg is invalid. It does not
// connect: while Redis is down, Publish and Wake fail and Join blocks.
func NewRedis(cfg RedisConfig) (*Redis, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("pubsub: %w", err)
	}
	client, err := openRedis(cfg.URL)
	if err != nil {
		return nil, err
	}
	r := &Redis{cfg: cfg, client: client, keys: newKeys(cfg.Keys)}
	r.malformedLog.Interval, r.unsignedLog.Interval = complaintInterval, complaintInterval
	r.ctx, r.end = context.WithCancel(context.Background())
	if c, ok := client.(*redis.ClusterClient); ok {
		r.cluster = &redisCluster{client: c}
	}
	return r, nil
}

// Publish implements [Bus]. It sends a pipeline with the updates of users, and then a pipeline
// with the updates of rooms. It returns when Redis has accepted the updates. Each pipeline
// takes at most [RedisConfig].PublishTimeout.
func (r *Redis) Publish(ctx context.Context, users []Update, rooms []RoomUpdate) error {
	err := publishRedis(ctx, r, users)
	if err == nil {
		err = publishRedis(ctx, r, rooms)
	}
	if err != nil {
		return fmt.Errorf("pubsub: publish %d updates: %w", len(users)+len(rooms), err)
	}
	return nil
}

func publishRedis[U any, P updateOf[U]](ctx context.Context, r *Redis, updates []U) error {
	messages := make([]redisMessage, len(updates))
	for i := range updates {
		payload, err := json.Marshal(&updates[i])
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		messages[i] = redisMessage{channelOf(P(&updates[i]).Address()), payload}
	}
	return r.publish(ctx, messages...)
}

// HasSubscribers implements [Bus]. It always returns true: only Redis knows the subscribers of
// other processes, and a query to Redis would cost as much as the publish. See ADR 4.
func (r *Redis) HasSubscribers(Address) bool { return true }

// Wake implements [Bus]. It takes at most [RedisConfig].PublishTimeout.
func (r *Redis) Wake(ctx context.Context, partitions []int) error {
	if len(partitions) == 0 {
		return nil
	}
	payload, err := json.Marshal(partitions)
	if err != nil {
		return fmt.Errorf("pubsub: encode partitions: %w", err)
	}
	if err := r.publish(ctx, redisMessage{wakeChannel, payload}); err != nil {
		return fmt.Errorf("pubsub: wake partitions %v: %w", partitions, err)
	}
	return nil
}

// publish sends messages and counts failures.
func (r *Redis) publish(ctx context.Context, messages ...redisMessage) error {
	if len(messages) == 0 {
		return nil
	}
	err := r.send(ctx, messages...)
	if err != nil && !errors.Is(err, ErrClosed) {
		r.counters.publishErrors.Add(1)
	}
	return err
}

// send sends one or more messages as one pipeline, within PublishTimeout.
func (r *Redis) send(ctx context.Context, messages ...redisMessage) (err error) {
	if err := r.enter(); err != nil {
		return err
	}
	defer r.running.Done()
	defer func() {
		if err != nil {
			r.lookAgain()
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, r.cfg.PublishTimeout)
	defer cancel()
	bySlot, err := r.bySlot(ctx, messages[0].channel)
	if err != nil {
		return err
	}
	pipe := r.client.Pipeline()
	for _, m := range messages {
		m.payload = r.keys.sign(m.channel, m.payload)
		if err := pipe.Process(ctx, m.command(ctx, bySlot)); err != nil {
			return err
		}
	}
	_, err = pipe.Exec(ctx)
	return err
}

// Wakes implements [Bus]. It returns [ErrClosed] if the bus is closed before ctx is done.
func (r *Redis) Wakes(ctx context.Context, wake func(partition int)) error {
	l, err := r.listen(wakeChannel,
		func(channel, payload string) {
			var partitions []int
			if err := json.Unmarshal([]byte(payload), &partitions); err != nil {
				r.malformed(channel, fmt.Errorf("decode partitions: %w", err))
				return
			}
			for _, p := range partitions {
				wake(p)
			}
		},
		func() {}, // A lost wake delays events by milliseconds, since projectors also poll.
	)
	if err != nil {
		return err
	}
	defer l.close()
	l.want(wakeChannel)
	select {
	case <-ctx.Done():
		return nil
	case <-l.done:
		return ErrClosed
	}
}

// malformed counts and logs a message that was dropped.
func (r *Redis) malformed(channel string, err error) {
	n := r.counters.malformed.Add(1)
	r.malformedLog.Do(func() {
		r.cfg.Logger.Warn("message dropped: not understood", "channel", channel, "error", err, "dropped", n)
	})
}

// unsigned counts and logs a message that was dropped because none of the keys has signed it.
func (r *Redis) unsigned(channel string) {
	n := r.counters.unsigned.Add(1)
	r.unsignedLog.Do(func() {
		r.cfg.Logger.Warn("message dropped: not signed", "channel", channel, "error", "signed with no key of this process", "dropped", n)
	})
}

// enter registers an operation of the caller: Close waits until the caller calls running.Done.
// enter returns [ErrClosed] if the bus is closed.
func (r *Redis) enter() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return ErrClosed
	}
	r.running.Add(1)
	return nil
}

// listen starts a listener for channels with the given tag (see [canaryChannel]). The listener
// runs until the listener or the bus is closed.
func (r *Redis) listen(tag string, onMessage func(channel, payload string), onGap func()) (*redisListener, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	l := &redisListener{
		redisInterests: newRedisInterests(),
		bus:            r,
		tag:            tag,
		onMessage:      onMessage,
		onGap:          onGap,
		done:           make(chan struct{}),
	}
	l.ctx, l.cancel = context.WithCancel(r.ctx)
	r.away.Add(1)
	go l.run()
	return l, nil
}

// Close implements [Bus]. It waits for Publish calls in progress.
func (r *Redis) Close() error {
	r.mu.Lock()
	first := r.ctx.Err() == nil
	r.end()
	r.mu.Unlock()
	r.running.Wait()
	if !first {
		return nil
	}
	if err := r.client.Close(); err != nil {
		return fmt.Errorf("pubsub: close the Redis client: %w", err)
	}
	return nil
}

// Connected reports whether every subscription and every call of Wakes has all its connections to
// Redis. While a connection of a subscription is lost, updates are lost too. Connected is safe for
// concurrent use.
func (r *Redis) Connected() bool { return r.away.Load() == 0 }

// Ping checks that Redis answers on the connections that publish.
func (r *Redis) Ping(ctx context.Context) error {
	if err := r.client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("pubsub: ping: %w", err)
	}
	return nil
}

// Stats returns the counters of the bus. It is safe for concurrent use.
func (r *Redis) Stats() Stats { return r.counters.stats() }
