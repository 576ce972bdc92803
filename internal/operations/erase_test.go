package operations_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/internal/user/erasure"
	"github.com/badged/badged/projector"
	"github.com/badged/badged/pubsub"
)

// ghost is a user who is erased.
const ghost = `the "ghost" <4711>`

// posts are two messages to a room, by the user and about the user, and one of others.
func posts() []events.Event {
	all := []events.Event{
		{ID: "by", Data: events.Data{Seq: 1, SenderID: ghost}},
		{ID: "about", Data: events.Data{Seq: 2, SenderID: "ann", MentionedUserIDs: []string{"ann", ghost}}},
		{ID: "other", Data: events.Data{Seq: 3, SenderID: "ann"}},
	}
	for i := range all {
		all[i].Source, all[i].Type, all[i].Data.ConversationID = "test", events.RoomPosted, "lobby"
	}
	return all
}

// userOf returns a user of a partition.
func userOf(t *testing.T, c *cluster.Cluster, partition int) string {
	t.Helper()
	for i := range 1000 {
		if user := fmt.Sprint("u", i); c.PartitionOf(user) == partition {
			return user
		}
	}
	t.Fatal("no user")
	return ""
}

// lobby makes users members of the room, each on a shard.
func lobby(t *testing.T, c *cluster.Cluster, partitions ...int) *cluster.Appender {
	t.Helper()
	appender := cluster.NewAppender(c, func(s *cluster.Database) events.Append { return s.Log.AppendOwn })
	var users []string
	for _, p := range partitions {
		users = append(users, userOf(t, c, p))
	}
	join := events.Event{ID: "join", Source: "test", Type: events.RoomJoined, Data: events.Data{ConversationID: "lobby", UserIDs: users}}
	if _, err := appender.Append(t.Context(), join); err != nil {
		t.Fatal(err)
	}
	return appender
}

