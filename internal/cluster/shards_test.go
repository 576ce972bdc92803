package cluster_test

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
)

func delivered(id, user string) events.Event {
	return events.Event{ID: id, Source: "test", Type: events.MessageDelivered, Data: events.Data{ConversationID: "c", Seq: 1, UserIDs: []string{user}}}
}

func heldBy(c *cluster.Cluster) map[string][]int {
	held := map[string][]int{}
	for _, s := range c.Databases() {
		held[s.Name] = s.Held()
	}
	return held
}

func TestEmptyDatabasesShareThePartitions(t *testing.T) {
	all := databases(t, "a", "b", "c")
	_ = refuses(t, cluster.ErrNotACluster, all)
	made := form(t, all)
	if made.Adopted != "" || !slices.Equal(made.Joined, []string{"a", "b", "c"}) {
		t.Errorf("made %+v", made)
	}
	c := open(t, all)
	if diff := cmp.Diff(map[string][]int{"a": {0, 1}, "b": {2, 3}, "c": {4, 5}}, heldBy(c)); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	if c.ID() != made.Cluster || c.Partitions() != partitions || len(c.Away()) != 0 || !c.Several() {
		t.Errorf("cluster %s of %d partitions, %v away", c.ID(), c.Partitions(), c.Away())
	}
	for p := range partitions {
		user := userOf(t, p)
		for _, s := range c.Databases() {
			_, err := s.Log.Append(t.Context(), delivered("m", user))
			if s.Holds(p) != (err == nil) || !s.Holds(p) && !errors.Is(err, events.ErrNotHeld) {
				t.Errorf("appending to partition %d of %s: %v", p, s.Label(), err)
			}
		}
		if s := c.DatabaseOf(p); !s.Holds(p) {
			t.Errorf("partition %d is on %s, which does not hold it", p, s.Label())
		}
	}
	// Forming it again changes nothing.
	if again := form(t, all); len(again.Joined) != 0 || again.Cluster != made.Cluster {
		t.Errorf("made %+v again", again)
	}
}

func TestPublishingInSQLIsRefusedByName(t *testing.T) {
	all := databases(t, "a", "b")
	form(t, all)
	_, err := all[0].Pool.Exec(t.Context(), `SELECT badged.publish(jsonb_build_object('specversion', '1.0', 'id', 'x', 'source', 'sql', 'type', 'message.delivered',
		'data', jsonb_build_object('conversation_id', 'c', 'seq', 1, 'user_ids', jsonb_build_array($1::text))))`, userOf(t, 5))
	if err == nil || !strings.Contains(err.Error(), "partition 5 is not on this shard, but on b") || !strings.Contains(err.Error(), "BD100") {
		t.Errorf("publish: %v", err)
	}
}

func TestADatabaseWithDataKeepsItsPartitions(t *testing.T) {
	all := databases(t, "new", "old")
	log, err := events.Open(t.Context(), all[1].Pool)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.Append(t.Context(), delivered("m", "ada")); err != nil {
		t.Fatal(err)
	}
	if made := form(t, all); made.Adopted != "old" {
		t.Errorf("made %+v", made)
	}
	c := open(t, all)
	if diff := cmp.Diff(map[string][]int{"new": nil, "old": {0, 1, 2, 3, 4, 5}}, heldBy(c)); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	if _, err := c.Database("old").Log.Append(t.Context(), delivered("n", "ada")); err != nil {
		t.Error(err)
	}
	// A process configured without shards fails with an error that says so.
	if err := refuses(t, cluster.ErrMember, all[1:], ""); !strings.Contains(err.Error(), "old") {
		t.Error(err)
	}
}

