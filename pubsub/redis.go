package pubsub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Defaults of [RedisConfig].
const (
	DefaultPublishTimeout = 2 * time.Second
	DefaultPingInterval   = 3 * time.Second
	DefaultPongTimeout    = 3 * time.Second
)

// RedisConfig says how to reach a Redis and how long to believe in it.
type RedisConfig struct {
	// URL is as go-redis takes it: redis://, rediss:// or unix://. With one or
	// more addr=HOST:PORT parameters it names the seeds of a cluster (give the
	// first once more where there is only one), with master_name=NAME the
	// Sentinels of a master. Required.
	//
	// The parameters max_retries, dialer_retries and protocol have no effect: a
	// publish is not repeated, since that would disturb the order and the next
	// reconciliation repairs its loss, and pub/sub needs no RESP3.
	URL string

	// PublishTimeout bounds a Publish or Wake from dial to reply. Default 2s.
	PublishTimeout time.Duration

	// PingInterval is how often each subscription makes Redis speak, and how often
	// it publishes a canary to itself: two in a row that Redis takes and that do
	// not arrive end its connection like silence. Default 3s.
	PingInterval time.Duration

	// PongTimeout is how long after a ping Redis may stay silent before the
	// subscription gives the connection up and builds another. A frozen Redis is
	// thus noticed within PingInterval + PongTimeout. Default 3s.
	PongTimeout time.Duration

	// Logger is told of connections lost and found, and of messages that are not
	// understood. Default: nobody is.
	Logger *slog.Logger
}

func (c *RedisConfig) setDefaults() {
	if c.PublishTimeout == 0 {
		c.PublishTimeout = DefaultPublishTimeout
	}
	if c.PingInterval == 0 {
		c.PingInterval = DefaultPingInterval
	}
	if c.PongTimeout == 0 {
		c.PongTimeout = DefaultPongTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

func (c *RedisConfig) validate() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"PublishTimeout", c.PublishTimeout},
		{"PingInterval", c.PingInterval},
		{"PongTimeout", c.PongTimeout},
	} {
		if d.value < 0 {
			return fmt.Errorf("pubsub: %s is negative: %v", d.name, d.value)
		}
	}
	return nil
}

// Redis is the bus of several processes: Redis pub/sub, a channel per user.
//
// Each subscription has connections of its own, so that one that lags holds up
// nobody else: one, or in a cluster one for each partition that it has joined
// users of. A connection that is lost, or that stays silent, is built again for
// as long as the subscription lives; when every user on it is joined again,
// HandleGap is called. Redis itself ends the connection of a subscriber that lags
// far behind (its client-output-buffer-limit), which is a loss like any other.
//
// In a cluster that knows sharded pub/sub, from Redis 7.0 on, only the shard of
// a partition carries its updates. An older cluster uses classic pub/sub, which
// every node passes on to every other.
type Redis struct {
	cfg      RedisConfig
	client   redis.UniversalClient
	cluster  *redisCluster // nil where the client is not of a cluster
	counters counters

	mu        sync.Mutex
	closed    bool
	listeners map[*redisListener]struct{}
	sends     sync.WaitGroup // sends under way; none starts once closed
}

var _ Bus = (*Redis)(nil)

// NewRedis returns a bus on the Redis that cfg names. It does not connect: a
// Redis that is down is an error of Publish and Wake, and makes Join wait.
func NewRedis(cfg RedisConfig) (*Redis, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	client, err := openRedis(cfg.URL)
	if err != nil {
		return nil, err
	}
	r := &Redis{cfg: cfg, client: client, listeners: make(map[*redisListener]struct{})}
	if c, ok := client.(*redis.ClusterClient); ok {
		r.cluster = &redisCluster{client: c}
	}
	return r, nil
}

// Publish implements [Bus]: all updates in one pipeline. It does not block
// longer than [RedisConfig].PublishTimeout, and returns when Redis has taken the
// updates.
func (r *Redis) Publish(ctx context.Context, updates []Update) error {
	if len(updates) == 0 {
		return nil
	}
	messages := make([]redisMessage, len(updates))
	for i := range updates {
		u := &updates[i]
		payload, err := json.Marshal(u)
		if err != nil {
			return fmt.Errorf("pubsub: encode an update: %w", err)
		}
		messages[i] = redisMessage{channelOf(User{ID: u.UserID, Partition: u.Partition}), payload}
	}
	if err := r.send(ctx, messages...); err != nil {
		return fmt.Errorf("pubsub: publish %d updates: %w", len(updates), err)
	}
	return nil
}

// Heard implements [Bus]. Who listens, only Redis knows.
func (r *Redis) Heard(User) bool { return true }

// Wake implements [Bus]. It does not block longer than
// [RedisConfig].PublishTimeout.
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

// send publishes messages, of which there is one at least, and counts failures.
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
	r.cfg.Logger.Warn("message dropped: not understood", "channel", channel, "error", err)
}

// listen starts a listener to channels with a tag (see [canaryChannel]) that ends
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

// end ends a listener and returns when it calls nobody any more.
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

// Close implements [Bus]. It lets a Publish under way finish.
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

// Connected says whether every subscription has a connection on which Redis
// speaks. While one has none, its users' updates are lost. It may be called at
// any time.
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

// Ping asks Redis for an answer over the connections that publish.
func (r *Redis) Ping(ctx context.Context) error {
	if err := r.client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("pubsub: ping: %w", err)
	}
	return nil
}

// Stats returns what the bus has counted so far. It may be called at any time.
func (r *Redis) Stats() Stats { return r.counters.stats() }
