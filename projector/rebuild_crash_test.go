package projector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/projector/rebuild"
	"github.com/badged/badged/projector/replay"
)

// kill ends the session of the rebuild under way.
func (d *database) kill(t testing.TB) {
	t.Helper()
	if n := d.lines(t, `SELECT pg_terminate_backend(pid, 10000)::text FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'badged rebuild'`); !slices.Equal(n, []string{"true"}) {
		t.Errorf("killed %v", n)
	}
}

// shadows returns the tables that rebuilds have left.
func (d *database) shadows(t testing.TB) []string {
	t.Helper()
	return d.lines(t, `SELECT relname::text FROM pg_class WHERE relnamespace = 'badged'::regnamespace AND relkind = 'r' AND relname LIKE '%rebuild'`)
}

// rebuildStages are the places at which a rebuild that finds partition 0
// different can be killed: by a callback, or by a trigger as in crash_test.go.
var rebuildStages = []struct {
	name, trigger string
	planned, done int // which call
}{
	{name: "with empty tables", planned: 1},
	{name: "after folding", done: 1},
	{name: "before copying", planned: 2},
	{name: "after copying users", done: 2},
	{name: "after copying conversations", done: 3},
	{name: "when the epoch changes", trigger: `AFTER UPDATE ON badged.partitions`},
	{name: "when healings are forgotten", trigger: `AFTER DELETE ON badged.healed_users`},
	{name: "when it is noted", trigger: `AFTER INSERT ON badged.rebuilt_partitions`},
	{name: "when the swap is committed", trigger: `commit`},
	{name: "with everything done", trigger: `AFTER DELETE ON badged.rebuilt_partitions`},
}

