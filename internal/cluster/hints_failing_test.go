package cluster_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/projector"
)

// logLines is a writer that sends each line of a log.
type logLines chan string

// Write implements io.Writer.
func (s logLines) Write(line []byte) (int, error) {
	s <- string(bytes.TrimSpace(line))
	return len(line), nil
}

// awaitLine waits until the log has a line with a text.
func (s logLines) awaitLine(ctx context.Context, t *testing.T, text string) {
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

// replaying returns an appender to a cluster with its log lines. begin starts replaying hints and
// returns a function that stops it.
func replaying(ctx context.Context, t *testing.T, all []cluster.Candidate) (*cluster.Cluster, *cluster.Appender, logLines, func() (stop func())) {
	t.Helper()
	log := make(logLines, 1000)
	c, err := cluster.Open(t.Context(), cluster.Config{Databases: again(t, all), Logger: slog.New(slog.NewTextHandler(log, nil))}) //nolint:contextcheck // again reads names
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	appender := cluster.NewAppender(c, func(s *cluster.Database) events.Append { return s.Log.AppendOwn })
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

// storeHint stores a hint with a message to the room on a database.
func storeHint(t *testing.T, on cluster.Candidate, target string, moves int) {
	t.Helper()
	exec(t, on, `INSERT INTO badged.hints (shard, moves, count, messages) VALUES ($1, $2, 1, '[{"specversion":"1.0","id":"1","source":"test","type":"room.posted","data":{"conversation_id":"lobby","seq":1}}]')`, target, moves)
}

// lobbyOf returns a join of the room lobby by users of partitions.
func lobbyOf(t *testing.T, partitions ...int) events.Event {
	t.Helper()
	join := events.Event{ID: "join", Source: "test", Type: events.RoomJoined, Data: events.Data{ConversationID: "lobby"}}
	for _, p := range partitions {
		join.Data.UserIDs = append(join.Data.UserIDs, userOf(t, p))
	}
	return join
}

// hintsOn names the shards for which a database stores hints.
func hintsOn(t *testing.T, d cluster.Candidate) string {
	t.Helper()
	return read(t.Context(), t, d, `SELECT coalesce(string_agg(shard, ' ' ORDER BY id), '') FROM badged.hints`)
}

// If a shard that is available again refuses a hint, the hint stays stored and is replayed once,
// also if partitions have moved meanwhile.
func TestRoomMessagesWaitUntilTheyAreStored(t *testing.T) {
	for name, moves := range map[string]int{"nothing moved": 0, "partitions moved": 3} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := contextOf(t)
			defer cancel()
			all := databases(t, "a", "b")
			form(t, all) // a has 0 to 2, b 3 to 5
			c, appender, log, begin := replaying(ctx, t, all)
			if _, err := appender.Append(t.Context(), lobbyOf(t, 4)); err != nil {
				t.Fatal(err)
			}
			storeHint(t, all[0], "b", moves)
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

// A hint that is replayed after a move may be for another shard that is unavailable. The new hint
// is stored on the same shard as the old one, since an erasure searches one shard after the other.
func TestWhatWaitsOnStaysOnItsShard(t *testing.T) {
	ctx, cancel := contextOf(t)
	defer cancel()
	server := pgtest.Borrow(t)
	all := databases(t, "a", "b")
	all = append(all, connect(t, "c", server.NewDB(t, schematest.Migrated(partitions))))
	form(t, all)
	c, _, log, begin := replaying(ctx, t, all)
	storeHint(t, all[1], "a", 3)
	server.Kill()
	defer func() { // whose databases are dropped
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}()
	await(t, c, func() bool { return c.Database("c").Err() != nil })
	stop := begin()
	log.awaitLine(ctx, t, "replayed the hints")
	stop()
	if a, b := hintsOn(t, all[0]), hintsOn(t, all[1]); a != "" || b != "c" {
		t.Errorf("on a messages wait for %q, on b for %q, want c", a, b)
	}
}

// A position names a hint. If the hint is stored again for another shard, the position counts as
// folded only once that shard has the message, too. Users of other shards do not wait.
func TestPositionsKnowWhatWaitsAgain(t *testing.T) {
	ctx, cancel := contextOf(t)
	defer cancel()
	server := pgtest.NewServer(t)
	all := databases(t, "a", "b")
	all = append(all, connect(t, "c", server.NewDB(t, schematest.Migrated(partitions))))
	form(t, all)
	c, _, log, begin := replaying(ctx, t, all)
	reader := cluster.NewReader(c)
	projectors := func(some ...cluster.Candidate) {
		for _, d := range some {
			projectortest.Open(t, d.Pool.Config().ConnString()).Start(t, func(cfg *projector.Config) {
				cfg.PollInterval, cfg.OwnershipInterval = 10*time.Millisecond, 100*time.Millisecond
			})
		}
	}
	projectors(all[:2]...)
	storeHint(t, all[1], "a", 3) // stored before partitions moved
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
	await(t, c, func() bool { return c.Database("c").Err() != nil })
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
	await(t, c, func() bool { return c.Database("c").Err() == nil })
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
