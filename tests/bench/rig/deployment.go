package rig

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/internal/devtest/privateredis"
	"github.com/badged/badged/tests/bench/contest"
)

// Deploy configures a deployment. The zero value is one process of this build with all roles, on a
// database with the default number of partitions.
type Deploy struct {
	// Binary is another build of badged; empty is this one.
	Binary string
	// Databases is how many databases share the partitions, if there are several.
	Databases int
	// Partitions is the number of partitions, 0 for the default.
	Partitions int
	// Apart starts a process for each role, and Redis between them.
	Apart bool
	// Args and Env are further arguments and environment variables of the servers.
	Args, Env []string
}

// String describes what is started.
func (c Deploy) String() string {
	says := "one process with all roles, in-process bus"
	if c.Apart {
		says = "three processes, one for each role, and Redis"
	}
	if c.Databases > 1 {
		says += fmt.Sprintf(", %d databases", c.Databases)
	}
	if c.Partitions > 0 {
		says += fmt.Sprintf(", %d partitions", c.Partitions)
	}
	return says
}

// Deployment is a running product on empty databases.
type Deployment struct {
	// API and Gateway are the servers to which publishers and clients connect.
	API, Gateway *Server
	Databases    []string // their URLs
}

// Deploy starts the product on new databases, until the end of the run.
func (r *Rig) Deploy(run *contest.Run, c Deploy) Deployment {
	var d Deployment
	if c.Binary == "" {
		c.Binary = r.Binary
	}
	var args []string
	for i := range max(1, c.Databases) {
		url, _ := r.Database(run)
		d.Databases = append(d.Databases, url)
		if c.Databases <= 1 {
			args = append(args, "--database-url="+url)
		} else { // as many connections as one database gets, in all
			args = append(args, fmt.Sprintf("--shard=s%d=%s&pool_max_conns=%d", i, url, max(2, 12/c.Databases)))
		}
	}
	migrate := append([]string{"migrate", "up"}, args...)
	if c.Partitions > 0 {
		migrate = append(migrate, fmt.Sprint("--partitions=", c.Partitions))
	}
	contest.Check(RunBinary(run.Context(), c.Binary, migrate...))
	args = append(args, c.Args...)
	if !c.Apart {
		d.API = Serve(run, c.Binary, c.Env, args...)
		d.Gateway = d.API
		return d
	}
	args = append(args, "--redis-url="+startRedis(run, privateredis.Config{}).URL())
	role := func(name string) *Server {
		return Serve(run, c.Binary, c.Env, append(slices.Clone(args), "--roles="+name)...)
	}
	role("projector")
	d.Gateway, d.API = role("gateway"), role("api")
	return d
}

// startRedis starts a server until the end of the run.
func startRedis(run *contest.Run, cfg privateredis.Config) *privateredis.Server {
	server := contest.Must(privateredis.Start(run.Context(), cfg))
	run.Cleanup(func(context.Context) error { server.Stop(); return nil })
	return server
}

// NewRedis starts a server for a rival until the end of the run, and returns a client. The server
// takes snapshots as Redis does by default, which privateredis turns off. There is no append-only
// file, so a crash loses acknowledged writes of the last minutes.
func NewRedis(run *contest.Run) *redis.Client {
	server := startRedis(run, privateredis.Config{Args: []string{"--save", "3600 1 300 100 60 10000"}})
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 64, ReadTimeout: time.Minute})
	run.Cleanup(func(context.Context) error { return client.Close() })
	return client
}
