package rebuild

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
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/projector"
)

// kill ends the session of the rebuild under way.
func kill(t testing.TB, d *projectortest.Database) {
	t.Helper()
	if n := d.Lines(t, `SELECT pg_terminate_backend(pid, 10000)::text FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'badged rebuild'`); !slices.Equal(n, []string{"true"}) {
		t.Errorf("killed %v", n)
	}
}

// stagingTables returns the tables that rebuilds have left.
func stagingTables(t testing.TB, d *projectortest.Database) []string {
	t.Helper()
	return d.Lines(t, `SELECT relname::text FROM pg_class WHERE relnamespace = 'badged'::regnamespace AND relkind = 'r' AND relname LIKE '%staging'`)
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
	{name: "when healed versions are forgotten", trigger: `AFTER DELETE ON badged.healed_users`},
	{name: "when it is noted", trigger: `AFTER INSERT ON badged.rebuilt_partitions`},
	{name: "when the swap is committed", trigger: `AFTER INSERT ON badged.rebuilt_partitions DEFERRABLE`},
	{name: "with everything done", trigger: `AFTER DELETE ON badged.rebuilt_partitions`},
}

// A rebuild that is killed at any stage leaves the live tables unchanged or rebuilt, and the next
// rebuild finishes.
func TestRebuildKilledAnywhere(t *testing.T) {
	for _, stage := range rebuildStages {
		t.Run(stage.name, func(t *testing.T) {
			d, ann := projectortest.NewForCorruptions(t)
			right, looks, before := d.Dump(t), schema(t, d), identities(t, d)
			d.Exec(t, `UPDATE badged.users SET total = 99 WHERE user_id = $1`, ann)
			wrong := d.Dump(t)
			end := d.KillAt(t, stage.trigger, "badged rebuild")
			planned, done := 0, 0
			_, err := tryRebuild(t.Context(), d, func(cfg *Config) {
				cfg.Progress = watch{
					planned: func(int, int64) {
						if planned++; planned == stage.planned {
							kill(t, d)
						}
					},
					done: func() {
						if done++; done == stage.done {
							kill(t, d)
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
			if diff := cmp.Diff(after, d.Dump(t)); diff != "" {
				t.Errorf("it left (-want +got):\n%s", diff)
			}
			if kept := slices.Equal(before, identities(t, d)); kept != (after == wrong) {
				t.Errorf("tables and epochs were %v, are %v", before, identities(t, d))
			}
			end()

			rebuilt := rebuild(t, d, nil)
			if after == wrong && (len(rebuilt) != foldtest.Partitions || rebuilt[0].DifferentUsers != 1) || after == right && len(rebuilt) != 0 {
				t.Errorf("the next one rebuilt %v", rebuilt)
			}
			if diff := cmp.Diff(right, d.Dump(t)); diff != "" {
				t.Errorf("the rows are (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(looks, schema(t, d)); diff != "" || len(stagingTables(t, d)) > 0 {
				t.Errorf("the tables are (-want +got):\n%s", diff)
			}
			d.Append(t, foldtest.Deliver("c", 5, ann))
			d.Fold(t)
			replaytest.Verify(t, d.Pool, d.Log)
		})
	}
}

// A rebuild that was interrupted between two partitions continues with the rest, unless Anew or
// Partition is set.
func TestRebuildResumes(t *testing.T) {
	d, _ := projectortest.NewForCorruptions(t)
	d.Exec(t, `UPDATE badged.users SET total = 99 WHERE partition_id = 0`)
	interrupt := func() {
		killed := false
		rebuilt, err := tryRebuild(t.Context(), d, func(cfg *Config) {
			cfg.Progress = watch{planned: func(partition int, _ int64) {
				if partition == 2 && !killed {
					kill(t, d)
					killed = true
				}
			}}
		})
		if err == nil || len(rebuilt) != 2 {
			t.Fatalf("interrupted, it ended with %v after %v", err, rebuilt)
		}
	}
	of := func(change func(*Config)) (before, rebuilt []int) {
		for _, p := range rebuild(t, d, func(cfg *Config) {
			cfg.Resumed = func(done []Result) {
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
	if before, rebuilt := of(func(cfg *Config) { cfg.Anew = true }); before != nil || len(rebuilt) != foldtest.Partitions {
		t.Errorf("anew it rebuilt %v after %v", rebuilt, before)
	}
}

// A cancelled rebuild leaves the live tables untouched and no others.
func TestRebuildIsCancelled(t *testing.T) {
	d, ann := projectortest.NewForCorruptions(t)
	d.Exec(t, `UPDATE badged.users SET total = 99 WHERE user_id = $1`, ann)
	before, tables := d.Dump(t), identities(t, d)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := tryRebuild(ctx, d, func(cfg *Config) {
		cfg.MaxLoad = 1e-9 // none but one that is cancelled gets past a pause
		cfg.Progress = watch{done: cancel}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if diff := cmp.Diff(before, d.Dump(t)); diff != "" || !slices.Equal(tables, identities(t, d)) || len(stagingTables(t, d)) > 0 {
		t.Errorf("it left %v, rows (-before +after):\n%s", stagingTables(t, d), diff)
	}
}

// A second rebuild fails and names the first.
func TestRebuildIsRefusedBesideAnother(t *testing.T) {
	d, _ := projectortest.NewForCorruptions(t)
	tried := false
	rebuild(t, d, func(cfg *Config) {
		cfg.Progress = watch{planned: func(int, int64) {
			if tried {
				return
			}
			tried = true
			pid := d.Lines(t, `SELECT pid::text FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'badged rebuild'`)
			_, err := tryRebuild(t.Context(), d, onlyPartition(3))
			var running *RunningError
			if !errors.As(err, &running) || fmt.Sprint(running.PID) != pid[0] || running.Application != "badged rebuild" {
				t.Errorf("a second one beside %v ended with %v", pid, err)
			}
		}}
	})
	if !tried {
		t.Error("nothing was tried")
	}
}

// A rebuild waits for a long reader of the live tables and names it. Meanwhile other readers are
// served and events are folded.
func TestRebuildWaitsForReaders(t *testing.T) {
	d, ann := projectortest.NewForCorruptions(t)
	d.Exec(t, `UPDATE badged.users SET total = 99 WHERE user_id = $1`, ann)
	reading, err := pgx.Connect(t.Context(), d.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer reading.Close(context.WithoutCancel(t.Context()))
	if _, err := reading.Exec(t.Context(), `BEGIN; SELECT FROM badged.users_p00`); err != nil {
		t.Fatal(err)
	}
	blocked := 0
	rebuilt := rebuild(t, d, func(cfg *Config) {
		cfg.Progress = watch{blocked: func(partition, pid int) {
			blocked++
			if uint32(pid) != reading.PgConn().PID() || partition != 0 {
				t.Errorf("partition %d is said to be blocked by %d", partition, pid)
			}
			if b := d.Badge(t, ann); b.Total != 99 {
				t.Errorf("meanwhile the badge is %+v", b)
			}
			// A user that was found right before, and that a later event names.
			d.Exec(t, `UPDATE badged.conversations SET unread = unread + 1 WHERE user_id = $1 AND conversation_id = 'd'`, foldtest.User(0, 1))
			d.Append(t, foldtest.Deliver("c", 5, foldtest.User(0, 1)), foldtest.Deliver("c", 1, foldtest.User(0, 7)))
			d.Fold(t)
			if _, err := reading.Exec(t.Context(), `COMMIT`); err != nil {
				t.Error(err)
			}
		}}
	})
	if blocked != 1 || rebuilt[0].DifferentUsers != 2 {
		t.Errorf("blocked %d times, it found %+v", blocked, rebuilt[0])
	}
	replaytest.Verify(t, d.Pool, d.Log)
}

// A rebuild waits for a running comparison, which reads one snapshot.
func TestRebuildWaitsForVerifying(t *testing.T) {
	d, ann := projectortest.NewForCorruptions(t)
	d.Exec(t, `UPDATE badged.users SET total = 99 WHERE user_id = $1`, ann)
	blocked, ended := make(chan struct{}, 1), make(chan error, 1)
	found := 0
	_, err := replay.NewVerifier(d.Pool, d.Log).Verify(t.Context(), 0, replay.VerifyOptions{Found: func(difference replay.Difference) {
		if found++; difference.Field != "total" || found > 1 {
			t.Error(difference)
			return
		}
		d.Append(t, foldtest.Deliver("c", 5, foldtest.User(0, 1)))
		d.Fold(t)
		go func() {
			_, err := tryRebuild(t.Context(), d, func(cfg *Config) {
				cfg.Progress = watch{blocked: func(int, int) { blocked <- struct{}{} }}
			})
			ended <- err
		}()
		select {
		case <-blocked:
		case err := <-ended:
			t.Errorf("the tables were swapped while they were compared: %v", err)
		}
	}})
	if err != nil || found != 1 {
		t.Fatalf("%d differences, %v", found, err)
	}
	if err := projectortest.Await(t, ended, "the rebuild"); err != nil {
		t.Fatal(err)
	}
	replaytest.Verify(t, d.Pool, d.Log)
}

// Under load readers see no wrong total and no lower version than before, and the new tables have
// every event.
func TestRebuildUnderLoad(t *testing.T) {
	d := projectortest.New(t)
	p := d.Start(t, func(cfg *projector.Config) { cfg.MaxBatch = 50 })
	users := []string{foldtest.User(0, 0), foldtest.User(0, 1), foldtest.User(1, 0), foldtest.User(1, 1)}
	var enough atomic.Bool
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for seq := int64(1); !enough.Load(); seq++ {
			evs := []events.Event{
				foldtest.Deliver("c", seq, users...), foldtest.Deliver(fmt.Sprint("d", seq%7), seq, users[seq%4]),
				foldtest.Event(fmt.Sprint("m", seq%50), events.ConversationMarkedUnread, "marked", nil, users...),
				foldtest.Event(fmt.Sprint("r", seq), events.ConversationRead, "marked", foldtest.UpTo(1), users[seq%4]),
			}
			r, err := d.Log.Append(t.Context(), evs...)
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
	publishing.Go(func() {
		versions := map[string]int64{}
		for !enough.Load() {
			for _, id := range users {
				s, err := d.Reader.Snapshot(t.Context(), id)
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
		for len(d.Bus.Of(users[0])) == 0 { // so that there is something to copy
			projectortest.Await(t, d.Bus.Published, "an update")
		}
		// No batch writes over this row, and the sums stay right with it.
		d.Exec(t, `INSERT INTO badged.conversations SELECT (jsonb_populate_record(c, jsonb_build_object('conversation_id', 'zombie', 'unread', 0, 'marked_unread', false, 'unread_set', NULL, 'mention_set', NULL))).*
FROM badged.conversations AS c WHERE user_id = $1 AND conversation_id = 'c'`, users[0])
		rebuilt := rebuild(t, d, func(cfg *Config) { cfg.MaxLoad = 0.5 })
		if rebuilt[0].DifferentUsers != 1 || rebuilt[1].DifferentUsers != 0 || rebuilt[0].First[0].ConversationID != "zombie" {
			t.Errorf("round %d found %+v", i, rebuilt)
		}
	}
	enough.Store(true)
	publishing.Wait()
	d.AwaitFolded(t)
	p.Stop()
	replaytest.Verify(t, d.Pool, d.Log)
	if len(epochs) < 3 {
		t.Errorf("readers saw epochs %v", epochs)
	}
	for _, id := range users {
		version, epoch := int64(0), ""
		ended := map[string]struct{}{}
		for _, u := range d.Bus.Of(id) {
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
