package main

import (
	"context"
	"errors"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/badged/badged/internal/privateredis"
)

// redis is the server that rivals run on, in its own words.
type redis struct {
	Version  string      `json:"version"`
	Settings []parameter `json:"settings"`
}

// redisAsShipped are the arguments that undo what privateredis turns off: the
// snapshots that a Redis without a configuration file takes. It keeps no file
// of commands, so that what was answered in the last minutes is lost with it.
func redisAsShipped() []string { return []string{"--save", "3600 1 300 100 60 10000"} }

// examineRedis reads the settings of the servers that rivals get.
func examineRedis(ctx context.Context) (says redis, err error) {
	server, err := privateredis.Start(ctx, privateredis.Config{Args: redisAsShipped()})
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
		says.Settings = append(says.Settings, parameter{name, answer[name]})
	}
	return says, nil
}
