package shards_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/appending"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/internal/shards"
	"github.com/badged/badged/projector"
)

// said is a writer that tells each line of a log.
type said chan string

// Write implements io.Writer.
func (s said) Write(line []byte) (int, error) {
	s <- string(bytes.TrimSpace(line))
	return len(line), nil
}

// awaitLine waits until the log has a line with a text.
func (s said) awaitLine(ctx context.Context, t *testing.T, text string) {
	t.Helper()
	for {
		select {
		case line := <-s:
			if strings.Contains(line, text) {
				return
			}
		case <-ctx.Done():
			t.Fatalf("the log does not say %q", text)
		}
	}
}

// delivering returns an appender to a cluster whose log is told, and a function that begins
// to deliver what waits and returns one that ends it.
func delivering(ctx context.Context, t *testing.T, all []shards.Database) (*shards.Cluster, *shards.Appender, said, func() (stop func())) {
	t.Helper()
	log := make(said, 1000)
	c, err := shards.Open(t.Context(), shards.Config{Databases: again(t, all), Logger: slog.New(slog.NewTextHandler(log, nil))}) //nolint:contextcheck // again reads names
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	appender := shards.NewAppender(c, func(s *shards.Shard) events.Append { return appending.To(s.Log) })
	return c, appender, log, func() func() {
		ctx, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- appender.ReplayHints(ctx) }()
		return func() {
			t.Helper()
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
}

// keep makes a message to the room wait on a database.
func keep(t *testing.T, on shards.Database, target string, moves int) {
	t.Helper()
	exec(t, on, `INSERT INTO badged.hints (shard, moves, count, messages) VALUES ($1, $2, 1, '[{"specversion":"1.0","id":"1","source":"test","type":"room.posted","data":{"conversation_id":"lobby","seq":1}}]')`, target, moves)
}

// lobbyOf returns a join of the room by users of partitions.
func lobbyOf(t *testing.T, partitions ...int) events.Event {
	t.Helper()
	join := events.Event{ID: "join", Source: "test", Type: events.RoomJoined, Data: events.Data{ConversationID: "lobby"}}
	for _, p := range partitions {
		join.Data.UserIDs = append(join.Data.UserIDs, userOf(t, p))
	}
	return join
}

// hintsOn returns for which shards messages wait on a database.
func hintsOn(t *testing.T, d shards.Database) string {
	t.Helper()
	return read(t.Context(), t, d, `SELECT coalesce(string_agg(shard, ' ' ORDER BY id), '') FROM badged.hints`)
}

// A message that the shard refuses when it is back waits on, and is delivered once, also if
// partitions have moved meanwhile.
func TestRoomMessagesWaitUntilTheyAreStored(t *testing.T) {
	for name, moves := range map[string]int{"nothing moved": 0, "partitions moved": 3} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := contextOf(t)
			defer cancel()
			all := databases(t, "a", "b")
			form(t, all) // a has 0 to 2, b 3 to 5
			c, appender, log, begin := delivering(ctx, t, all)
			if _, err := appender.Append(t.Context(), lobbyOf(t, 4)); err != nil {
				t.Fatal(err)
			}
			keep(t, all[0], "b", moves)
			if left, err := c.Backlogs(t.Context()); err != nil || len(left) != 1 || left[0].For != "b" || left[0].On != "a" || left[0].Messages != 1 || left[0].Age <= 0 {
				t.Errorf("what waits: %+v, %v", left, err)
			}
			exec(t, all[1], `ALTER TABLE badged.events_p04 ADD CONSTRAINT refused CHECK (false) NOT VALID`)
			stop := begin()
			log.awaitLine(ctx, t, "cannot replay the hints")
			stop()
			if left := hintsOn(t, all[0]); left != "b" {
				t.Fatalf("after the shard has refused it, messages wait for %q", left)
			}
			exec(t, all[1], `ALTER TABLE badged.events_p04 DROP CONSTRAINT refused`)
			stop = begin()
			log.awaitLine(ctx, t, "replayed the hints")
			stop()
			if left := hintsOn(t, all[0]); left != "" {
				t.Errorf("after it was delivered, messages wait for %q", left)
			}
			if n := read(t.Context(), t, all[1], fmt.Sprintf(`SELECT count(*)::text FROM badged.%s`, events.Topic(4))); n != "2" {
				t.Errorf("the log has %s events, want the join and the message", n)
			}
		})
	}
}

// A message for wherever partitions are by now may meet another shard that is away. It
// waits for that one on the shard where it was: an erasure looks for it on one shard after
// the other.
func TestWhatWaitsOnStaysOnItsShard(t *testing.T) {
	ctx, cancel := contextOf(t)
	defer cancel()
	server := pgtest.Borrow(t)
	all := databases(t, "a", "b")
	all = append(all, connect(t, "c", server.NewDB(t, schematest.Migrated(partitions))))
	form(t, all)
	c, _, log, begin := delivering(ctx, t, all)
	keep(t, all[1], "a", 3)
	server.Kill()
	defer func() { // whose databases are dropped
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}()
	await(t, c, func() bool { return c.Shard("c").Err() != nil })
	stop := begin()
	log.awaitLine(ctx, t, "replayed the hints")
	stop()
	if a, b := hintsOn(t, all[0]), hintsOn(t, all[1]); a != "" || b != "c" {
		t.Errorf("on a messages wait for %q, on b for %q, want c", a, b)
	}
}

// A position names a message that waits. If that has to wait again, for another shard, the
// position counts as folded only once that shard has it, too. Users of others do not wait.
func TestPositionsKnowWhatWaitsAgain(t *testing.T) {
	ctx, cancel := contextOf(t)
	defer cancel()
	server := pgtest.NewServer(t)
	all := databases(t, "a", "b")
	all = append(all, connect(t, "c", server.NewDB(t, schematest.Migrated(partitions))))
	form(t, all)
	c, _, log, begin := delivering(ctx, t, all)
	reader := shards.NewReader(c)
	projectors := func(some ...shards.Database) {
		for _, d := range some {
			projectortest.Open(t, d.Pool.Config().ConnString()).Start(t, func(cfg *projector.Config) {
				cfg.PollInterval, cfg.OwnershipInterval = 10*time.Millisecond, 100*time.Millisecond
			})
		}
	}
	projectors(all[:2]...)
	keep(t, all[1], "a", 3) // and partitions have moved since
	const position = "3.a.1@b"
	folded := func(partition int) bool {
		t.Helper()
		is, err := reader.FoldedAt(t.Context(), []string{userOf(t, partition)}, position)
		if err != nil {
			t.Errorf("a user of partition %d: %v", partition, err)
		}
		return is
	}
	if folded(0) || folded(4) {
		t.Error("before anything is delivered, the position counts as folded")
	}
	server.Kill()
	await(t, c, func() bool { return c.Shard("c").Err() != nil })
	stop := begin()
	log.awaitLine(ctx, t, "replayed the hints")
	stop()
	if left := hintsOn(t, all[1]); left != "c" {
		t.Fatalf("messages wait for %q, want c", left)
	}
	projectortest.Until(t, "a user of a shard that has the message", func() bool { return folded(0) })
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, c, func() bool { return c.Shard("c").Err() == nil })
	if folded(4) {
		t.Error("the position counts as folded although the shard lacks the message")
	}
	stop = begin()
	log.awaitLine(ctx, t, "replayed the hints")
	stop()
	if left := hintsOn(t, all[1]); left != "" {
		t.Errorf("after it was delivered, messages wait for %q", left)
	}
	projectors(all[2])
	projectortest.Until(t, "a user of the other shard", func() bool { return folded(4) })
}