func TestANewShardJoins(t *testing.T) {
	all := databases(t, "a", "b", "c")
	exec(t, all[0], `INSERT INTO badged.webhooks (generation, name, url, state, secrets, events, batch, rate) VALUES (1, 'crm', 'https://crm.example', 'active', '{\\x01}', '{badge.changed}', 100, 0)`)
	form(t, all[:2])
	made := form(t, all)
	if !slices.Equal(made.Joined, []string{"c"}) {
		t.Errorf("made %+v", made)
	}
	c := open(t, all)
	if diff := cmp.Diff(map[string][]int{"a": {0, 1, 2}, "b": {3, 4, 5}, "c": nil}, heldBy(c)); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	for _, d := range all {
		if got := read(t.Context(), t, d, `SELECT url || ' ' || secrets::text || ' ' || events::text FROM badged.webhooks`); got != `https://crm.example {"\\x01"} {badge.changed}` {
			t.Errorf("shard %s has the webhook %s", d.Name, got)
		}
	}
}

func TestAnInterruptedFormingIsCompleted(t *testing.T) {
	all := databases(t, "a", "b", "c")
	form(t, all)
	// The state after the first of three databases.
	for _, d := range all {
		exec(t, d, `UPDATE badged.shard SET formed_at = NULL`)
	}
	for _, d := range all[1:] {
		exec(t, d, `DELETE FROM badged.shard`)
	}
	_ = refuses(t, cluster.ErrEmpty, all)
	exec(t, all[1], `DELETE FROM badged.shard_partitions`)
	made := form(t, all)
	if !slices.Equal(made.Joined, []string{"b", "c"}) {
		t.Errorf("made %+v", made)
	}
	if c := open(t, all); len(c.Away()) != 0 {
		t.Errorf("held %v", heldBy(c))
	}
}

func TestRefusals(t *testing.T) {
	all := databases(t, "a", "b", "c")
	form(t, all[:2])
	a, b, other := all[0], all[1], all[2]
	says := func(want error, given []cluster.Candidate, text string, names ...string) {
		t.Helper()
		if err := refuses(t, want, given, names...); !strings.Contains(err.Error(), text) {
			t.Errorf("open: %v, want %q", err, text)
		}
	}
	says(cluster.ErrMissing, []cluster.Candidate{a}, "the map assigns the partitions 3-5 to shard b: add --shard b=URL")
	says(cluster.ErrEmpty, []cluster.Candidate{a, other}, "shard b is not part of the cluster, but the map assigns it the partitions 3-5", "a", "b")
	says(cluster.ErrEmpty, []cluster.Candidate{a, b, other}, "shard c has not joined the cluster")
	says(cluster.ErrMisnamed, []cluster.Candidate{a, b}, "the database of --shard b says that it is shard a", "b", "a")
	if _, err := cluster.Form(t.Context(), again(t, []cluster.Candidate{a, other}, "a", "b")); !errors.Is(err, cluster.ErrEmpty) || !strings.Contains(err.Error(), "restore") {
		t.Errorf("form with an empty database in place of a shard: %v", err)
	}

	form(t, []cluster.Candidate{other})
	says(cluster.ErrForeign, []cluster.Candidate{a, b, other}, "shard c belongs to the cluster")

	move(t, a, b, 0, 2)
	open(t, []cluster.Candidate{a, b})
	exec(t, b, `UPDATE badged.shard_partitions SET shard = 'a' WHERE partition_id = 0`)
	says(cluster.ErrTwoMaps, []cluster.Candidate{a, b}, "partition 0 to a")
	exec(t, b, `UPDATE badged.shard_partitions SET shard = 'b' WHERE partition_id = 0`)
	exec(t, a, `INSERT INTO badged.partitions (partition_id, epoch, incarnation) VALUES (0, 'x', 'y')`)
	exec(t, a, `UPDATE badged.shard_partitions SET shard = 'a', revision = 1 WHERE partition_id = 0`)
	open(t, []cluster.Candidate{a, b}) // b has it, so a is to give it up
	exec(t, b, `DELETE FROM badged.partitions WHERE partition_id = 0`)
	says(cluster.ErrClaims, []cluster.Candidate{a, b}, "shard a holds partition 0, which the map assigns to shard b since revision 2")

	empty := connect(t, "d", pgtest.NewDB(t, pgtest.Template{}))
	says(cluster.ErrEmpty, []cluster.Candidate{a, b, empty}, "shard d has not joined the cluster")
	says(cluster.ErrEmpty, []cluster.Candidate{a, empty}, "shard b is not part of the cluster, but the map assigns it the partitions", "a", "b")
	gone := connect(t, "e", "postgres://127.0.0.1:1/x")
	says(cluster.ErrUnknown, []cluster.Candidate{a, b, gone}, "e: ")
	few := connect(t, "few", pgtest.NewDB(t, schematest.Migrated(2)))
	if _, err := cluster.Form(t.Context(), again(t, []cluster.Candidate{a, b, few})); !errors.Is(err, cluster.ErrPartitions) {
		t.Errorf("form with 2 partitions: %v", err)
	}
}

