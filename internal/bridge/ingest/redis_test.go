package ingest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/internal/bridge/ingest"
	"github.com/badged/badged/internal/devtest/privateredis"
	"github.com/badged/badged/internal/devtest/projectortest"
)

// newRedis returns a Redis for a test and a client of it.
func newRedis(t *testing.T) (*privateredis.Server, *redis.Client) {
	t.Helper()
	s, err := privateredis.Start(t.Context(), privateredis.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = c.Close() })
	return s, c
}

// add adds an entry with an event to a stream.
func add(t *testing.T, c *redis.Client, stream, payload string) string {
	t.Helper()
	id, err := c.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, Values: []string{"payload", payload}}).Result()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func sourcesOf(t *testing.T, urls ...string) []ingest.Source {
	t.Helper()
	sources, errs := ingest.Parse(urls)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return sources
}

// Entries of several streams become events, in both modes, also those of streams that
// did not exist. What is no event becomes a dead letter with its place, and the rest
// goes on. Once retried, it is an event.
func TestRedisStreams(t *testing.T) {
	t.Parallel()
	db := projectortest.New(t)
	server, c := newRedis(t)
	add(t, c, "one", event(1))
	r := run(t, db, sourcesOf(t, server.URL()+"?stream=one,two"))
	bad := add(t, c, "two", `{"no":"event"}`)
	add(t, c, "two", event(2))
	if err := c.XAdd(t.Context(), &redis.XAddArgs{Stream: "one", Values: []string{
		"ce_specversion", "1.0", "ce_id", "3", "ce_source", "chat", "ce_type", "message.delivered",
		"payload", `{"conversation_id":"c","user_ids":["ada"],"seq":3}`,
	}}).Err(); err != nil {
		t.Fatal(err)
	}
	projectortest.Until(t, "four messages", func() bool { return read(t, db) == 4 })
	if n := appended(t, db); n != 3 {
		t.Errorf("the log has %d events", n)
	}
	if got := letters(t, db); len(got) != 1 || !strings.HasPrefix(got[0], "redis/two/"+bad+": ") || !strings.Contains(got[0], "specversion: is required") {
		t.Errorf("dead letters: %q", got)
	}
	r.metric(t, "badged_ingest_messages_total", `
# HELP badged_ingest_messages_total Messages of brokers that were stored as events or as dead letters.
# TYPE badged_ingest_messages_total counter
badged_ingest_messages_total{broker="redis",stream="one"} 2
badged_ingest_messages_total{broker="redis",stream="two"} 2
`)
	r.metric(t, "badged_ingest_backlog", `
# HELP badged_ingest_backlog Messages of a broker that are not stored yet, by partition that this process reads.
# TYPE badged_ingest_backlog gauge
badged_ingest_backlog{broker="redis",partition="0",stream="one"} 0
badged_ingest_backlog{broker="redis",partition="0",stream="two"} 0
`)
	if err := r.Health(); err != nil {
		t.Errorf("health: %v", err)
	}
}

// Another ingester begins where the last has stopped, and reads nothing twice.
func TestRedisPositionIsKept(t *testing.T) {
	t.Parallel()
	db := projectortest.New(t)
	server, c := newRedis(t)
	sources := sourcesOf(t, server.URL()+"?stream=s")
	for round := range 3 {
		r := run(t, db, sources)
		for i := range 5 {
			add(t, c, "s", event(100*round+i+1))
		}
		projectortest.Until(t, "the round", func() bool { return read(t, db) == 5*(round+1) })
		r.stop()
	}
	if n := appended(t, db); n != 15 {
		t.Errorf("the log has %d events", n)
	}
}

