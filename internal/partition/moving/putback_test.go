package moving_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/partition/copier"
	"github.com/badged/badged/internal/partition/moving"
	"github.com/badged/badged/projector"
)

var putBacks = flag.Bool("put-backs", false, "put a shard back from each moment of a move to each earlier one")

// newServers returns shards a and b on servers of their own.
func newServers(t testing.TB) (a, b *projectortest.Database, of map[*projectortest.Database]*pgtest.Server) {
	t.Helper()
	sa, sb := pgtest.NewServer(t), pgtest.NewServer(t)
	a, b = projectortest.Open(t, sa.NewDB(t, projectortest.Migrated())), projectortest.Open(t, sb.NewDB(t, projectortest.Migrated()))
	a.Exec(t, joinSQL, "a")
	a.Exec(t, `SELECT badged.map_partition(p, 'a', 1) FROM generate_series(0, $1 - 1) AS p`, foldtest.Partitions)
	b.Exec(t, joinSQL, "b")
	b.Exec(t, `SELECT badged.release_partition(p, 'a', 1) FROM generate_series(0, $1 - 1) AS p`, foldtest.Partitions)
	return a, b, map[*projectortest.Database]*pgtest.Server{a: sa, b: sb}
}

// baseBackup makes a base backup of a server, and returns a function that restores the server from
// this backup.
func baseBackup(t testing.TB, s *pgtest.Server, d *projectortest.Database) (putBack func()) {
	t.Helper()
	back := s.BaseBackup(t)
	return func() {
		t.Helper()
		back()
		d.Pool.Reset()
	}
}

// folding folds a database until the test ends or stop is called.
func folding(t testing.TB, d *projectortest.Database) (stop func()) {
	t.Helper()
	return d.Start(t, func(cfg *projector.Config) {
		cfg.PollInterval, cfg.OwnershipInterval = 10*time.Millisecond, 100*time.Millisecond
	}).Stop
}

// moments are those of a move, in their order.
var moments = []string{"prepare", "copy the log", "copy tables", "catch up", "catch up again", "switch", "released", "held"}

// Indexes of moments.
const (
	copiesLog = 1 + iota
	copiesTables
	catchesUp
	catchesUpAgain
	switches
	isReleased
	isHeld
)

// A shard is restored to an earlier moment of a move. The move starts over, continues, or fails
// with a clear error, and all counts are right.
func TestPutBackDuringAMove(t *testing.T) {
	t.Parallel()
	type run struct {
		side     string
		from, to int
	}
	runs := []run{
		{"a", copiesLog, catchesUpAgain},
		{"a", copiesTables, catchesUp},
		{"a", catchesUp, switches},
		{"a", catchesUp, isReleased},
		{"a", switches, isHeld},
		{"b", catchesUp, switches},
		{"b", catchesUp, isReleased},
		{"b", isReleased, isHeld},
	}
	switch {
	case testing.Short(): // each copies servers
		runs = []run{{"a", catchesUp, isReleased}, {"b", catchesUp, isReleased}}
	case *putBacks:
		runs = nil
		for to := range moments {
			for from := range to {
				runs = append(runs, run{"a", from, to}, run{"b", from, to})
			}
		}
	}
	for _, r := range runs {
		t.Run(fmt.Sprintf("%s from %s to %s", r.side, moments[r.to], moments[r.from]), func(t *testing.T) { //nolint:paralleltest // servers take memory
			putBackDuringAMove(t, r.side, r.from, r.to)
		})
	}
}