func TestSwappedNamesAreRefusedAsThatAlone(t *testing.T) {
	all := databases(t, "a", "b")
	form(t, all)
	if err := refuses(t, cluster.ErrMisnamed, all, "b", "a"); errors.Is(err, cluster.ErrClaims) {
		t.Errorf("swapped names are taken for a database restored from before a move: %v", err)
	}
}

func TestTwoDatabasesWithDataAreRefused(t *testing.T) {
	all := databases(t, "a", "b")
	for _, d := range all {
		log, err := events.Open(t.Context(), d.Pool)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := log.Append(t.Context(), delivered("m", "ada")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := cluster.Form(t.Context(), again(t, all)); !errors.Is(err, cluster.ErrUsed) || !strings.Contains(err.Error(), `"a" "b"`) {
		t.Errorf("form: %v", err)
	}
}

func TestAMoveIsSeen(t *testing.T) {
	all := databases(t, "a", "b")
	form(t, all)
	c := open(t, all)
	changed := c.Changed()
	move(t, all[0], all[1], 1, 2)
	if _, err := c.DatabaseOf(1).Log.Append(t.Context(), delivered("m", userOf(t, 1))); !errors.Is(err, events.ErrNotHeld) {
		t.Errorf("append to where it was: %v", err)
	}
	if err := c.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	default:
		t.Error("the change was not told")
	}
	if s := c.DatabaseOf(1); s.Name != "b" || !s.Holds(1) || c.Database("a").Holds(1) || c.Map()[1] != (cluster.Place{Database: "b", Revision: 2}) {
		t.Errorf("partition 1 is on %s", s.Name)
	}
	if _, err := c.DatabaseOf(1).Log.Append(t.Context(), delivered("m", userOf(t, 1))); err != nil {
		t.Error(err)
	}
}

func TestALostShardIsAwayAndComesBack(t *testing.T) {
	server := pgtest.Borrow(t)
	all := databases(t, "a")
	lost := connect(t, "b", server.NewDB(t, schematest.Migrated(partitions)))
	all = append(all, lost)
	form(t, all)
	running, err := cluster.Open(t.Context(), cluster.Config{Databases: again(t, all), Interval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	server.Kill()
	await(t, running, func() bool { return running.Database("b").Err() != nil })
	if !slices.Equal(running.Away(), []int{3, 4, 5}) || !errors.Is(running.Database("b").Err(), cluster.ErrAway) || running.Database("a").Err() != nil {
		t.Errorf("away: %v, %v", running.Away(), running.Database("b").Err())
	}
	// The other shards have it in their map, so the cluster opens without it.
	late := open(t, all)
	if !slices.Equal(late.Away(), []int{3, 4, 5}) || late.DatabaseOf(4).Name != "b" {
		t.Errorf("away: %v", late.Away())
	}
	// Clients of the others are compared with the tables.
	reader, users := cluster.NewReader(late), []string{userOf(t, 4), userOf(t, 0)}
	versions, err := reader.Versions(t.Context(), users)
	if err != nil || len(versions) != 2 || versions[0].UserID != users[0] || versions[0].Epoch != "" || versions[1].UserID != users[1] || versions[1].Epoch == "" {
		t.Errorf("versions: %+v, %v", versions, err)
	}
	if _, err := reader.Badges(t.Context(), users); !errors.Is(err, cluster.ErrAway) {
		t.Errorf("badges: %v", err)
	}
	select {
	case <-late.Database("b").Ready():
		t.Error("a shard that was never reached is ready")
	default:
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, running, func() bool { return len(running.Away()) == 0 })
}

// If an operator or a timeout closes a connection, the shard does not count as unavailable.
func TestAnEndedConnectionIsReplaced(t *testing.T) {
	all := databases(t, "a", "b")
	form(t, all)
	c := open(t, all)
	changed := c.Changed()
	for range 2 { // the pools do not check a connection that was just used
		if err := c.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		exec(t, all[1], `SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		if err := c.Reload(t.Context()); err != nil || c.Database("b").Err() != nil {
			t.Errorf("shard b: %v, %v", c.Database("b").Err(), err)
		}
	}
	select {
	case <-changed:
		t.Error("the cluster has changed")
	default:
	}
}

// await runs a cluster until a condition holds.
func await(t *testing.T, c *cluster.Cluster, holds func() bool) {
	t.Helper()
	ctx, cancel := contextOf(t)
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
		if holds() {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatal("it does not come")
		}
	}
}

// Instances that start together make one cluster. Without the lock, each would make one of the
// databases that it reaches first.
func TestConcurrentForms(t *testing.T) {
	names := []string{"a", "b", "c"}
	all := databases(t, names...)
	var forming sync.WaitGroup
	errs := make([]error, 2*len(names))
	for i := range errs {
		mine := again(t, all)
		// Each uses another order, as careless settings do.
		mine = append(mine[i%len(names):], mine[:i%len(names)]...)
		forming.Go(func() { _, errs[i] = cluster.Form(t.Context(), mine) })
	}
	forming.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	c := open(t, all)
	var held []int
	for _, s := range c.Databases() {
		held = append(held, s.Held()...)
	}
	slices.Sort(held)
	if diff := cmp.Diff([]int{0, 1, 2, 3, 4, 5}, held); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
}

func TestADatabaseIsGivenTwice(t *testing.T) {
	all := databases(t, "a", "b")
	twice := again(t, []cluster.Candidate{all[0], all[1], all[0]}, "a", "b", "c")
	if _, err := cluster.Form(t.Context(), twice); !errors.Is(err, cluster.ErrTwice) || !strings.Contains(err.Error(), "--shard a and --shard c") {
		t.Errorf("form: %v", err)
	}
	form(t, all)
}

// A running process writes nothing to a database that has replaced the shard, as after a failover
// to a wrong server, and follows the moves of the other shards.
func TestADatabaseThatIsNotTheShardIsAway(t *testing.T) {
	for name, tc := range map[string]struct {
		sql, back string
		cause     error
	}{
		"of another cluster": {`UPDATE badged.shard SET cluster = gen_random_uuid()`, `UPDATE badged.shard SET cluster = $1::uuid`, cluster.ErrForeign},
		"another shard":      {`UPDATE badged.shard SET name = 'b'`, `UPDATE badged.shard SET name = 'c' WHERE $1 <> ''`, cluster.ErrMisnamed},
		"empty":              {`DELETE FROM badged.shard`, `INSERT INTO badged.shard (cluster, name, formed_at) VALUES ($1::uuid, 'c', now())`, cluster.ErrEmpty},
	} {
		t.Run(name, func(t *testing.T) {
			all := databases(t, "a", "b", "c")
			form(t, all)
			var guard cluster.Guard
			guarded := again(t, all)
			for i, d := range guarded {
				cfg := d.Pool.Config()
				guard.Configure(cfg.ConnConfig, d.Name)
				pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				guarded[i].Pool = pool
			}
			c, err := cluster.Open(t.Context(), cluster.Config{Databases: guarded, Guard: &guard})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			exec(t, all[2], tc.sql)
			move(t, all[0], all[1], 0, 2)
			if err := c.Reload(t.Context()); err != nil {
				t.Errorf("the maps disagree: %v", err)
			}
			if err := c.Database("c").Err(); !errors.Is(err, cluster.ErrAway) || !errors.Is(err, tc.cause) || !slices.Equal(c.Away(), []int{4, 5}) {
				t.Errorf("c: %v; away: %v", err, c.Away())
			}
			if s := c.DatabaseOf(0); s.Name != "b" || !s.Holds(0) {
				t.Errorf("partition 0 is on %s", s.Name)
			}
			if _, err := pgx.ConnectConfig(t.Context(), guarded[2].Pool.Config().ConnConfig); !errors.Is(err, tc.cause) {
				t.Errorf("a new connection: %v", err)
			}
			exec(t, all[2], tc.back, c.ID())
			await(t, c, func() bool { return len(c.Away()) == 0 })
		})
	}
}

// A process whose settings omit a new shard serves the partitions of the others and follows their
// moves.
func TestAShardThatAProcessDoesNotKnow(t *testing.T) {
	all := databases(t, "a", "b", "c")
	form(t, all[:2])
	c := open(t, all[:2])
	form(t, all)
	move(t, all[0], all[2], 0, 2)
	move(t, all[0], all[1], 1, 2)
	if err := c.Reload(t.Context()); !errors.Is(err, cluster.ErrMissing) || !strings.Contains(err.Error(), "the map assigns partition 0 to shard c") {
		t.Errorf("the problem is %v", err)
	}
	if s := c.DatabaseOf(1); s == nil || s.Name != "b" || !s.Holds(1) {
		t.Errorf("partition 1 is on %v", s)
	}
	if s := c.DatabaseOf(0); s != nil || !slices.Equal(c.Away(), []int{0}) {
		t.Errorf("partition 0 is on %v; away: %v", s, c.Away())
	}
}

// A process whose settings omit a shard refuses messages to rooms, which go to all partitions, and
// events for the users of the shard. Errors name the shard.
func TestEventsForAShardThatAProcessDoesNotKnow(t *testing.T) {
	for name, known := range map[string]int{"one of two": 1, "two of three": 2} {
		t.Run(name, func(t *testing.T) {
			all := databases(t, "a", "b", "c")[:known+1]
			unknown := all[known]
			form(t, all[:known])
			c := open(t, all[:known])
			form(t, all)
			move(t, all[0], unknown, 0, 2)
			if err := c.Reload(t.Context()); !errors.Is(err, cluster.ErrMissing) {
				t.Fatal(err)
			}
			appender := cluster.NewAppender(c, func(s *cluster.Database) events.Append { return s.Log.AppendOwn })
			post := events.Event{ID: "post", Source: "test", Type: events.RoomPosted, Data: events.Data{ConversationID: "lobby", Seq: 1}}
			join := events.Event{ID: "join", Source: "test", Type: events.RoomJoined, Data: events.Data{ConversationID: "lobby", UserIDs: []string{userOf(t, 1)}}}
			for what, e := range map[string]events.Event{"a message to a room": post, "a message to a user of the shard": delivered("m", userOf(t, 0))} {
				_, err := appender.Append(t.Context(), e)
				var away *cluster.Fault
				if !errors.As(err, &away) || err.Error() != "shard "+unknown.Name+", which has partition 0, is not in the settings of this process: add --shard "+unknown.Name+"=URL" {
					t.Errorf("%s: %v", what, err)
				} else if lacking(partial(err)) != "0" {
					t.Errorf("%s: the partitions %s lack events", what, lacking(partial(err)))
				}
				if lack, err := appender.AppendBestEffort(t.Context(), nil, e); err != nil || lacking(lack) != "0" {
					t.Errorf("%s: the partitions %s lack events: %v", what, lacking(lack), err)
				}
			}
			if _, err := appender.Append(t.Context(), join); err != nil {
				t.Errorf("a join of a user of another shard: %v", err)
			}
			if _, err := appender.Append(t.Context(), delivered("m", userOf(t, 1))); err != nil {
				t.Errorf("a message to a user of another shard: %v", err)
			}
			if _, err := c.Place(userOf(t, 0)); !errors.Is(err, cluster.ErrMissing) {
				t.Errorf("the shard of its user: %v", err)
			}
			if !slices.Equal(c.AwayNames(), []string{unknown.Name}) {
				t.Errorf("away are %v", c.AwayNames())
			}
			if n := read(t.Context(), t, all[0], `SELECT count(*)::text FROM badged.hints`); n != "0" {
				t.Errorf("%s calls wait for the shard", n)
			}
		})
	}
}

// If a shard was restored to a time before a split, it is refused, since the other maps have the
// new partitions.
func TestAShardFromBeforeASplitIsRefused(t *testing.T) {
	all := databases(t, "a", "b")
	form(t, all)
	exec(t, all[1], `SELECT badged.map_partition(12, 'b', 2)`)
	if err := refuses(t, cluster.ErrClaims, all); !strings.Contains(err.Error(), "shard a holds partition 0, which was split into 6 and 12") {
		t.Error(err)
	}
}

// If a shard was restored to a time before a partition moved there, the partition is reported as
// lost.
func TestALostPartitionIsTold(t *testing.T) {
	all := databases(t, "a", "b")
	form(t, all)
	move(t, all[0], all[1], 0, 2)
	exec(t, all[1], `SELECT badged.release_partition(0, 'a', 1)`)
	exec(t, all[1], `UPDATE badged.shard_partitions SET shard = 'a', revision = 1 WHERE partition_id = 0`)
	var said strings.Builder
	c, err := cluster.Open(t.Context(), cluster.Config{Databases: again(t, all), Interval: time.Millisecond, Patience: time.Second / 2, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if got := c.Database("b").Lost(); !slices.Equal(got, []int{0}) || len(c.Database("a").Lost()) > 0 {
		t.Errorf("lost are %v", got)
	}
	for !strings.Contains(said.String(), "shard b does not hold partition 0, which the map assigns to it since revision 2") {
		if err := c.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, all[0], `SELECT badged.hold_partition(0, 3, 'e')`)
	for len(c.Database("a").Held()) != 3 || !strings.Contains(said.String(), "agree on their partitions again") {
		if err := c.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// If the only shard that had recorded a split was restored to a time before it, the split is
// forgotten once all shards can be read, as in processes that start then.
func TestASplitIsForgottenWithItsShard(t *testing.T) {
	all := databases(t, "a", "b")
	form(t, all)
	c := open(t, all)
	exec(t, all[0], `SELECT badged.map_partition(0, '', 2), badged.map_partition(6, 'a', 1), badged.map_partition(12, 'a', 1)`)
	exec(t, all[0], `DELETE FROM badged.partitions WHERE partition_id = 0`)
	reload := func() {
		t.Helper()
		if err := c.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if reload(); c.Layout().Lives(0) || !c.Layout().Lives(6) {
		t.Errorf("after the split there are %v", c.Layout().Living())
	}
	exec(t, all[0], `DELETE FROM badged.shard_partitions WHERE partition_id > 5`)
	exec(t, all[0], `UPDATE badged.shard_partitions SET shard = 'a', revision = 1 WHERE partition_id = 0`)
	exec(t, all[0], `INSERT INTO badged.partitions (partition_id, epoch, incarnation) VALUES (0, 'x', 'y')`)
	// While another shard has a partition that came from the split, the shards disagree.
	exec(t, all[1], `SELECT badged.map_partition(12, 'b', 2)`)
	if err := c.Reload(t.Context()); !errors.Is(err, cluster.ErrClaims) || c.Layout().Lives(0) {
		t.Errorf("there are %v: %v", c.Layout().Living(), err)
	}
	exec(t, all[1], `DELETE FROM badged.shard_partitions WHERE partition_id > 5`)
	if reload(); !c.Layout().Lives(0) || c.Layout().Lives(6) {
		t.Errorf("after the restore there are %v", c.Layout().Living())
	}
}
