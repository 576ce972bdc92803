package pubsub

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/redis/go-redis/v9"
)

// Settings that override the URL.
const (
	// noRetries is go-redis's word for none; see [RedisConfig].URL.
	noRetries = -1
	// oneDial leaves the backoff to the caller.
	oneDial = 1
	// resp2 needs no pushed frames between replies.
	resp2 = 2
)

// openRedis returns a client of what rawURL names. It does not connect. Its
// contexts' deadlines hold for reads and writes.
func openRedis(rawURL string) (redis.UniversalClient, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		// The error would quote the URL, and with it the password.
		return nil, errors.New("pubsub: the Redis URL cannot be parsed: " +
			"it looks like redis://USER:PASSWORD@HOST:PORT/0, with user and password percent-encoded")
	}
	switch query := u.Query(); {
	case query.Has("master_name"):
		return openSentinel(rawURL)
	case query.Has("addr"):
		return openCluster(rawURL)
	default:
		return openSingle(rawURL)
	}
}

func openSingle(rawURL string) (redis.UniversalClient, error) {
	opt, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("pubsub: parse the Redis URL: %w", err)
	}
	opt.MaxRetries, opt.DialerRetries = noRetries, oneDial
	opt.Protocol = resp2
	opt.ContextTimeoutEnabled = true
	opt.Dialer = newRedisDialer(opt.DialTimeout, opt.TLSConfig)
	return redis.NewClient(opt), nil
}

func openCluster(rawURL string) (redis.UniversalClient, error) {
	opt, err := redis.ParseClusterURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("pubsub: parse the Redis Cluster URL: %w", err)
	}
	opt.MaxRetries, opt.DialerRetries = noRetries, oneDial
	opt.Protocol = resp2
	opt.ContextTimeoutEnabled = true
	opt.Dialer = newRedisDialer(opt.DialTimeout, opt.TLSConfig)
	return redis.NewClusterClient(opt), nil
}

func openSentinel(rawURL string) (redis.UniversalClient, error) {
	opt, err := redis.ParseFailoverURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("pubsub: parse the Redis Sentinel URL: %w", err)
	}
	if opt.RouteByLatency || opt.RouteRandomly || opt.ReplicaOnly {
		return nil, errors.New("pubsub: the Redis Sentinel URL asks for replicas, " +
			"but updates must be published to the master: " +
			"remove route_by_latency, route_randomly and replica_only")
	}
	opt.MaxRetries, opt.DialerRetries = noRetries, oneDial
	opt.Protocol = resp2
	opt.ContextTimeoutEnabled = true
	opt.Dialer = newRedisDialer(opt.DialTimeout, opt.TLSConfig)
	return redis.NewFailoverClient(opt), nil
}
