package cluster_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/schematest"
)

// foreign removes a database from its cluster, and back adds it again. Meanwhile the shard counts
// as away, as if it could not be reached.
func foreign(t *testing.T, d cluster.Candidate) (back func()) {
	t.Helper()
	was := read(t.Context(), t, d, `SELECT cluster::text FROM badged.shard`)
	exec(t, d, `UPDATE badged.shard SET cluster = gen_random_uuid()`)
	return func() {
		t.Helper()
		exec(t, d, `UPDATE badged.shard SET cluster = $1`, was)
	}
}

// A blocked read ends once its shard is unavailable, with an error that names the shard. Other
// errors are returned unchanged.
func TestReadsEndOnceTheirShardIsAway(t *testing.T) {
	t.Parallel()
	all := databases(t, "a", "b")
	form(t, all) // a has 0 to 2, b the rest
	c := open(t, all)
	r := cluster.NewReader(c)
	here, there := userOf(t, 0), userOf(t, 3)
	lock, err := all[1].Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(context.WithoutCancel(t.Context())) }() // before its pool closes
	if _, err := lock.Exec(t.Context(), `LOCK TABLE badged.users`); err != nil {
		t.Fatal(err)
	}
	wait := func(reads string) {
		t.Helper()
		projectortest.Until(t, reads+" reads to wait", func() bool { return read(t.Context(), t, all[1], `SELECT count(*)::text `+waitingReads) == reads })
	}
	begin := func(ctx context.Context, call func(ctx context.Context) error) chan error {
		done := make(chan error, 1)
		go func() { done <- call(ctx) }()
		return done
	}
	badge := func(ctx context.Context) error {
		_, err := r.Badge(ctx, there)
		return err
	}

	failing := begin(t.Context(), badge)
	wait("1")
	exec(t, all[1], `SELECT pg_cancel_backend(pid) `+waitingReads)
	fault := &cluster.Fault{}
	if err := projectortest.Await(t, failing, "the read"); !errors.As(err, &fault) || fault.Kind != cluster.Failed || fault.Database != "b" || errors.Is(err, cluster.ErrAway) {
		t.Errorf("a read that fails gives %v", err)
	}
	wait("0")
	caller, leave := context.WithCancel(t.Context())
	left := begin(caller, badge)
	wait("1")
	leave()
	if err := projectortest.Await(t, left, "the read"); !errors.Is(err, context.Canceled) || errors.Is(err, cluster.ErrAway) {
		t.Errorf("a read whose caller has left gives %v", err)
	}

	wait("0")
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second) // of a read that nothing ends
	defer stop()
	one := begin(ctx, badge)
	var epochs []string
	some := begin(ctx, func(ctx context.Context) error {
		found, err := r.Badges(ctx, []string{there, here})
		for _, b := range found {
			epochs = append(epochs, b.UserID+b.Epoch)
		}
		return err
	})
	wait("2")
	back := foreign(t, all[1])
	_ = c.Reload(t.Context()) // as Run does
	isAway := func(what string, err error) {
		t.Helper()
		if away := cluster.AwayIn(err); len(away) != 1 || away[0].Database != "b" || !errors.Is(err, cluster.ErrForeign) {
			t.Errorf("%s gives %v", what, err)
		}
	}
	isAway("a read", projectortest.Await(t, one, "the read"))
	err = projectortest.Await(t, some, "the read of several")
	isAway("a read of several", err)
	unread := &cluster.PartialFailure{}
	if !errors.As(err, &unread) || !slices.Equal(unread.UserIDs, []string{there}) || !slices.Equal(unread.Numbers(), []int{3}) {
		t.Errorf("the read of several gives %+v", unread)
	}
	if len(epochs) != 2 || epochs[0] != there || epochs[1] == here {
		t.Errorf("the badges are %q", epochs)
	}
	isAway("a later read", badge(t.Context()))

	back()
	projectortest.Run(t, c.Run)
	projectortest.Until(t, "the shard to be back", func() bool { return c.Database("b").Err() == nil })
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := badge(t.Context()); err != nil {
		t.Errorf("once the shard is back, a read gives %v", err)
	}
}

// waitingReads selects the locks that reads of a database wait for.
const waitingReads = `FROM pg_locks WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND NOT granted`

// Unread users are named in the order of the call, whichever shards are unavailable.
func TestUnreadUsersAreInTheirOrder(t *testing.T) {
	t.Parallel()
	all := databases(t, "a", "b", "c")
	form(t, all) // two partitions each
	c := open(t, all)
	foreign(t, all[1])
	foreign(t, all[2])
	_ = c.Reload(t.Context())
	_, err := cluster.NewReader(c).Badges(t.Context(), []string{userOf(t, 5), userOf(t, 0), userOf(t, 2), userOf(t, 4)})
	unread := &cluster.PartialFailure{}
	if !errors.As(err, &unread) {
		t.Fatal(err)
	}
	if !slices.Equal(unread.UserIDs, []string{userOf(t, 5), userOf(t, 2), userOf(t, 4)}) || !slices.Equal(unread.Numbers(), []int{2, 4, 5}) || len(unread.Partitions) != partitions {
		t.Errorf("the error is %+v", unread)
	}
}

// If a shard does not hold a partition that the map assigns to it, reads wait for it as long as a
// move takes. Later reads fail at once and name the shard.
func TestReadsOfALostPartition(t *testing.T) {
	t.Parallel()
	all := databases(t, "a", "b")
	form(t, all)
	c := open(t, all)
	r := cluster.NewReader(c)
	exec(t, all[1], `DELETE FROM badged.partitions WHERE partition_id = 3`)
	user := userOf(t, 3)
	if _, err := r.Badge(t.Context(), user); err == nil {
		t.Error("the shard does not hold the partition, and has a badge")
	}
	_, err := r.Badges(t.Context(), []string{user, userOf(t, 4)})
	if away := cluster.AwayIn(err); len(away) != 1 || away[0].Kind != cluster.Lost || away[0].Database != "b" || !slices.Equal(away[0].Partitions, []int{3}) {
		t.Errorf("after the wait, it gives %v", err)
	}
}

// A shard that hangs during the switch of a move has reported last that it holds the partition.
// That does not count as a disagreement.
func TestSilentAfterASwitch(t *testing.T) {
	server := pgtest.NewServer(t)
	defer server.Resume() // before its databases are dropped
	all := []cluster.Candidate{
		connect(t, "a", pgtest.NewDB(t, schematest.Migrated(partitions))),
		connect(t, "b", server.NewDB(t, schematest.Migrated(partitions))),
	}
	form(t, all)
	var said strings.Builder
	c, err := cluster.Open(t.Context(), cluster.Config{Databases: again(t, all), Interval: 50 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	move(t, all[1], all[0], 3, 2)
	server.Pause()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	for changed := c.Changed(); c.Database("b").Err() == nil; changed = c.Changed() {
		<-changed
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if strings.Contains(said.String(), "the shards disagree") {
		t.Errorf("it says\n%s", &said)
	}
	if held := c.Database("a").Held(); !slices.Contains(held, 3) {
		t.Errorf("a has %v", held)
	}
}
