package pubsub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/internal/defaults"
)

// Defaults of [RedisConfig].
const (
	DefaultPublishTimeout = 2 * time.Second
	DefaultPingInterval   = 3 * time.Second
	DefaultPongTimeout    = 3 * time.Second
)

// RedisConfig configures a [Redis] bus. Zero durations mean the defaults.
type RedisConfig struct {
	// URL is a go-redis URL: redis://, rediss:// or unix://. One or more
	// addr=HOST:PORT parameters make it the seeds of a cluster (repeat a single
	// seed as a parameter); master_name=NAME makes it the Sentinels of a master.
	// Required.
	//
	// The parameters max_retries, dialer_retries and protocol have no effect. A
	// publish is never retried: that would break the order, and the next
	// reconciliation repairs the loss. Pub/sub needs no RESP3.
	URL string

	// Keys are secrets of at least MinKeyBytes that the processes share. The first
	// signs every message; messages signed with none of them are dropped, so
	// that only holders of a key can reach clients. Default: messages are not
	// signed, and updates of any publisher on the Redis reach clients, until
	// these are compared with the tables.
	Keys []string

	// PublishTimeout bounds a Publish or Wake from dial to reply. Default 2s.
	PublishTimeout time.Duration

	// PingInterval is how often each subscription pings Redis and publishes a
	// canary to itself. Two canaries in a row that Redis accepts but does not
	// deliver end the connection, as silence does. Default 3s.
	PingInterval time.Duration

	// PongTimeout is how long Redis may stay silent after a ping before the
	// subscription reconnects. A frozen Redis is thus noticed within
	// PingInterval + PongTimeout. Default 3s.
	PongTimeout time.Duration

	// Logger gets lost and restored connections and dropped messages. Default:
	// discarded.
	Logger *slog.Logger
}

// MinKeyBytes is the least length of a key of a [RedisConfig]: guessing a shorter one
// from signed messages might be feasible.
const MinKeyBytes = 32

// check fills in the defaults and returns what is wrong.
func (c *RedisConfig) check() error {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
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

// Redis is a bus for several processes: Redis pub/sub with a channel per user
// and one per room and partition.
//
// Each subscription has its own connection, so that a slow one delays no other.
// In a cluster it has one for each partition of its addresses. A subscription
// replaces a connection that is lost or silent; when all addresses are joined again,
// it calls HandleGap. Redis disconnects a subscriber that lags too far behind
// (client-output-buffer-limit), which is a loss like any other.
//
// In a cluster with sharded pub/sub (Redis 7.0 and later), only the shard of a
// partition carries its updates. Older clusters use classic pub/sub, where every
// node forwards every message to all others.
type Redis struct {
	cfg      RedisConfig
	client   redis.UniversalClient
	cluster  *redisCluster // nil without a cluster
	counters counters
	keys     keys
	// Messages that were dropped.
	unsignedDrops, malformedDrops complaints

	mu        sync.Mutex
	closed    bool
	listeners map[*redisListener]struct{}
	sends     sync.WaitGroup // sends under way; none starts once closed
}

var _ Bus = (*Redis)(nil)

// NewRedis returns a bus on the Redis of cfg, or an error if cfg is invalid. It
// does not connect: while Redis is down, Publish and Wake fail and Join waits.
func NewRedis(cfg RedisConfig) (*Redis, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("pubsub: %w", err)
	}
	client, err := openRedis(cfg.URL)
	if err != nil {
		return nil, err
	}
	r := &Redis{cfg: cfg, client: client, keys: newKeys(cfg.Keys), listeners: make(map[*redisListener]struct{})}
	if c, ok := client.(*redis.ClusterClient); ok {
		r.cluster = &redisCluster{client: c}
	}
	return r, nil
}

// Publish implements [Bus] with one pipeline. It returns when Redis has accepted
// the updates, at most after [RedisConfig].PublishTimeout.
func (r *Redis) Publish(ctx context.Context, updates []Update) error {
	if err := sendUpdates(ctx, r, updates, (*Update).Address); err != nil {
		return fmt.Errorf("pubsub: publish %d updates: %w", len(updates), err)
	}
	return nil
}

// PublishRooms implements [Bus] as Publish does.
func (r *Redis) PublishRooms(ctx context.Context, updates []RoomUpdate) error {
	if err := sendUpdates(ctx, r, updates, (*RoomUpdate).Address); err != nil {
		return fmt.Errorf("pubsub: publish %d updates of rooms: %w", len(updates), err)
	}
	return nil
}

func sendUpdates[U any](ctx context.Context, r *Redis, updates []U, address func(*U) Address) error {
	if len(updates) == 0 {
		return nil
	}
	messages := make([]redisMessage, len(updates))
	for i := range updates {
		payload, err := json.Marshal(&updates[i])
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		messages[i] = redisMessage{channelOf(address(&updates[i])), payload}
	}
	return r.send(ctx, messages...)
}

