package ingest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/bridge/ingest"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/partition/splitting"
	"github.com/badged/badged/projector"
)

const shardedPartitions = 6

// sharded are shards a, b and c with two partitions each.
type sharded struct {
	*cluster.Cluster
	pools []*pgxpool.Pool
}

func newSharded(t *testing.T) *sharded {
	t.Helper()
	s := &sharded{}
	var forming, running []cluster.Candidate
	for _, name := range []string{"a", "b", "c"} {
		url := pgtest.NewDB(t, schematest.Migrated(shardedPartitions))
		for _, all := range []*[]cluster.Candidate{&forming, &running} {
			*all = append(*all, cluster.Candidate{Name: name, Pool: projectortest.NewPool(t, url, nil)})
		}
		s.pools = append(s.pools, running[len(running)-1].Pool)
	}
	if _, err := cluster.Form(t.Context(), forming); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.Cluster, err = cluster.Open(t.Context(), cluster.Config{Databases: running}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// ingest ingests to the shards.
func (s *sharded) ingest(t *testing.T, b *fakeBroker) *running {
	t.Helper()
	home := s.Databases()[0]
	return run(t, &projectortest.Database{Pool: home.Pool, Log: home.Log}, []ingest.Source{ingest.SourceOf("fake", b)}, func(cfg *ingest.Config) { cfg.Cluster = s.Cluster })
}

// ingestAll ingests what the broker has, and stops.
func (s *sharded) ingestAll(t *testing.T, b *fakeBroker) {
	t.Helper()
	r := s.ingest(t, b)
	s.awaitRead(t, len(b.messages))
	r.stop()
}

// exec runs a statement on a shard.
func (s *sharded) exec(t *testing.T, shard int, sql string) {
	t.Helper()
	pgtest.Exec(t, s.pools[shard], sql)
}

// logs returns how many events each partition has, on all shards together.
func (s *sharded) logs(t *testing.T) []int {
	t.Helper()
	all := make([]int, shardedPartitions)
	for _, pool := range s.pools {
		for p := range all {
			var n int
			if err := pool.QueryRow(t.Context(), fmt.Sprintf(`SELECT coalesce(sum(events), 0)::int FROM badged.%s`, events.Topic(p))).Scan(&n); err != nil {
				t.Fatal(err)
			}
			all[p] += n
		}
	}
	return all
}

// awaitRead waits until that many messages are read.
func (s *sharded) awaitRead(t *testing.T, n int) {
	t.Helper()
	projectortest.Until(t, fmt.Sprintf("%d messages to be read", n), func() bool {
		var read int
		if err := s.pools[0].QueryRow(t.Context(), `SELECT coalesce(sum(messages), 0)::int FROM badged.ingest_positions`).Scan(&read); err != nil {
			t.Fatal(err)
		}
		return read == n
	})
}

// userIn returns a user of a partition.
func userIn(partition int) string {
	for n := 0; ; n++ {
		if id := fmt.Sprint("user-", n); events.PartitionOf(id, shardedPartitions) == partition {
			return id
		}
	}
}

// eventTo is an event for the users of partitions, or a message to the room if there are
// none.
func eventTo(n int, partitions ...int) string {
	if len(partitions) == 0 {
		return fmt.Sprintf(`{"specversion":"1.0","id":"%d","source":"chat","type":"room.posted","data":{"conversation_id":"r","seq":%d}}`, n, n+1)
	}
	var users []string
	for _, p := range partitions {
		users = append(users, fmt.Sprintf("%q", userIn(p)))
	}
	return fmt.Sprintf(`{"specversion":"1.0","id":"%d","source":"chat","type":"message.delivered","data":{"conversation_id":"c","user_ids":[%s],"seq":%d}}`, n, strings.Join(users, ","), n+1)
}

func joined(n int, partitions ...int) string {
	e := strings.Replace(eventTo(n, partitions...), "message.delivered", "room.joined", 1)
	return strings.Replace(strings.Replace(e, `"conversation_id":"c"`, `"conversation_id":"r"`, 1), fmt.Sprintf(`,"seq":%d`, n+1), "", 1)
}

// fails makes a shard fail while it has rows in the table broken, with the probability that
// they say, before or when a transaction commits that moves a position or a place.
const fails = `CREATE TABLE broken (share float8 PRIMARY KEY);
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF random() < (SELECT max(share) FROM broken) THEN RAISE EXCEPTION 'broken' USING ERRCODE = '57P01'; END IF;
    RETURN NULL; END $$;
CREATE TRIGGER fail AFTER UPDATE ON badged.ingest_positions FOR EACH ROW EXECUTE FUNCTION fail();
CREATE CONSTRAINT TRIGGER fail_late AFTER INSERT OR UPDATE ON badged.ingest_places DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail()`

// If some shards have taken their part of a batch and others have not, the former do not
// append it again. That holds however the batch is read again, and also if a partition has
// moved to another shard since. No event key is needed.
func TestShardsDoNotRepeat(t *testing.T) {
	t.Parallel()
	s := newSharded(t)
	b := &fakeBroker{messages: []string{joined(6, 0, 2, 3, 4)}}
	s.ingestAll(t, b)
	for n := range 6 {
		b.messages = append(b.messages, eventTo(n, n))
	}
	b.messages = append(b.messages, eventTo(7), eventTo(8, 1, 3, 5))
	s.exec(t, 0, fails)
	s.exec(t, 0, `INSERT INTO broken VALUES (1)`)
	r := s.ingest(t, b)
	want := []int{1, 0, 3, 4, 3, 3} // the first shard has the members only
	projectortest.Until(t, "the other shards", func() bool { return slices.Equal(s.logs(t), want) })
	r.stop()
	// A partition moves, with what it has, to the shard that lacks the batch.
	var epoch string
	if err := s.pools[1].QueryRow(t.Context(), `SELECT badged.release_partition(2, 'a', 2)`).Scan(&epoch); err != nil {
		t.Fatal(err)
	}
	var position string
	if err := s.pools[1].QueryRow(t.Context(), `SELECT position FROM badged.ingest_places WHERE partition_id = 2`).Scan(&position); err != nil || position != "9" {
		t.Fatalf("the place is %q, %v", position, err)
	}
	s.exec(t, 0, `DELETE FROM broken`)
	s.exec(t, 0, `INSERT INTO badged.ingest_places VALUES ('fake', 'chat', '', '9', 3, 0, 2)`)
	s.exec(t, 0, fmt.Sprintf(`SELECT badged.hold_partition(2, 2, '%s')`, epoch))
	if err := s.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.size = 4 // other batches than before
	b.messages = append(b.messages, eventTo(9, 0, 1, 2, 3, 4, 5))
	s.ingest(t, b)
	s.awaitRead(t, 10)
	// The message to the room goes with those for the other partitions of its shard to the one
	// that has moved, too, where it counts once.
	if got, want := s.logs(t), []int{4, 4, 5, 5, 4, 4}; !slices.Equal(got, want) {
		t.Errorf("the partitions have %v events, want %v", got, want)
	}
}

// What the partitions of a split have of a batch that another shard lacks is not appended
// to them again: both have the place of the one that was split.
func TestPartitionsOfASplitDoNotRepeat(t *testing.T) {
	t.Parallel()
	s := newSharded(t)
	b := &fakeBroker{messages: []string{joined(0, 0, 2)}}
	s.ingestAll(t, b)
	b.messages = append(b.messages, eventTo(1, 2), eventTo(2), eventTo(3, 0, 2))
	s.exec(t, 0, fails)
	s.exec(t, 0, `INSERT INTO broken VALUES (1)`)
	r := s.ingest(t, b)
	projectortest.Until(t, "the shard b", func() bool { return s.logs(t)[2] == 4 })
	r.stop()
	d := projectortest.Open(t, s.pools[1].Config().ConnString())
	d.Start(t, func(cfg *projector.Config) {
		cfg.PollInterval, cfg.OwnershipInterval = 10*time.Millisecond, 250*time.Millisecond
	})
	if _, err := splitting.Split(t.Context(), splitting.Config{Pool: d.Pool, Log: d.Log, Partition: 2}); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.exec(t, 0, `DELETE FROM broken`)
	b.messages = append(b.messages, eventTo(4, 2), eventTo(5))
	s.ingest(t, b)
	s.awaitRead(t, 6)
	if got := s.logs(t)[0]; got != 4 {
		t.Errorf("partition 0 has %d events, want 4", got)
	}
	for _, p := range []int{8, 14} {
		want := 5 // of the batch all, with what is left of those for the other, and the message to the room
		if eventlog.Belongs(userIn(2), p, shardedPartitions) {
			want = 6
		}
		var got int
		if err := s.pools[1].QueryRow(t.Context(), fmt.Sprintf(`SELECT sum(events) FROM badged.%s`, eventlog.Topic(p))).Scan(&got); err != nil || got != want {
			t.Errorf("partition %d has %d events, want %d: %v", p, got, want, err)
		}
	}
}

// A batch joins members on two shards to a room and posts to it. One shard fails and the other
// folds what it has. Once the batch is read again, the members on both count the messages.
func TestMembersOfABatchThatIsReadAgainCountItsMessages(t *testing.T) {
	t.Parallel()
	s := newSharded(t)
	b := &fakeBroker{messages: []string{joined(0, 0, 2), eventTo(1), eventTo(2)}}
	s.exec(t, 0, fails)
	s.exec(t, 0, `INSERT INTO broken VALUES (1)`)
	var folding []*projectortest.Database
	for _, pool := range s.pools[:2] {
		d := projectortest.Open(t, pool.Config().ConnString())
		d.Start(t, func(cfg *projector.Config) {
			cfg.PollInterval, cfg.OwnershipInterval = 10*time.Millisecond, 250*time.Millisecond
		})
		folding = append(folding, d)
	}
	r := s.ingest(t, b)
	projectortest.Until(t, "the shard b", func() bool { return s.logs(t)[2] > 0 })
	r.stop()
	folding[1].AwaitFolded(t)
	s.exec(t, 0, `DELETE FROM broken`)
	s.ingestAll(t, b)
	for i, partition := range []int{0, 2} {
		folding[i].AwaitFolded(t)
		if badge, err := cluster.NewReader(s.Cluster).Badge(t.Context(), userIn(partition)); err != nil || badge.Total != 2 {
			t.Errorf("the member in partition %d has a total of %d, want 2: %v", partition, badge.Total, err)
		}
	}
}

// Shards fail at random, before and in their commits. Every partition has every event of
// its users once.
func TestShardsThatFail(t *testing.T) {
	t.Parallel()
	s := newSharded(t)
	b := &fakeBroker{size: 7, messages: []string{joined(1, 0, 1, 2, 3, 4, 5)}}
	want := []int{1, 1, 1, 1, 1, 1}
	for n := 2; n < 150; n++ {
		var to []int
		for p := range want {
			if n%(p+2) == 0 || n%5 == 0 { // 5: to the room
				want[p]++
				to = append(to, p)
			}
		}
		if n%5 == 0 || len(to) == 0 {
			if len(to) == 0 {
				for p := range want {
					want[p]++
				}
			}
			to = nil
		}
		b.messages = append(b.messages, eventTo(n, to...))
	}
	for shard := range s.pools {
		s.exec(t, shard, fails)
		s.exec(t, shard, `INSERT INTO broken VALUES (0.15)`)
	}
	s.ingest(t, b)
	s.awaitRead(t, len(b.messages))
	if got := s.logs(t); !slices.Equal(got, want) {
		t.Errorf("the partitions have %v events, want %v", got, want)
	}
}

// Two readers of the same messages, of which one is late, append them once. The position
// stays where it is, in whichever order shards are named.
func TestLateReaderOfShards(t *testing.T) {
	t.Parallel()
	s := newSharded(t)
	b := &fakeBroker{messages: []string{eventTo(0, 0, 2, 4), eventTo(1, 1, 3, 5)}}
	entered, leave := make(chan struct{}), make(chan struct{})
	late := run(t, &projectortest.Database{Pool: s.pools[2], Log: s.Databases()[2].Log}, []ingest.Source{ingest.SourceOf("fake", b)}, func(cfg *ingest.Config) {
		cfg.Cluster = s.Cluster
		cfg.OwnershipInterval = 5 * time.Second // it is not late if a busy machine loses the session
		first := true
		cfg.Admit = func(ctx context.Context, _ []events.Event) error {
			if first {
				first = false
				close(entered)
				select {
				case <-leave:
				case <-ctx.Done():
				}
			}
			return nil
		}
	})
	<-entered
	r := s.ingest(t, b)
	s.awaitRead(t, 2)
	close(leave)
	projectortest.Until(t, "the late reader to notice", func() bool { return strings.Contains(late.logs.String(), "another process has read further") })
	r.stop()
	late.stop()
	if got, want := s.logs(t), []int{1, 1, 1, 1, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("the partitions have %v events, want %v", got, want)
	}
	for _, shard := range []int{1, 2} {
		var n int
		if err := s.pools[shard].QueryRow(t.Context(), `SELECT count(*) FROM badged.ingest_positions`).Scan(&n); err != nil || n > 0 {
			t.Errorf("shard %d has %d positions, %v", shard, n, err)
		}
	}
}

// While no shard holds a partition, messages for it wait, and the log says why. Reading goes
// on once a shard holds it.
func TestAPartitionThatNoShardHolds(t *testing.T) {
	t.Parallel()
	s := newSharded(t)
	partition := s.Databases()[1].Held()[0]
	b := &fakeBroker{messages: []string{eventTo(0, partition)}}
	s.ingestAll(t, b)
	s.exec(t, 1, fmt.Sprintf(`CREATE TABLE released AS SELECT * FROM badged.partitions WHERE partition_id = %d`, partition))
	s.exec(t, 1, `DELETE FROM badged.partitions WHERE partition_id IN (SELECT partition_id FROM released)`)
	b.messages = append(b.messages, eventTo(1, partition))
	r := s.ingest(t, b)
	projectortest.Until(t, "an error", func() bool { return strings.Contains(r.logs.String(), "level=ERROR") })
	if want := fmt.Sprintf("shard b does not hold partition %d", partition); !strings.Contains(r.logs.String(), want) {
		t.Errorf("the log does not say that %s", want)
	}
	s.exec(t, 1, `INSERT INTO badged.partitions SELECT * FROM released`)
	s.awaitRead(t, 2)
	if got := s.logs(t)[partition]; got != 2 {
		t.Errorf("the partition has %d events, want 2", got)
	}
}

// A shard that goes on to refuse a partition, as one that moves is refused for a moment, is a
// failure.
func TestARefusalThatLasts(t *testing.T) {
	t.Parallel()
	s := newSharded(t)
	partition := s.Databases()[0].Held()[0]
	b := &fakeBroker{messages: []string{eventTo(0, partition)}}
	s.ingestAll(t, b)
	s.exec(t, 0, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused' USING ERRCODE = 'BD100'; END $$`)
	s.exec(t, 0, `CREATE TRIGGER refuse BEFORE UPDATE ON badged.ingest_positions FOR EACH ROW EXECUTE FUNCTION refuse()`)
	b.messages = append(b.messages, eventTo(1, partition))
	home := s.Databases()[0]
	r := run(t, &projectortest.Database{Pool: home.Pool, Log: home.Log}, []ingest.Source{ingest.SourceOf("fake", b)}, func(cfg *ingest.Config) {
		cfg.Cluster = s.Cluster
		cfg.SetSwitchTime(time.Millisecond)
	})
	projectortest.Until(t, "an error", func() bool { return strings.Contains(r.logs.String(), "level=ERROR") })
	if said := r.logs.String(); strings.Index(said, "has moved or was split; reading again") > strings.Index(said, "level=ERROR") || !strings.Contains(said, events.ErrNotHeld.Error()) {
		t.Error("it does not tell of a move first, and then of what is refused")
	}
	s.exec(t, 0, `DROP TRIGGER refuse ON badged.ingest_positions`)
	s.awaitRead(t, 2)
}
