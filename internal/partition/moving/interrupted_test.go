package moving_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/partition/copier"
	"github.com/badged/badged/internal/partition/moving"
	"github.com/badged/badged/internal/pg/pgsession"
)

// An open transaction that has appended to the partition delays the switch. Other publishers are
// not blocked, and the move names the session.
func TestOpenTransactionDelaysTheSwitch(t *testing.T) {
	t.Parallel()
	a, b := newShards(t)
	running(t, a, b)
	user := foldtest.User(0, 0)
	l := newLoad(a, b, 0, 1)
	if err := l.append(t.Context(), foldtest.Deliver("before", 1, user)); err != nil {
		t.Fatal(err)
	}
	conn := a.Connect(t)
	var tx pgx.Tx
	blocked, done := make(chan int, 100), make(chan error, 1)
	cfg := config(a, b, 0, "b")
	cfg.Progress = func(step copier.Step, _ int64) {
		if step != copier.CatchingUp || tx != nil {
			return
		}
		var err error
		if tx, err = conn.Begin(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := events.Publish(t.Context(), tx, foldtest.Deliver("open", 1, user)); err != nil {
			t.Error(err)
		}
	}
	cfg.Blocked = func(shard string, holder pgsession.Holder) {
		if shard == "a" {
			blocked <- holder.PID
		}
	}
	go func() {
		_, err := moving.Move(t.Context(), cfg)
		done <- err
	}()
	if pid := projectortest.Await(t, blocked, "the name of the session"); pid != int(conn.PgConn().PID()) {
		t.Errorf("the session that delays the move is %d, want %d", pid, conn.PgConn().PID())
	}
	for n := range 20 {
		if err := l.append(t.Context(), foldtest.Deliver("meanwhile", int64(n+1), user)); err != nil {
			t.Fatal(err)
		}
	}
	if held := a.Lines(t, `SELECT 'held' FROM badged.partitions WHERE partition_id = 0`); len(held) != 1 {
		t.Error("the source does not have the partition while a transaction holds events for it")
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := projectortest.Await(t, done, "the move"); err != nil {
		t.Fatal(err)
	}
	b.AwaitFolded(t)
	if got := b.Badge(t, user); got.Total != 22 {
		t.Errorf("the total is %d, want 22", got.Total)
	}
	verify(t, b, 0)
}

// A transaction with an old snapshot that blocks at the gate appends nothing to a shard that has
// released the partition.
func TestOldSnapshotAtTheGate(t *testing.T) {
	t.Parallel()
	a, b := newShards(t)
	a.Append(t, foldtest.Deliver("c", 1, foldtest.User(0, 0)))
	a.Fold(t)
	conn := a.Connect(t)
	tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT count(*) FROM badged.partitions`); err != nil { // takes the snapshot
		t.Fatal(err)
	}
	// The gate, as it is when the source has released the partition.
	cfg := config(a, b, 0, "b")
	b.Exec(t, refuseHold)
	if _, err := moving.Move(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "not now") {
		t.Fatalf("the move ended with %v", err)
	}
	_, err = tx.Exec(t.Context(), `INSERT INTO badged.events_p00 (uuid, payload) VALUES (gen_random_uuid(), '{}')`)
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "40001" {
		t.Errorf("appending in an old snapshot gives %v", err)
	}
	_ = tx.Rollback(t.Context())
}

// refuseHold keeps a shard from getting partitions.
const refuseHold = `CREATE FUNCTION refuse_hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;
CREATE TRIGGER refuse_hold BEFORE INSERT ON badged.partitions FOR EACH ROW EXECUTE FUNCTION refuse_hold()`

// The next call completes a move that was interrupted between the commits of the two shards.
// Until then neither shard accepts events.
func TestInterruptedBetweenTheCommits(t *testing.T) {
	t.Parallel()
	a, b := newShards(t)
	user := foldtest.User(0, 0)
	a.Append(t, foldtest.Deliver("c", 1, user))
	a.Fold(t)
	before := states(t, a, 0)
	b.Exec(t, refuseHold)
	_, err := moving.Move(t.Context(), config(a, b, 0, "b"))
	if err == nil || !strings.Contains(err.Error(), "run the command again") {
		t.Fatalf("the move ended with %v", err)
	}
	for _, d := range []*projectortest.Database{a, b} {
		if _, err := d.Log.Append(t.Context(), foldtest.Deliver("c", 2, user)); !notHeld(err) {
			t.Errorf("appending gives %v", err)
		}
		// Writers that have not heard of it are refused as well.
		if _, err := a.Pool.Exec(t.Context(), `INSERT INTO badged.expiry_progress VALUES (0, 'x', 1)`); err == nil {
			t.Error("the source takes a row of the partition")
		}
	}
	if _, err := moving.Move(t.Context(), config(a, b, 0, "a")); err == nil {
		t.Error("the partition moved elsewhere meanwhile")
	}
	b.Exec(t, `DROP TRIGGER refuse_hold ON badged.partitions`)
	if r := move(t, config(a, b, 0, "b")); !r.Resumed {
		t.Errorf("the move is %+v", r)
	}
	if got := states(t, b, 0); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("the badges are\n%v\nwant\n%v", got, before)
	}
	for _, table := range moving.Tables(0) {
		if left := rowsOf(t, a, table); len(left) > 0 {
			t.Errorf("%s of the source still has %v", table.Name, left)
		}
	}
}

// A partition moves on although an earlier move left old rows. A move to its present shard deletes
// the rows; a list names this command, not one that moves the partition back.
func TestMoveOnFromALeftOver(t *testing.T) {
	t.Parallel()
	a, b := newShards(t)
	c := newTarget(t, "c")
	user := foldtest.User(0, 0)
	a.Append(t, foldtest.Deliver("c", 1, user))
	a.Fold(t)
	before := states(t, a, 0)
	a.Exec(t, `CREATE FUNCTION refuse_truncate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;
CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON badged.users_p00 FOR EACH STATEMENT EXECUTE FUNCTION refuse_truncate()`)
	on := func(to string) moving.Config {
		cfg := config(a, b, 0, to)
		cfg.Databases = append(cfg.Databases, moving.Database{Name: "c", Pool: c.Pool, Log: c.Log})
		return cfg
	}
	if _, err := moving.Move(t.Context(), on("b")); err == nil || !strings.Contains(err.Error(), "could not be deleted from a") {
		t.Fatalf("the move ended with %v", err)
	}
	listed := func(state moving.State, to string) {
		t.Helper()
		for _, all := range [][]moving.Database{on("").Databases, {on("").Databases[2], on("").Databases[1], on("").Databases[0]}} {
			list, err := moving.List(t.Context(), all, []int{0, 1, 2, 3}, func(int) string { return "c" }, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if got := list[0]; got.State != state || got.To != to {
				t.Errorf("it is listed as %s, to %q; want %s, %q", got.State, got.To, state, to)
			}
		}
	}
	listed(moving.LeftOver, "b")
	move(t, on("c"))
	listed(moving.LeftOver, "c")
	if _, err := moving.Move(t.Context(), on("c")); err == nil || !strings.Contains(err.Error(), "could not be deleted from a") {
		t.Fatalf("cleaning up ended with %v", err)
	}
	a.Exec(t, `DROP TRIGGER refuse_truncate ON badged.users_p00`)
	if r := move(t, on("c")); !r.Resumed || r.From != "a" {
		t.Errorf("the move is %+v", r)
	}
	listed(moving.Serving, "")
	if _, err := moving.Move(t.Context(), on("c")); !errors.Is(err, moving.ErrSameShard) {
		t.Errorf("moving it to where it is gives %v", err)
	}
	if got := states(t, c, 0); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("the badges are\n%v\nwant\n%v", got, before)
	}
	for _, d := range []*projectortest.Database{a, b} {
		for _, table := range moving.Tables(0) {
			if left := rowsOf(t, d, table); len(left) > 0 {
				t.Errorf("%s still has %v", table.Name, left)
			}
		}
	}
	verify(t, c, 0)
}

// A full disk of the target ends the move. The source still serves, and the move continues when
// there is space again.
func TestFullTarget(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"users_p00", "events_p00", "late_folds", "events_p00_offsets"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			a, b := newShards(t)
			user := foldtest.User(0, 0)
			a.Append(t, foldtest.Deliver("c", 1, user))
			a.Fold(t)
			a.Exec(t, `INSERT INTO badged.late_folds (partition_id, number, transaction_id, "offset") SELECT 0, 1, transaction_id, "offset" FROM badged.events_p00
-- A slow fold has recorded it already.
ON CONFLICT DO NOTHING`)
			b.Exec(t, `CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no space left on device' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON badged.`+table+` FOR EACH ROW EXECUTE FUNCTION full_disk()`)
			_, err := moving.Move(t.Context(), config(a, b, 0, "b"))
			if err == nil || !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), "on b") || !strings.Contains(err.Error(), "a still has it") {
				t.Errorf("the move ended with %v", err)
			}
			a.Append(t, foldtest.Deliver("c", 2, user))
			a.Fold(t)
			verify(t, a, 0)
			b.Exec(t, `DROP TRIGGER full_disk ON badged.`+table)
			move(t, config(a, b, 0, "b"))
			if got := b.Badge(t, user); got.Total != 2 {
				t.Errorf("the total is %d, want 2", got.Total)
			}
			verify(t, b, 0)
		})
	}
}