// holdings returns where the shards that can be reached have the user, as an export does.
func holdings(t *testing.T, c *cluster.Cluster) (all []string) {
	t.Helper()
	for _, s := range c.Databases() {
		if s.Err() != nil {
			continue
		}
		if _, err := erasure.Export(t.Context(), erasure.ExportConfig{Pool: s.Pool, Log: s.Log, UserID: ghost, Shard: s.Name}, func(h erasure.Holding) error {
			if h.Kind != "action" {
				all = append(all, s.Name+": "+h.Kind+" "+string(h.Record))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// rowsOf returns the payloads of a partition, as text.
func rowsOf(t *testing.T, s *cluster.Database, partition int) string {
	t.Helper()
	rows, _ := s.Pool.Query(t.Context(), `SELECT convert_from(payload, 'UTF8') FROM badged.`+events.Topic(partition)+` ORDER BY transaction_id, "offset"`)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, "\n")
}

// await waits until the cluster has seen something.
func await(t *testing.T, c *cluster.Cluster, seen func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	stopped := make(chan error, 1)
	go func() { stopped <- c.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}()
	for {
		changed := c.Changed()
		if seen() {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatal("it does not come")
		}
	}
}

// A message that waits for a lost shard names an erased user no more, neither where it
// waits nor where it is delivered. Erasing says that the shard is unavailable, and completes once
// it is available again.
func TestEraseWhileMessagesWait(t *testing.T) {
	server := pgtest.Borrow(t)
	c := clusterOf(t, pgtest.NewDB(t, schematest.Migrated(6)), pgtest.NewDB(t, schematest.Migrated(6)), server.NewDB(t, schematest.Migrated(6)))
	a, lost := c.Databases()[0], c.Databases()[2]
	appender := lobby(t, c, 0, 4)
	server.Kill()
	await(t, c, func() bool { return lost.Err() != nil })
	if _, err := appender.Append(t.Context(), posts()...); err != nil {
		t.Fatal(err)
	}
	if all := holdings(t, c); !slices.ContainsFunc(all, func(h string) bool {
		return strings.HasPrefix(h, "a: waiting_event ") && strings.Contains(h, `"for":"c"`) && strings.Contains(h, `"id":"about"`) && !strings.Contains(h, `"mentioned_user_ids":["ann`)
	}) {
		t.Errorf("the export has not what waits: %v", all)
	}

	var away *cluster.Fault
	done, err := over(c).Erase(t.Context(), ops, ghost, nil)
	if !errors.As(err, &away) || away.Database != "c" {
		t.Errorf("with a lost shard: %v", err)
	}
	if want := (erasure.Counts{Changed: 2}); done.Waiting != want || done.Changed != 4 { // each partition of the other shards has who sent a message
		t.Errorf("erased: %+v", done)
	}
	if all := holdings(t, c); len(all) > 0 {
		t.Errorf("still there: %v", all)
	}
	var waiting string
	if err := a.Pool.QueryRow(t.Context(), `SELECT messages FROM badged.hints`).Scan(&waiting); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(waiting, "ghost") || strings.Count(waiting, `"ann"`) != 3 {
		t.Errorf("what waits: %s", waiting)
	}

	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, c, func() bool { return lost.Err() == nil })
	deliver(t, c, appender)
	rows := rowsOf(t, lost, 4)
	if strings.Contains(rows, "ghost") || !strings.Contains(rows, "about") {
		t.Errorf("the log of the shard that is back: %s", rows)
	}
	if done, err := over(c).Erase(t.Context(), ops, ghost, nil); err != nil || done.Waiting != (erasure.Counts{}) {
		t.Errorf("erased again: %+v, %v", done, err)
	}
}

// deliver delivers what waits.
func deliver(t *testing.T, c *cluster.Cluster, appender *cluster.Appender) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	done := make(chan error, 1)
	go func() { done <- appender.ReplayHints(ctx) }()
	for {
		left, err := c.Backlogs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("these still wait: %+v", left)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// fold folds the partitions of a shard until the test ends.
func fold(t *testing.T, s *cluster.Database) {
	t.Helper()
	p, err := projector.New(projector.Config{Pool: s.Pool, Log: s.Log, Bus: pubsub.NewMemory()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// The messages of a shard that delivers while a user is erased come to a log that is
// searched afterwards, in whatever order the shards are.
func TestEraseWhileMessagesAreDelivered(t *testing.T) {
	c := newCluster(t)
	a, last := c.Databases()[0], c.Databases()[2]
	appender := lobby(t, c, 0)
	fold(t, last) // which has the user's partition
	text, err := json.Marshal(posts())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := last.Pool.Exec(t.Context(), `INSERT INTO badged.hints (shard, moves, count, messages) VALUES ('a', 0, 1, $1)`, text); err != nil {
		t.Fatal(err)
	}
	// What a process does that delivers.
	delivery, err := last.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = delivery.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := delivery.Exec(t.Context(), `SELECT id FROM badged.hints FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	erased := make(chan error, 1)
	go func() {
		_, err := over(c).Erase(t.Context(), ops, ghost, nil)
		erased <- err
	}()
	for waits := false; !waits; {
		if err := last.Pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-erased:
			t.Fatalf("it does not wait for the delivery: %v", err)
		default:
		}
	}
	if _, err := appender.Append(t.Context(), posts()...); err != nil {
		t.Fatal(err)
	}
	if _, err := delivery.Exec(t.Context(), `DELETE FROM badged.hints`); err != nil {
		t.Fatal(err)
	}
	if err := delivery.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-erased; err != nil {
		t.Error(err)
	}
	if rows := rowsOf(t, a, 0); strings.Contains(rows, "ghost") || !strings.Contains(rows, "about") {
		t.Errorf("the log has %s", rows)
	}
	if all := holdings(t, c); len(all) > 0 {
		t.Errorf("still there: %v", all)
	}
}

// An erasure while the user's shard is lost erases what the other shards have, and fails
// with an error that names the lost one.
func TestEraseAUserOfALostShard(t *testing.T) {
	c := newCluster(t)
	user := userOf(t, c, 2)
	c.Databases()[1].Pool.Close()
	if err := c.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := over(c).Erase(t.Context(), ops, user, nil); err == nil || strings.Count(err.Error(), "shard b, which has the partitions 2-3, is unavailable") != 1 {
		t.Errorf("erase: %v", err)
	}
}