// Killed anywhere, a rebuild leaves the live tables as they were or as they
// should be, and another goes on to the same end.
func TestRebuildKilledAnywhere(t *testing.T) {
	for _, stage := range rebuildStages {
		t.Run(stage.name, func(t *testing.T) {
			d, ann := startPlants(t)
			d.fold(t)
			right, schema, identities := d.dump(t), d.schema(t), d.identities(t)
			d.exec(t, `UPDATE badged.users SET total = 99 WHERE user_id = $1`, ann)
			wrong := d.dump(t)
			if stage.trigger != "" {
				create := `CREATE TRIGGER fault ` + stage.trigger + ` FOR EACH STATEMENT`
				if stage.trigger == "commit" {
					create = `CREATE CONSTRAINT TRIGGER fault AFTER INSERT ON badged.rebuilt_partitions DEFERRABLE INITIALLY DEFERRED FOR EACH ROW`
				}
				d.exec(t, `CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_terminate_backend(pg_backend_pid()); RAISE 'it outlived its end';
END $$`)
				d.exec(t, create+` EXECUTE FUNCTION fault()`)
			}
			planned, done := 0, 0
			_, err := d.tryRebuild(t.Context(), func(cfg *rebuild.Config) {
				cfg.Progress = watch{
					planned: func(int, int64) {
						if planned++; planned == stage.planned {
							d.kill(t)
						}
					},
					done: func() {
						if done++; done == stage.done {
							d.kill(t)
						}
					},
				}
			})
			if err == nil {
				t.Fatal("nothing killed it")
			}
			after := wrong
			if strings.HasPrefix(stage.name, "with everything") {
				after = right
			}
			if diff := cmp.Diff(after, d.dump(t)); diff != "" {
				t.Errorf("it left (-want +got):\n%s", diff)
			}
			if kept := slices.Equal(identities, d.identities(t)); kept != (after == wrong) {
				t.Errorf("tables and epochs were %v, are %v", identities, d.identities(t))
			}
			d.exec(t, `DROP FUNCTION IF EXISTS fault CASCADE`)
			for len(d.lines(t, `SELECT 'ending' FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'badged rebuild'`)) > 0 {
			}

			rebuilt := d.rebuild(t, nil)
			if after == wrong && (len(rebuilt) != foldtest.Partitions || rebuilt[0].DifferentUsers != 1) || after == right && len(rebuilt) != 0 {
				t.Errorf("the next one rebuilt %v", rebuilt)
			}
			if diff := cmp.Diff(right, d.dump(t)); diff != "" {
				t.Errorf("the rows are (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(schema, d.schema(t)); diff != "" || len(d.shadows(t)) > 0 {
				t.Errorf("the tables are (-want +got):\n%s", diff)
			}
			d.append(t, foldtest.Deliver("c", 5, ann))
			d.fold(t)
			d.verifyAll(t, replay.VerifyOptions{})
		})
	}
}

// A rebuild that is interrupted between two partitions goes on with the rest,
// unless it is to begin anew or is about one partition.
func TestRebuildResumes(t *testing.T) {
	d, _ := startPlants(t)
	d.fold(t)
	d.exec(t, `UPDATE badged.users SET total = 99 WHERE partition_id = 0`)
	interrupt := func() {
		killed := false
		rebuilt, err := d.tryRebuild(t.Context(), func(cfg *rebuild.Config) {
			cfg.Progress = watch{planned: func(partition int, _ int64) {
				if partition == 2 && !killed {
					d.kill(t)
					killed = true
				}
			}}
		})
		if err == nil || len(rebuilt) != 2 {
			t.Fatalf("interrupted, it ended with %v after %v", err, rebuilt)
		}
	}
	of := func(change func(*rebuild.Config)) (before, rebuilt []int) {
		for _, p := range d.rebuild(t, func(cfg *rebuild.Config) {
			cfg.Resumed = func(done []rebuild.Result) {
				for _, p := range done {
					before = append(before, p.Partition)
				}
				if done[0].Users != 3 || done[0].Conversations != 8 {
					t.Errorf("of what was done it says %+v", done[0])
				}
			}
			if change != nil {
				change(cfg)
			}
		}) {
			rebuilt = append(rebuilt, p.Partition)
		}
		return before, rebuilt
	}
	interrupt()
	if before, rebuilt := of(onlyPartition(1)); before != nil || !slices.Equal(rebuilt, []int{1}) {
		t.Errorf("of one partition it rebuilt %v after %v", rebuilt, before)
	}
	if before, rebuilt := of(nil); !slices.Equal(before, []int{0, 1}) || !slices.Equal(rebuilt, []int{2, 3}) {
		t.Errorf("the next one rebuilt %v after %v", rebuilt, before)
	}
	if before, rebuilt := of(nil); before != nil || len(rebuilt) != foldtest.Partitions {
		t.Errorf("the one after that rebuilt %v after %v", rebuilt, before)
	}
	interrupt()
	if before, rebuilt := of(func(cfg *rebuild.Config) { cfg.Anew = true }); before != nil || len(rebuilt) != foldtest.Partitions {
		t.Errorf("anew it rebuilt %v after %v", rebuilt, before)
	}
}

// One that is cancelled leaves nothing but the live tables, untouched.
func TestRebuildIsCancelled(t *testing.T) {
	d, ann := startPlants(t)
	d.fold(t)
	d.exec(t, `UPDATE badged.users SET total = 99 WHERE user_id = $1`, ann)
	before, identities := d.dump(t), d.identities(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := d.tryRebuild(ctx, func(cfg *rebuild.Config) {
		cfg.MaxLoad = 1e-9 // none but one that is cancelled gets past a pause
		cfg.Progress = watch{done: cancel}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if diff := cmp.Diff(before, d.dump(t)); diff != "" || !slices.Equal(identities, d.identities(t)) || len(d.shadows(t)) > 0 {
		t.Errorf("it left %v, rows (-before +after):\n%s", d.shadows(t), diff)
	}
}

// There is one at a time, and it says which.
func TestRebuildIsRefusedBesideAnother(t *testing.T) {
	d, _ := startPlants(t)
	d.fold(t)
	tried := false
	d.rebuild(t, func(cfg *rebuild.Config) {
		cfg.Progress = watch{planned: func(int, int64) {
			if tried {
				return
			}
			tried = true
			pid := d.lines(t, `SELECT pid::text FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'badged rebuild'`)
			_, err := d.tryRebuild(t.Context(), onlyPartition(3))
			var running *rebuild.RunningError
			if !errors.As(err, &running) || fmt.Sprint(running.PID) != pid[0] || running.Application != "badged rebuild" {
				t.Errorf("a second one beside %v ended with %v", pid, err)
			}
		}}
	})
	if !tried {
		t.Error("nothing was tried")
	}
}

// Whoever reads the live tables at length is waited for, and named; others are
// served meanwhile, and events are folded.
func TestRebuildWaitsForReaders(t *testing.T) {
	d, ann := startPlants(t)
	d.fold(t)
	d.exec(t, `UPDATE badged.users SET total = 99 WHERE user_id = $1`, ann)
	reading, err := pgx.Connect(t.Context(), d.url)
	if err != nil {
		t.Fatal(err)
	}
	defer reading.Close(context.WithoutCancel(t.Context()))
	if _, err := reading.Exec(t.Context(), `BEGIN; SELECT FROM badged.users_p00`); err != nil {
		t.Fatal(err)
	}
	blocked := 0
	rebuilt := d.rebuild(t, func(cfg *rebuild.Config) {
		cfg.Progress = watch{blocked: func(partition, pid int) {
			blocked++
			if uint32(pid) != reading.PgConn().PID() || partition != 0 {
				t.Errorf("partition %d is said to be blocked by %d", partition, pid)
			}
			if b := d.badge(t, ann); b.Total != 99 {
				t.Errorf("meanwhile the badge is %+v", b)
			}
			// Of one who was right, and is named by an event after that is known.
			d.exec(t, `UPDATE badged.conversations SET unread = unread + 1 WHERE user_id = $1 AND conversation_id = 'd'`, foldtest.User(0, 1))
			d.append(t, foldtest.Deliver("c", 5, foldtest.User(0, 1)), foldtest.Deliver("c", 1, foldtest.User(0, 7)))
			d.fold(t)
			if _, err := reading.Exec(t.Context(), `COMMIT`); err != nil {
				t.Error(err)
			}
		}}
	})
	if blocked != 1 || rebuilt[0].DifferentUsers != 2 {
		t.Errorf("blocked %d times, it found %+v", blocked, rebuilt[0])
	}
	d.verifyAll(t, replay.VerifyOptions{})
}

// Verifying goes by one instant, also where the tables are about to be swapped.
func TestRebuildWaitsForVerifying(t *testing.T) {
	d, ann := startPlants(t)
	d.fold(t)
	d.exec(t, `UPDATE badged.users SET total = 99 WHERE user_id = $1`, ann)
	blocked, ended := make(chan struct{}, 1), make(chan error, 1)
	err := replay.WithSnapshot(t.Context(), d.pool, 0, foldtest.Partitions, func(in *replay.Snapshot) error {
		d.append(t, foldtest.Deliver("c", 5, foldtest.User(0, 1)))
		d.fold(t)
		go func() {
			_, err := d.tryRebuild(t.Context(), func(cfg *rebuild.Config) {
				cfg.Progress = watch{blocked: func(int, int) { blocked <- struct{}{} }}
			})
			ended <- err
		}()
		select {
		case <-blocked:
		case err := <-ended:
			t.Errorf("the tables were swapped while they were compared: %v", err)
		}
		c := replay.Comparison{In: in, Options: replay.VerifyOptions{Found: func(d replay.Difference) {
			if d.Field != "total" {
				t.Error(d)
			}
		}}}
		r, err := in.ReplayOf(t.Context(), []string{ann})
		if err != nil {
			return err
		}
		return c.Compare(t.Context(), r)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := await(t, ended, "the rebuild"); err != nil {
		t.Fatal(err)
	}
	d.verifyAll(t, replay.VerifyOptions{})
}

// While events pour in and users are read, nobody sees a wrong number or one
// from before; and whatever happened meanwhile is in the new tables.
func TestRebuildWhileEventsPourIn(t *testing.T) {
	d := newDatabase(t)
	p, _, stop := d.startOwner(t, func(cfg *Config) { cfg.MaxBatch = 50 })
	users := []string{foldtest.User(0, 0), foldtest.User(0, 1), foldtest.User(1, 0), foldtest.User(1, 1)}
	var enough atomic.Bool
	var pouring sync.WaitGroup
	pouring.Go(func() {
		for seq := int64(1); !enough.Load(); seq++ {
			evs := []events.Event{
				foldtest.Deliver("c", seq, users...), foldtest.Deliver(fmt.Sprint("d", seq%7), seq, users[seq%4]),
				foldtest.Event(fmt.Sprint("m", seq%50), events.ConversationMarkedUnread, "marked", nil, users...),
				foldtest.Event(fmt.Sprint("r", seq), events.ConversationRead, "marked", foldtest.UpTo(1), users[seq%4]),
			}
			r, err := d.log.Append(t.Context(), evs...)
			if err != nil {
				t.Error(err)
				return
			}
			for _, partition := range r.Partitions {
				p.Wake(partition)
			}
		}
	})
	epochs := map[string]struct{}{}
	pouring.Go(func() {
		versions := map[string]int64{}
		for !enough.Load() {
			for _, id := range users {
				s, err := d.reader.Snapshot(t.Context(), id)
				if err != nil {
					t.Error(err)
					return
				}
				sum := int64(0)
				for _, c := range s.Conversations {
					sum += max(c.Unread, 1)
				}
				if key := id + s.Epoch; s.Total != sum || s.Version < versions[key] {
					t.Errorf("total %d of %d, version %d after %d", s.Total, sum, s.Version, versions[key])
				} else {
					versions[key] = s.Version
				}
				epochs[s.Epoch] = struct{}{}
			}
		}
	})
	const corruptions = 2
	for i := range corruptions {
		for len(d.bus.of(users[0])) == 0 { // so that there is something to copy
			await(t, d.bus.published, "an update")
		}
		// A row that nothing else changes, so that no batch writes over it, in a
		// way that leaves the sums right.
		d.exec(t, `INSERT INTO badged.conversations SELECT (jsonb_populate_record(c, jsonb_build_object('conversation_id', 'zombie', 'unread', 0, 'marked_unread', false, 'unread_set', '{}', 'mention_set', '{}'))).*
FROM badged.conversations AS c WHERE user_id = $1 AND conversation_id = 'c'`, users[0])
		rebuilt := d.rebuild(t, func(cfg *rebuild.Config) { cfg.MaxLoad = 0.5 })
		if rebuilt[0].DifferentUsers != 1 || rebuilt[1].DifferentUsers != 0 || rebuilt[0].First[0].ConversationID != "zombie" {
			t.Errorf("round %d found %+v", i, rebuilt)
		}
	}
	enough.Store(true)
	pouring.Wait()
	stop()
	d.fold(t)
	d.verifyAll(t, replay.VerifyOptions{})
	if len(epochs) < 3 {
		t.Errorf("readers saw epochs %v", epochs)
	}
	for _, id := range users {
		version, epoch := int64(0), ""
		ended := map[string]struct{}{}
		for _, u := range d.bus.of(id) {
			if _, again := ended[u.Epoch]; again || u.Epoch == epoch && u.Version <= version {
				t.Fatalf("version %d of %s was told after %d of %s", u.Version, u.Epoch, version, epoch)
			}
			if u.Epoch != epoch {
				ended[epoch] = struct{}{}
			}
			version, epoch = u.Version, u.Epoch
		}
	}
}