func TestBadMoves(t *testing.T) {
	t.Parallel()
	a, b := newShards(t)
	a.Fold(t)
	for _, tc := range []struct {
		name      string
		partition int
		to        string
		want      error
	}{
		{"an unknown shard", 0, "c", moving.ErrUnknownShard},
		{"the same shard", 0, "a", moving.ErrSameShard},
		{"an unknown partition", foldtest.Partitions, "b", moving.ErrUnknownPartition},
		{"a negative partition", -1, "b", moving.ErrUnknownPartition},
	} {
		if _, err := moving.Move(t.Context(), config(a, b, tc.partition, tc.to)); !errors.Is(err, tc.want) {
			t.Errorf("moving to %s gives %v", tc.name, err)
		}
	}
	cfg := config(a, b, 0, "b")
	cfg.Databases[1].Pool = projectortest.NewPool(t, "postgres://127.0.0.1:1/none", nil)
	if _, err := moving.Move(t.Context(), cfg); !errors.Is(err, moving.ErrAway) || !strings.Contains(err.Error(), "b") {
		t.Errorf("moving to a shard that is away gives %v", err)
	}
	cfg = config(a, b, 0, "a")
	cfg.Databases[0].Pool = cfg.Databases[1].Pool
	if _, err := moving.Move(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "says that it is shard b") {
		t.Errorf("a database under another name gives %v", err)
	}
	b.Exec(t, `UPDATE badged.shard SET cluster = gen_random_uuid()`)
	if _, err := moving.Move(t.Context(), config(a, b, 0, "b")); err == nil || !strings.Contains(err.Error(), "different clusters") {
		t.Errorf("moving to another cluster gives %v", err)
	}
}

