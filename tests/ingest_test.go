package tests

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// ingestKills is how often each test kills a process that ingests.
var ingestKills = flag.Int("ingest-kills", 3, "how often the tests of ingesting kill a process")

// inLog returns how many events the log has, including repeated events.
func inLog(t *testing.T, conn *pgx.Conn) (n int) {
	t.Helper()
	for p := range partitions {
		n += valueIn[int](t, conn, "SELECT coalesce(sum(events), 0)::int FROM badged."+events.Topic(p))
	}
	return n
}

// startIngest starts `badged ingest` without waiting.
func startIngest(t *testing.T, database, from string, args ...string) *process {
	t.Helper()
	return start(t, nil, append([]string{"ingest", "--listen=127.0.0.1:0", "--database-url=" + database, "--from=" + from}, args...)...)
}

// Processes that ingest from Redis Streams, and Postgres itself, are killed at random while entries
// are added. In the end every entry is in the log once, and badges are right.
func TestIngestFromRedisOverKills(t *testing.T) {
	t.Parallel()
	postgres := pgtest.NewServer(t)
	database := newDatabaseOn(t, postgres)
	server := newRedis(t)
	p := serve(t, database, "--roles=api,projector,gateway,ingest") // has the role ingest, but no broker is configured
	from := server.URL() + "?stream=one,two"
	processes := []*process{startIngest(t, database, from), startIngest(t, database, from)}
	for _, one := range processes {
		one.awaitReady()
	}

	client := newRedisClient(t, server)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	added := make(chan int, 1)
	go func() { added <- addEntries(ctx, client) }()

	conn := pgtest.Connect(t, database)
	count := func() int {
		return valueIn[int](t, conn, `SELECT coalesce(sum(messages), 0)::int FROM badged.ingest_positions`)
	}
	for kill := range *ingestKills {
		before := count()
		await(t, "progress after a kill", func() bool { return count() > before+100 })
		time.Sleep(rand.N(20 * time.Millisecond)) //nolint:forbidigo // the moment of the kill is random
		if kill%3 < 2 {
			processes[kill%3].kill()
			processes[kill%3] = startIngest(t, database, from)
			continue
		}
		_ = conn.Close(t.Context())
		postgres.Kill()
		restart(t, postgres)
		conn = pgtest.Connect(t, database)
	}
	stop()
	n := <-added
	await(t, fmt.Sprintf("%d entries to be read", n), func() bool { return count() >= n })
	if read, stored := count(), logged(t, database); read != n || stored != n {
		t.Errorf("of %d entries %d were read, and the log has %d events", n, read, stored)
	}
	p.awaitAnswer(http.MethodGet, "/v1/users/ann/badge", "", http.StatusOK, "") // not while shards are unavailable after the restart
	ann := connect(t, p.url, "ann")
	ann.awaitTotal(int64(n))
}

// addEntries adds messages to ann to two streams until ctx is done, and returns how many. Each
// stream has its own conversation: one stream may be read far later than the other, and its
// messages would then be too old for exact counts in a shared conversation.
func addEntries(ctx context.Context, client *redis.Client) (n int) {
	rate := time.NewTicker(5 * time.Millisecond)
	defer rate.Stop()
	for ctx.Err() == nil {
		<-rate.C
		_, err := client.Pipelined(context.WithoutCancel(ctx), func(p redis.Pipeliner) error {
			for range 50 {
				n++
				stream := []string{"one", "two"}[n%2]
				p.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []string{"payload", delivered(stream, (n+1)/2, `"ann"`)}})
			}
			return nil
		})
		if err != nil {
			return -1
		}
	}
	return n
}

// A server has the role ingest besides its other roles. A message that is no event becomes a dead
// letter that names the message's place in the broker.
func TestServerIngests(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	server := newRedis(t)
	p := serve(t, database, "--from="+server.URL()+"?stream=chat&name=legacy")
	client := newRedisClient(t, server)
	for _, payload := range []string{"hello", delivered("c", 1, `"ann"`)} {
		addTo(t, client, "chat", payload)
	}
	ann := connect(t, p.url, "ann")
	ann.awaitTotal(1)
	awaitMetric(t, p, `badged_ingest_dead_letters_total{broker="legacy",stream="chat"}`, 1)
	if out := must(t, "deadletters", "list", "--database-url="+database); !strings.Contains(out, "legacy/chat/") || !strings.Contains(out, "not valid JSON") {
		t.Errorf("the list:\n%s", out)
	}
	fails(t, 1, "not valid JSON", "deadletters", "retry", "--all", "--database-url="+database)
	if out := must(t, "deadletters", "discard", "--all", "--database-url="+database); !strings.Contains(out, `"origin":"legacy/chat/`) || strings.Contains(out, `"partition"`) {
		t.Errorf("discard printed %s", out)
	}
}

// A server with further roles starts while its broker is unavailable, and reports that.
func TestServerStartsWithoutItsBroker(t *testing.T) {
	t.Parallel()
	server := newRedis(t)
	server.Stop()
	p := serve(t, newDatabase(t), "--from="+server.URL()+"?stream=chat")
	p.awaitAnswer(http.MethodGet, "/readyz", "", http.StatusOK, `"ingest":"redis: --from redis://`)
}

// Processes that ingest, and each shard in turn, are killed while entries are added for users of
// both shards. In the end the log has every entry once for each of its users.
func TestIngestToShardsOverKills(t *testing.T) {
	t.Parallel()
	s := newRelayedStack(t)
	server := newRedis(t)
	run := func(i int) *process { // in either order
		flags := []string{s.flags[i%2], s.flags[1-i%2]}
		return start(t, nil, append([]string{"ingest", "--listen=127.0.0.1:0", "--from=" + server.URL() + "?stream=chat"}, flags...)...)
	}
	processes := []*process{run(0), run(1)}
	for _, one := range processes {
		one.awaitReady()
	}
	client := newRedisClient(t, server)
	n := 0
	add := func() {
		t.Helper()
		for range 200 {
			n++
			addTo(t, client, "chat", delivered("c", n, fmt.Sprintf("%q,%q", s.stays, s.other)))
		}
	}
	for kill := range *ingestKills {
		add()
		time.Sleep(rand.N(20 * time.Millisecond)) //nolint:forbidigo // the moment of the kill is random
		if kill%2 == 0 {
			i := kill / 2 % 2
			processes[i].kill()
			processes[i] = run(i)
			continue
		}
		shard := s.servers[kill/2%2]
		shard.Kill()
		restart(t, shard)
	}
	add()
	s.awaitTotal(t, s.stays, n)
	s.awaitTotal(t, s.other, n)
	for i, url := range s.urls {
		if stored := inLog(t, pgtest.Connect(t, url)); stored != n {
			t.Errorf("of %d entries, shard %d has %d in its log", n, i, stored)
		}
	}
}
