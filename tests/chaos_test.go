//go:build chaos

package tests

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/privateredis"
)

var (
	chaosFor  = flag.Duration("chaos", 10*time.Second, "how long TestChaos disturbs everything")
	chaosSeed = flag.Uint64("chaos-seed", 0, "what TestChaos draws its load, faults and commands from; 0 draws it too")
)

const (
	chaosShards     = 3
	chaosServers    = 2
	chaosPartitions = 8
	chaosStream     = "chat"
	// chaosSettles is how long the system may take to reach the right state after the faults.
	chaosSettles = 5 * time.Minute
)

// Everything at once, on three shards. Events come over HTTP, in SQL, from a broker and from an
// outbox. Apps are connected over WebSockets and server-sent events. Operators move and split
// partitions, archive, rebuild and erase. Meanwhile servers, shards and Redis are killed and
// frozen, and links are cut. In the end each badge equals the result of a model that knows only
// which events were acknowledged.
func TestChaos(t *testing.T) {
	t.Parallel()
	c := newChaos(t)
	c.connectApps()
	var writers []func(done <-chan struct{})
	for _, w := range c.writers {
		writers = append(writers, w.write)
	}
	stopWriters := c.work(writers...)
	stopOperators := c.work(c.rearrange, c.operate)
	c.disturb()
	stopOperators()
	c.finishOperations()
	stopWriters()
	if !t.Failed() {
		c.check()
	}
}

// chaos is a system with all its parts.
type chaos struct {
	t      *testing.T
	seed   uint64
	random *rand.Rand // of the test's goroutine
	// ctx ends when the run takes too long or has failed.
	ctx    context.Context
	cancel func()

	shards        []*pgtest.Server
	urls, flags   []string // of the shards, without links
	outbox        *pgtest.Server
	outboxURL     string
	bus, broker   *privateredis.Server
	links         map[string]*link // by name
	servers       []*chaosProgram
	programs      []*chaosProgram // the servers, and ingest, relay and tail
	archive       string          // a folder
	talks         []*chaosTalk
	writers       []*chaosWriter
	apps          []*chaosApp
	acknowledged  atomic.Int64
	unfinished    map[int]bool // partitions whose split was begun
	began         time.Time
	faults, moves int
}

// chaosProgram is a process that is started again whenever it ends.
type chaosProgram struct {
	name string
	args []string
	url  string // of a server, also after it was started again
	p    *process
}

func newChaos(t *testing.T) *chaos {
	t.Helper()
	c := &chaos{t: t, seed: *chaosSeed, links: map[string]*link{}, unfinished: map[int]bool{}, began: time.Now()}
	if c.seed == 0 {
		c.seed = rand.Uint64() >> 32
	}
	t.Cleanup(func() { // registered first, so that it runs after the output of the processes
		if t.Failed() {
			t.Logf("again, as far as the machine goes along: go test ./tests -run TestChaos -v -chaos=%s -chaos-seed=%d", *chaosFor, c.seed)
		}
	})
	c.random = c.randomOf("faults")
	c.ctx, c.cancel = context.WithTimeout(t.Context(), *chaosFor+2*chaosSettles)
	t.Cleanup(c.cancel)
	for range chaosShards {
		server := pgtest.NewServer(t)
		c.shards = append(c.shards, server)
		c.urls = append(c.urls, server.NewDB(t, pgtest.Template{}))
	}
	c.flags = shardFlags(c.urls)
	must(t, append([]string{"migrate", "up", fmt.Sprint("--partitions=", chaosPartitions)}, c.flags...)...)
	c.outbox = pgtest.NewServer(t)
	c.outboxURL = newOutbox(t, c.outbox)
	c.bus = newRedis(t)
	broker, err := privateredis.Start(t.Context(), privateredis.Config{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Stop)
	c.broker = broker
	c.archive = filepath.Join(t.TempDir(), "archive")
	c.startPrograms()

	http := func(name string) func(ctx context.Context, batch []string) error {
		return c.overHTTP(c.randomOf("servers of " + name))
	}
	sql := c.newWriter("sql", 1, 0, 1, c.inSQL())
	sql.talks[0].users = sql.talks[0].users[:1]
	c.writers = []*chaosWriter{
		c.newWriter("single", 3, 1, 1, http("single")),
		c.newWriter("batches", 3, 1, 20, http("batches")),
		c.newWriter("more batches", 2, 2, 10, http("more batches")),
		c.newWriter("stream", 2, 1, 10, c.toStream(newRedisClient(t, broker))),
		c.newWriter("outbox", 2, 1, 5, c.inOutbox()),
		sql,
	}
	return c
}

// randomOf returns the source of random numbers for a part of the test.
func (c *chaos) randomOf(what string) *rand.Rand {
	hash := fnv.New64()
	_, _ = hash.Write([]byte(what)) // never fails
	return rand.New(rand.NewPCG(c.seed, hash.Sum64()))
}

// note adds a line to the history, which is printed if the test fails.
func (c *chaos) note(format string, args ...any) {
	c.t.Logf("%.3fs: %s", time.Since(c.began).Seconds(), fmt.Sprintf(format, args...))
}

// work runs functions in goroutines until stop is called or the test ends; both wait for them.
func (c *chaos) work(each ...func(done <-chan struct{})) (stop func()) {
	done, working := make(chan struct{}), sync.WaitGroup{}
	for _, f := range each {
		working.Go(func() { f(done) })
	}
	stop = sync.OnceFunc(func() { close(done); working.Wait() })
	c.t.Cleanup(func() { c.cancel(); stop() })
	return stop
}

// startPrograms starts the servers, each with its own links to the shards and to Redis, and the
// programs that carry events in and out: ingest, relay and tail.
func (c *chaos) startPrograms() {
	c.t.Helper()
	over := func(who string) (flags []string) {
		var urls []string
		for i, url := range c.urls {
			name := fmt.Sprintf("%s to shard %c", who, 'a'+i)
			l, linked := newLink(c.t, url)
			c.links[name] = l
			urls = append(urls, linked)
		}
		return shardFlags(urls)
	}
	for n := range chaosServers {
		name := fmt.Sprintf("server %d", n)
		l, bus := newLink(c.t, c.bus.URL())
		c.links[name+" to Redis"] = l
		args := append([]string{"--redis-url=" + bus, "--reconcile-interval=2s", "--expire=fleeting=24h"}, over(name)...)
		p := launch(c.t, nil, append([]string{"serve", "--listen=127.0.0.1:0"}, args...)...)
		again := append([]string{"serve", "--listen=" + strings.TrimPrefix(p.url, "http://")}, args...)
		c.servers = append(c.servers, &chaosProgram{name: name, args: again, url: p.url, p: p})
	}
	c.programs = append(c.programs, c.servers...)
	for name, args := range map[string][]string{
		"ingest": {"--from=" + c.broker.URL() + "?stream=" + chaosStream},
		"relay":  {"--outbox-url=" + c.outboxURL},
		"tail":   {"--to=" + c.broker.URL() + "?stream=told"},
	} {
		program := &chaosProgram{name: name, args: append(append([]string{name, "--listen=127.0.0.1:0"}, args...), over(name)...)}
		program.p = start(c.t, nil, program.args...)
		c.programs = append(c.programs, program)
	}
}

// anyServer returns the URL of a server, which may be down.
func (c *chaos) anyServer(random *rand.Rand) string { return c.servers[random.IntN(chaosServers)].url }