// A move starts over if one of the logs was renumbered meanwhile, as after a restore from a dump:
// the places in this log have changed.
func TestAMoveIsNotContinuedAfterRenumbering(t *testing.T) {
	t.Parallel()
	for _, renumbered := range []string{"a", "b", ""} {
		t.Run("shard "+renumbered, func(t *testing.T) {
			t.Parallel()
			a, b := newShards(t)
			a.Append(t, foldtest.Deliver("c", 1, foldtest.User(0, 0)))
			a.Fold(t)
			ctx, stop := context.WithCancel(t.Context())
			cfg := config(a, b, 0, "b")
			cfg.Progress = func(step copier.Step, _ int64) {
				if step == copier.Switching {
					stop()
				}
			}
			if _, err := moving.Move(ctx, cfg); !errors.Is(err, context.Canceled) {
				t.Fatalf("the move ended with %v", err)
			}
			if renumbered != "" {
				(map[string]*projectortest.Database{"a": a, "b": b})[renumbered].Exec(t, `UPDATE badged.moves SET era = era - 1`)
			}
			r, err := moving.Move(t.Context(), config(a, b, 0, "b"))
			if err != nil || r.Resumed != (renumbered == "") || r.LogRows != 1 {
				t.Errorf("the move ended with %+v, %v", r, err)
			}
			verify(t, b, 0)
		})
	}
}
