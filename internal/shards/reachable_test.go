package shards_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/internal/shards"
)

// foreign makes a database no shard of its cluster, and back: a process then takes the shard
// for away, as if it could not be reached.
func foreign(t *testing.T, d shards.Database) (back func()) {
	t.Helper()
	was := read(t.Context(), t, d, `SELECT cluster::text FROM badged.shard`)
	exec(t, d, `UPDATE badged.shard SET cluster = gen_random_uuid()`)
	return func() {
		t.Helper()
		exec(t, d, `UPDATE badged.shard SET cluster = $1`, was)
	}
}

// A read that waits for a shard ends once the shard is away, with an error that names it.
// Other errors stay what they are.
func TestReadsEndOnceTheirShardIsAway(t *testing.T) {
	t.Parallel()
	all := databases(t, "a", "b")
	form(t, all) // a has 0 to 2, b the rest
	c := open(t, all)
	r := shards.NewReader(c)
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
	fault := &shards.FaultError{}
	if err := projectortest.Await(t, failing, "the read"); !errors.As(err, &fault) || fault.Shard != "b" || errors.Is(err, shards.ErrAway) {
		t.Errorf("a read that fails gives %v", err)
	}
	wait("0")
	caller, leave := context.WithCancel(t.Context())
	left := begin(caller, badge)
	wait("1")
	leave()
	if err := projectortest.Await(t, left, "the read"); !errors.Is(err, context.Canceled) || errors.Is(err, shards.ErrAway) {
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
		if away := shards.AwayIn(err); len(away) != 1 || away[0].Shard != "b" || !errors.Is(err, shards.ErrForeign) {
			t.Errorf("%s gives %v", what, err)
		}
	}
	isAway("a read", projectortest.Await(t, one, "the read"))
	err = projectortest.Await(t, some, "the read of several")
	isAway("a read of several", err)
	unread := &shards.PartialReadError{}
	if !errors.As(err, &unread) || !slices.Equal(unread.UserIDs, []string{there}) || !slices.Equal(unread.Partitions, []int{3}) {
		t.Errorf("the read of several gives %+v", unread)
	}
	if len(epochs) != 2 || epochs[0] != there || epochs[1] == here {
		t.Errorf("the badges are %q", epochs)
	}
	isAway("a later read", badge(t.Context()))

	back()
	projectortest.Run(t, c.Run)
	projectortest.Until(t, "the shard to be back", func() bool { return c.Shard("b").Err() == nil })
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := badge(t.Context()); err != nil {
		t.Errorf("once the shard is back, a read gives %v", err)
	}
}

// waitingReads are the locks that reads of a database wait for.
const waitingReads = `FROM pg_locks WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND NOT granted`

// The users that could not be read are named in the order given, whichever shards are away.
func TestUnreadUsersAreInTheirOrder(t *testing.T) {
	t.Parallel()
	all := databases(t, "a", "b", "c")
	form(t, all) // two partitions each
	c := open(t, all)
	foreign(t, all[1])
	foreign(t, all[2])
	_ = c.Reload(t.Context())
	_, err := shards.NewReader(c).Badges(t.Context(), []string{userOf(t, 5), userOf(t, 0), userOf(t, 2), userOf(t, 4)})
	unread := &shards.PartialReadError{}
	if !errors.As(err, &unread) {
		t.Fatal(err)
	}
	if !slices.Equal(unread.UserIDs, []string{userOf(t, 5), userOf(t, 2), userOf(t, 4)}) || !slices.Equal(unread.Partitions, []int{2, 4, 5}) || unread.Of != partitions {
		t.Errorf("the error is %+v", unread)
	}
}

// A partition that its shard does not hold, although the map says so, is waited for as long as
// a move takes, and then the shard is named at once.
func TestReadsOfALostPartition(t *testing.T) {
	t.Parallel()
	all := databases(t, "a", "b")
	form(t, all)
	c := open(t, all)
	r := shards.NewReader(c)
	exec(t, all[1], `DELETE FROM badged.partitions WHERE partition_id = 3`)
	user := userOf(t, 3)
	if _, err := r.Badge(t.Context(), user); err == nil {
		t.Error("the shard does not hold the partition, and has a badge")
	}
	_, err := r.Badges(t.Context(), []string{user, userOf(t, 4)})
	if away := shards.AwayIn(err); len(away) != 1 || !away[0].Lost || away[0].Shard != "b" || !slices.Equal(away[0].Partitions, []int{3}) {
		t.Errorf("after the wait, it gives %v", err)
	}
}

// A shard that falls silent as it gives a partition away has said last that it holds it. That
// is no disagreement.
func TestSilentAfterASwitch(t *testing.T) {
	server := pgtest.NewServer(t)
	defer server.Resume() // before its databases are dropped
	all := []shards.Database{
		connect(t, "a", pgtest.NewDB(t, schematest.Migrated(partitions))),
		connect(t, "b", server.NewDB(t, schematest.Migrated(partitions))),
	}
	form(t, all)
	var said strings.Builder
	c, err := shards.Open(t.Context(), shards.Config{Databases: again(t, all), Interval: 50 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	move(t, all[1], all[0], 3, 2)
	server.Pause()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	for changed := c.Changed(); c.Shard("b").Err() == nil; changed = c.Changed() {
		<-changed
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if strings.Contains(said.String(), "the shards disagree") {
		t.Errorf("it says\n%s", &said)
	}
	if held := c.Shard("a").Held(); !slices.Contains(held, 3) {
		t.Errorf("a has %v", held)
	}
}