func putBackDuringAMove(t *testing.T, side string, from, to int) {
	t.Helper()
	a, b, servers := newServers(t)
	d := map[string]*projectortest.Database{"a": a, "b": b}[side]
	users := []string{foldtest.User(0, 0), foldtest.User(0, 1), foldtest.User(0, 2)}
	seq := int64(0)
	more := func(on *projectortest.Database) {
		seq++
		for _, user := range users[seq%2:] {
			on.Append(t, foldtest.Deliver("c", seq, user))
		}
		on.AwaitFolded(t)
	}
	stop := folding(t, a)
	more(a)
	if to == isReleased {
		b.Exec(t, refuseHold)
	}
	a.Exec(t, refuseTruncate)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var putBack func()
	at := -1
	cfg := config(a, b, 0, "b")
	cfg.Progress = func(step copier.Step, _ int64) {
		moment := slices.Index(moments, string(step))
		if step == copier.CatchingUp && at >= catchesUp {
			moment = catchesUpAgain
		}
		if moment <= at {
			return
		}
		at = moment
		if at == from {
			putBack = baseBackup(t, servers[d], d)
		}
		if at < switches {
			more(a)
		}
		if at == to {
			cancel()
		}
	}
	_, err := moving.Move(ctx, cfg)
	if err == nil {
		t.Fatal("the move ended")
	}
	if from == isReleased {
		putBack = baseBackup(t, servers[d], d)
	}
	stop()
	putBack()
	t.Logf("the move ended with %v", err)

	cfg.Progress = nil
	for _, one := range []*projectortest.Database{a, b} {
		one.Exec(t, `DROP FUNCTION IF EXISTS refuse_hold, refuse_truncate CASCADE`)
	}
	_, is, err := moving.Complete(t.Context(), cfg.Databases, 0)
	t.Logf("completing: %v, %v", is, err)
	if lost := errors.Is(err, moving.ErrTargetLost); lost != (side == "b" && to >= isReleased && from < isReleased) {
		t.Errorf("completing gives %v", err)
	} else if err != nil && !lost {
		t.Error(err)
	}
	switch held := holders(t, cfg.Databases); held {
	case "ab":
		if side != "a" || from >= isReleased || to != isHeld {
			t.Fatal("both have the partition")
		}
		if _, err := moving.Move(t.Context(), cfg); err == nil {
			t.Error("it moves although both have it")
		}
		verify(t, b, 0)
		return
	case "":
		if _, err := moving.Move(t.Context(), cfg); !errors.Is(err, moving.ErrTargetLost) {
			t.Errorf("the move gives %v", err)
		}
		if from, to, err := moving.Undo(t.Context(), cfg); err != nil || from != "a" || to != "b" {
			t.Fatalf("undoing gives %s, %s, %v", from, to, err)
		}
	}
	holder := a
	if holders(t, cfg.Databases) == "b" {
		holder = b
	}
	stop = folding(t, holder)
	holder.AwaitFolded(t)
	want := logOf(t, holder)
	if side == "b" || to == isReleased && holder == b { // nothing was lost
		for _, user := range users {
			if got := holder.Badge(t, user).Total; user == users[2] && got != seq {
				t.Errorf("%s has a total of %d, want %d", user, got, seq)
			}
		}
	}
	if holder == a {
		if _, err := moving.Move(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		stop()
		folding(t, b)
	}
	b.AwaitFolded(t)
	if got := logOf(t, b); !slices.Equal(got, want) {
		t.Errorf("the log has %d events, want %d:\n%v\n%v", len(got), len(want), got, want)
	}
	verify(t, b, 0)
	more(b)
	verify(t, b, 0)
}

// refuseTruncate keeps a shard from deleting the rows of partition 0.
const refuseTruncate = `CREATE FUNCTION refuse_truncate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;
CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON badged.users_p00 FOR EACH STATEMENT EXECUTE FUNCTION refuse_truncate()`

// logOf returns the keys of the events in the log of partition 0.
func logOf(t testing.TB, d *projectortest.Database) []string {
	t.Helper()
	return d.Lines(t, `SELECT uuid::text FROM badged.events_p00 ORDER BY transaction_id, "offset"`)
}

// The target is ready in an attempt that fails. After the next attempt has succeeded, the target is
// restored to the failed attempt: the rows since then are missing.
func TestPutBackToAnEarlierAttempt(t *testing.T) {
	t.Parallel()
	a, b, servers := newServers(t)
	user := foldtest.User(0, 0)
	stop := folding(t, a)
	a.Append(t, foldtest.Deliver("c", 1, user))
	before := a.Lines(t, `SELECT epoch FROM badged.partitions WHERE partition_id = 0`)
	b.Exec(t, refuseHold)
	a.Exec(t, `CREATE SEQUENCE badged.attempts; CREATE FUNCTION refuse_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
IF nextval('badged.attempts') = 1 THEN RAISE 'not now' USING ERRCODE = 'lock_not_available'; END IF; RETURN OLD; END $$;
CREATE TRIGGER refuse_once BEFORE DELETE ON badged.partitions FOR EACH ROW EXECUTE FUNCTION refuse_once()`)
	cfg := config(a, b, 0, "b")
	var putBack func()
	tried := false
	cfg.Progress = func(step copier.Step, _ int64) {
		switch {
		case step == copier.Switching:
			tried = true
		case step == copier.CatchingUp && tried && putBack == nil:
			if got := b.Lines(t, `SELECT state FROM badged.moves`); fmt.Sprint(got) != "[ready]" {
				t.Fatalf("the target is %v after the first attempt", got)
			}
			putBack = baseBackup(t, servers[b], b)
			a.Append(t, foldtest.Deliver("c", 2, user))
			a.AwaitFolded(t)
		}
	}
	if _, err := moving.Move(t.Context(), cfg); err == nil || putBack == nil {
		t.Fatalf("the move ended with %v", err)
	}
	stop()
	putBack()
	b.Exec(t, `DROP FUNCTION refuse_hold CASCADE`)
	cfg.Progress = nil
	if _, is, err := moving.Complete(t.Context(), cfg.Databases, 0); is || !errors.Is(err, moving.ErrTargetLost) {
		t.Errorf("completing gives %v, %v", is, err)
	}
	if _, err := moving.Move(t.Context(), cfg); !errors.Is(err, moving.ErrTargetLost) {
		t.Errorf("moving gives %v", err)
	}
	if _, _, err := moving.Undo(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if got := a.Lines(t, `SELECT epoch FROM badged.partitions WHERE partition_id = 0`); fmt.Sprint(got) == fmt.Sprint(before) {
		t.Errorf("the epoch is %v still", got)
	}
	stop = folding(t, a)
	move(t, cfg)
	stop()
	folding(t, b)
	b.AwaitFolded(t)
	if got := b.Badge(t, user); got.Total != 2 {
		t.Errorf("the total is %d, want 2", got.Total)
	}
	verify(t, b, 0)
}
