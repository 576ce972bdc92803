package rig

import (
	"context"
	"errors"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/badged/badged/internal/devtest/privateredis"
)

// Redis is the version and settings of the rivals' server, as it reports them.
type Redis struct {
	Version  string      `json:"version"`
	Settings []Parameter `json:"settings"`
}

// RedisAsShipped turns on what privateredis turns off: the snapshots that Redis
// takes by default. There is no append-only file, so a crash loses acknowledged
// writes of the last minutes.
func RedisAsShipped() []string { return []string{"--save", "3600 1 300 100 60 10000"} }

// examineRedis reads the version and settings of the rivals' servers.
func examineRedis(ctx context.Context) (says Redis, err error) {
	server, err := privateredis.Start(ctx, privateredis.Config{Args: RedisAsShipped()})
	if err != nil {
		return says, err
	}
	defer server.Stop()
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	defer func() { err = errors.Join(err, client.Close()) }()
	info, err := client.InfoMap(ctx, "server").Result()
	if err != nil {
		return says, fmt.Errorf("ask Redis for its version: %w", err)
	}
	says.Version = info["Server"]["redis_version"]
	for _, name := range []string{"save", "appendonly", "maxmemory", "io-threads"} {
		answer, err := client.ConfigGet(ctx, name).Result()
		if err != nil {
			return says, fmt.Errorf("ask Redis for %s: %w", name, err)
		}
		says.Settings = append(says.Settings, Parameter{name, answer[name]})
	}
	return says, nil
}