// Entries that are trimmed before they are read are counted and told of; those that were
// trimmed before the first start are not.
func TestRedisTrimmedEntries(t *testing.T) {
	t.Parallel()
	db := projectortest.New(t)
	server, c := newRedis(t)
	for i := range 10 {
		add(t, c, "s", event(i+1))
	}
	if err := c.XTrimMaxLen(t.Context(), "s", 4).Err(); err != nil {
		t.Fatal(err)
	}
	sources := sourcesOf(t, server.URL()+"?stream=s")
	r := run(t, db, sources)
	projectortest.Until(t, "what is left", func() bool { return read(t, db) == 4 })
	r.stop()
	if got := letters(t, db); len(got) != 0 {
		t.Fatalf("entries count as lost that were trimmed before: %q", got)
	}
	for i := range 10 {
		add(t, c, "s", event(i+11))
	}
	if err := c.XTrimMaxLen(t.Context(), "s", 3).Err(); err != nil {
		t.Fatal(err)
	}
	r = run(t, db, sources)
	r.metric(t, "badged_ingest_lost_total", `
# HELP badged_ingest_lost_total Messages that a broker deleted before badged read them; an upper bound.
# TYPE badged_ingest_lost_total counter
badged_ingest_lost_total{broker="redis",stream="s"} 7
`)
	projectortest.Until(t, "a dead letter", func() bool { return len(letters(t, db)) == 1 })
	if got := letters(t, db)[0]; got != "redis/s/lost: the broker deleted up to 7 messages before they were read; let the broker keep messages longer, and publish the lost events again" {
		t.Errorf("the letter: %s", got)
	}
	r.stop()
	// Told once.
	run(t, db, sources)
	add(t, c, "s", event(21))
	projectortest.Until(t, "the last", func() bool { return read(t, db) == 8 })
	if got := letters(t, db); len(got) != 1 {
		t.Errorf("told again: %q", got)
	}
}

// A stream that is made again with smaller ids is read from its first entry.
func TestRedisStreamMadeAgain(t *testing.T) {
	t.Parallel()
	db := projectortest.New(t)
	server, c := newRedis(t)
	r := run(t, db, sourcesOf(t, server.URL()+"?stream=s"))
	add(t, c, "s", event(1))
	projectortest.Until(t, "the first", func() bool { return read(t, db) == 1 })
	_, err := c.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		p.Del(t.Context(), "s")
		p.XAdd(t.Context(), &redis.XAddArgs{Stream: "s", ID: "5-0", Values: []string{"payload", event(2)}})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	projectortest.Until(t, "the second", func() bool { return read(t, db) == 2 })
	if !strings.Contains(r.logs.String(), "the stream was created again") || appended(t, db) != 2 {
		t.Errorf("the log has %d events", appended(t, db))
	}
}

// While Redis is away, the ingester says so and tries again; nothing is lost.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	db := projectortest.New(t)
	server, c := newRedis(t)
	server.Kill()
	r := run(t, db, sourcesOf(t, strings.Replace(server.URL(), "//", "//ada:hunter2@", 1)+"?stream=s"))
	projectortest.Until(t, "the trouble", func() bool { return r.Health() != nil })
	if err := r.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("%v", err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.ConfigSet(t.Context(), "protected-mode", "no").Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.Do(t.Context(), "ACL", "SETUSER", "ada", "on", ">hunter2", "~*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	add(t, c, "s", event(1))
	projectortest.Until(t, "the event", func() bool { return read(t, db) == 1 })
	projectortest.Until(t, "health", func() bool { return r.Health() == nil })
	if strings.Contains(r.logs.String(), "hunter2") {
		t.Error("the password is in the logs")
	}
}

// A key that is no stream is refused by name.
func TestRedisKeyThatIsNoStream(t *testing.T) {
	t.Parallel()
	db := projectortest.New(t)
	server, c := newRedis(t)
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	r := run(t, db, sourcesOf(t, server.URL()+"?stream=k"))
	if err := r.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "the key k has the type string, not stream") {
		t.Errorf("%v", err)
	}
}

// Two ingesters share the streams, and one takes over those of the other.
func TestRedisTakeover(t *testing.T) {
	t.Parallel()
	db := projectortest.New(t)
	server, c := newRedis(t)
	sources := sourcesOf(t, server.URL()+"?stream=a,b")
	one, two := run(t, db, sources), run(t, db, sources)
	owned := func(r *running) string {
		families, err := r.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(families, func(f *dto) bool { return f.GetName() == "badged_ingest_partitions_owned" })
		if i < 0 {
			return ""
		}
		return fmt.Sprint(families[i].GetMetric()[0].GetGauge().GetValue())
	}
	projectortest.Until(t, "a fair share", func() bool { return owned(one) == "1" && owned(two) == "1" })
	add(t, c, "a", event(1))
	add(t, c, "b", event(2))
	projectortest.Until(t, "both", func() bool { return read(t, db) == 2 })
	one.stop()
	projectortest.Until(t, "the takeover", func() bool { return owned(two) == "2" })
	add(t, c, "a", event(3))
	add(t, c, "b", event(4))
	projectortest.Until(t, "all", func() bool { return read(t, db) == 4 })
	if n := appended(t, db); n != 4 {
		t.Errorf("the log has %d events", n)
	}
}
