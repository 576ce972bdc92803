package resp

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"
)

// Config has the settings of a client that its URL does not contain.
type Config struct {
	PoolSize int // 0 means the size in the URL
	// NoRetries makes go-redis send each command only once. By default it retries as often as the
	// URL says.
	NoRetries bool
	// Dial, if not nil, returns the dialer that a client uses. Its argument is the dialer of this
	// package, whose connections have the limits of this package.
	Dial func(Dial) Dial
}

const defaultDialTimeout = 5 * time.Second

// Opener returns a function that creates clients for a URL of go-redis. The URL names a server.
// With the parameter addr it names a cluster, and with the parameter master_name a master that
// Sentinels monitor. A client connects when it sends its first command. If dialing fails, it does
// not dial again by itself. Its reads and writes obey the deadlines of contexts.
func Opener(rawURL string, c Config) (func() redis.UniversalClient, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		// Do not return err: its text quotes the URL, which may contain the password.
		return nil, errors.New("the Redis URL cannot be parsed: " +
			"it looks like redis://USER:PASSWORD@HOST:PORT/0, with user and password percent-encoded")
	}
	switch query := u.Query(); {
	case query.Has("master_name"):
		opt, err := redis.ParseFailoverURL(rawURL)
		if err != nil {
			return nil, fmt.Errorf("parse the Redis Sentinel URL: %w", err)
		}
		if opt.RouteByLatency || opt.RouteRandomly || opt.ReplicaOnly {
			return nil, errors.New("the Redis Sentinel URL asks for replicas, but badged needs the master: " +
				"remove route_by_latency, route_randomly and replica_only")
		}
		c.set(&opt.PoolSize, &opt.MaxRetries, &opt.DialerRetries, &opt.Protocol, &opt.ContextTimeoutEnabled)
		opt.Dialer = c.dialer(opt.DialTimeout, opt.TLSConfig)
		return func() redis.UniversalClient { return redis.NewFailoverClient(opt) }, nil
	case query.Has("addr"):
		opt, err := redis.ParseClusterURL(rawURL)
		if err != nil {
			return nil, fmt.Errorf("parse the Redis Cluster URL: %w", err)
		}
		c.set(&opt.PoolSize, &opt.MaxRetries, &opt.DialerRetries, &opt.Protocol, &opt.ContextTimeoutEnabled)
		opt.Dialer = c.dialer(opt.DialTimeout, opt.TLSConfig)
		return func() redis.UniversalClient { return redis.NewClusterClient(opt) }, nil
	default:
		opt, err := redis.ParseURL(rawURL)
		if err != nil {
			return nil, fmt.Errorf("parse the Redis URL: %w", err)
		}
		c.set(&opt.PoolSize, &opt.MaxRetries, &opt.DialerRetries, &opt.Protocol, &opt.ContextTimeoutEnabled)
		opt.Dialer = c.dialer(opt.DialTimeout, opt.TLSConfig)
		return func() redis.UniversalClient { return redis.NewClient(opt) }, nil
	}
}

// set overrides settings that come from the URL.
func (c Config) set(poolSize, maxRetries, dialerRetries, protocol *int, contextTimeouts *bool) {
	*poolSize = cmp.Or(c.PoolSize, *poolSize)
	if c.NoRetries {
		*maxRetries = -1 // means no retries in go-redis
	}
	*dialerRetries, *protocol, *contextTimeouts = 1, 2, true
}

func (c Config) dialer(timeout time.Duration, config *tls.Config) Dial {
	dial := dialer(cmp.Or(timeout, defaultDialTimeout), config)
	if c.Dial == nil {
		return dial
	}
	return c.Dial(dial)
}