// HasSubscribers implements [Bus]. It is always true: only Redis knows.
// ADR 4 says why it always answers yes.
func (r *Redis) HasSubscribers(Address) bool { return true }

// Wake implements [Bus]. It returns at most after [RedisConfig].PublishTimeout.
func (r *Redis) Wake(ctx context.Context, partitions []int) error {
	if len(partitions) == 0 {
		return nil
	}
	payload, err := json.Marshal(partitions)
	if err != nil {
		return fmt.Errorf("pubsub: encode partitions: %w", err)
	}
	if err := r.send(ctx, redisMessage{wakeChannel, payload}); err != nil {
		return fmt.Errorf("pubsub: wake partitions %v: %w", partitions, err)
	}
	return nil
}

// send publishes one or more messages and counts failures.
func (r *Redis) send(ctx context.Context, messages ...redisMessage) error {
	err := r.execute(ctx, messages...)
	if err != nil && !errors.Is(err, ErrClosed) {
		r.counters.publishErrors.Add(1)
	}
	return err
}

// execute publishes messages as one pipeline, within PublishTimeout.
func (r *Redis) execute(ctx context.Context, messages ...redisMessage) error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return ErrClosed
	}
	r.sends.Add(1)
	r.mu.Unlock()
	defer r.sends.Done()

	ctx, cancel := context.WithTimeout(ctx, r.cfg.PublishTimeout)
	defer cancel()
	err := r.pipeline(ctx, messages)
	if err != nil {
		r.lookAgain() //nolint:contextcheck // it goes on after the publish
	}
	return err
}

func (r *Redis) pipeline(ctx context.Context, messages []redisMessage) error {
	sharded, err := r.sharded(ctx, messages[0].channel)
	if err != nil {
		return err
	}
	pipe := r.client.Pipeline()
	for _, m := range messages {
		m.payload = r.keys.sign(m.channel, m.payload)
		if err := pipe.Process(ctx, m.command(ctx, sharded)); err != nil {
			return err
		}
	}
	_, err = pipe.Exec(ctx)
	return err
}

// Wakes implements [Bus]. It returns [ErrClosed] when the bus is closed before
// ctx is done.
func (r *Redis) Wakes(ctx context.Context, wake func(partition int)) error {
	l, err := r.listen(wakeChannel, //nolint:contextcheck // a listener has a context of its own
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
		func() {}, // Projectors poll: a lost wake is milliseconds.
	)
	if err != nil {
		return err
	}
	defer r.end(l)
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
	r.counters.malformed.Add(1)
	r.malformedDrops.log(r.cfg.Logger, "message dropped: not understood", channel, err)
}

// errUnsigned reports a message whose publisher has none of the keys.
var errUnsigned = errors.New("no key of this process has signed it")

// unsigned counts and logs a message that was dropped.
func (r *Redis) unsigned(channel string) {
	r.counters.unsigned.Add(1)
	r.unsignedDrops.log(r.cfg.Logger, "message dropped: not signed", channel, errUnsigned)
}

// listen starts a listener to channels with a tag (see [canaryChannel]). It ends
// with the bus.
func (r *Redis) listen(tag string, onMessage func(channel, payload string), onGap func()) (*redisListener, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, ErrClosed
	}
	l := newRedisListener(r, tag, onMessage, onGap)
	r.listeners[l] = struct{}{}
	go l.run()
	return l, nil
}

// end stops a listener and returns when none of its callbacks runs any more.
func (r *Redis) end(l *redisListener) {
	l.close()
	r.mu.Lock()
	delete(r.listeners, l)
	r.mu.Unlock()
}

func (r *Redis) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// Close implements [Bus]. It waits for Publish calls in progress.
func (r *Redis) Close() error {
	r.mu.Lock()
	first := !r.closed
	r.closed = true
	listeners := make([]*redisListener, 0, len(r.listeners))
	for l := range r.listeners {
		listeners = append(listeners, l)
	}
	r.mu.Unlock()
	for _, l := range listeners {
		r.end(l)
	}
	r.sends.Wait()
	if !first {
		return nil
	}
	if err := r.client.Close(); err != nil {
		return fmt.Errorf("pubsub: close the Redis client: %w", err)
	}
	return nil
}

// Connected reports whether every subscription has a live connection. While one
// has none, updates of its users are lost. It is safe for concurrent use.
func (r *Redis) Connected() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.listeners {
		if !l.connected.Load() {
			return false
		}
	}
	return true
}

// Ping checks that Redis answers on the connections that publish.
func (r *Redis) Ping(ctx context.Context) error {
	if err := r.client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("pubsub: ping: %w", err)
	}
	return nil
}

// Stats returns the counters of the bus. It is safe for concurrent use.
func (r *Redis) Stats() Stats { return r.counters.stats() }
