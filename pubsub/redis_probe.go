package pubsub

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// RedisProbe describes a Redis server.
type RedisProbe struct {
	// Version is the version of the server, such as "7.0.15"; "" if the ACL denies INFO, which
	// is harmless.
	Version string
	// Mode is "standalone", "sentinel" or "cluster".
	Mode string
	// Sharded is true if the server has sharded pub/sub (Redis 7 and later).
	Sharded bool
}

// ProbeRedis checks that the Redis of a URL (see [RedisConfig]) delivers a published message:
// badged needs no other function of Redis. It also returns a description of the server. It
// returns an error at the latest when ctx is done. Its errors name the step that failed.
func ProbeRedis(ctx context.Context, url string) (RedisProbe, error) {
	client, err := openRedis(url)
	if err != nil {
		return RedisProbe{}, err
	}
	defer client.Close()
	info, err := client.Info(ctx, "server").Result()
	if err != nil && !strings.HasPrefix(err.Error(), "NOPERM") {
		return RedisProbe{}, fmt.Errorf("read the version of Redis: %w", err)
	}
	p := RedisProbe{}
	for line := range strings.Lines(info) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "redis_version":
			p.Version = text
		case "redis_mode":
			p.Mode = text
		}
	}
	major, _, _ := strings.Cut(p.Version, ".")
	if n, err := strconv.Atoi(major); err == nil {
		p.Sharded = n >= 7
	}
	return p, passOn(ctx, client)
}

// passOn publishes a message on a new channel and waits until it arrives.
func passOn(ctx context.Context, client redis.UniversalClient) error {
	channel := "badged:probe:" + rand.Text()
	subscription := client.Subscribe(ctx, channel)
	defer subscription.Close()
	if _, err := receiveFrom(ctx, subscription, 0); err != nil { // the acknowledgement
		return fmt.Errorf("subscribe to %s: %w", channel, err)
	}
	if err := client.Publish(ctx, channel, "probe").Err(); err != nil {
		return fmt.Errorf("publish to %s: %w", channel, err)
	}
	for {
		message, err := receiveFrom(ctx, subscription, 0)
		switch message.(type) {
		case *redis.Message:
			return nil
		case nil:
			if err == nil {
				err = errors.New("no message came")
			}
			return fmt.Errorf("wait for the message published to %s: %w", channel, err)
		}
	}
}
