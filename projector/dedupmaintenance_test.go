package projector

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// connect returns a connection outside the pool.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn := pgtest.Connect(t, url)
	return conn
}

func mustExec(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	pgtest.Exec(t, conn, sql)
}

// An owner that missed that many rotations that the runs that it knows were dropped
// fails, counts nothing, and is right once it has read the state of the
// partition, whether it has folded before or not.
func TestFormerOwnerProbesDroppedRuns(t *testing.T) {
	for _, name := range []string{"folded before", "only took up its position"} {
		t.Run(name, func(t *testing.T) {
			d := newDatabase(t)
			ann := foldtest.User(0, 0)
			former, owner := d.newProjector(t, nil).partitions[0], d.projector.partitions[0]
			if name == "folded before" {
				d.append(t, foldtest.Deliver("before", 1, ann))
			}
			drain(t, former)
			d.merge(t, former)
			for range 5 {
				d.rotate(t, owner)
			}
			d.merge(t, owner)
			repeated := foldtest.Event("level", events.ConversationLevelSet, "c", foldtest.Level(events.LevelNone), ann)
			d.append(t, foldtest.Deliver("c", 1, ann), repeated)
			drain(t, owner)
			d.append(t, foldtest.Event("undo", events.ConversationLevelSet, "c", foldtest.Level(events.LevelAll), ann), repeated)
			d.awaitSettled(t, 0)
			before := d.dump(t)

			_, _, err := former.step(t.Context())
			if !notKnown(err) {
				t.Errorf("the former owner ended with %v", err)
			}
			if diff := cmp.Diff(before, d.dump(t)); diff != "" {
				t.Errorf("the former owner wrote (-before +after):\n%s", diff)
			}
			former.known = false // as drain does after a fence, and step after an error
			drain(t, former)
			d.checkReplay(t, ann)
			if got, want := d.badge(t, ann).Total, d.replay(t, 0, events.Position{}).Users[ann].Total; got != want || want == 0 {
				t.Errorf("the total is %d, want %d", got, want)
			}
		})
	}
}

// Two projectors fold one partition at once, and both begin generations when
// due. Each is begun once, and the numbers and versions equal those of a
// replay.
func TestTwoOwnersRotate(t *testing.T) {
	d := newDatabase(t)
	users := []string{foldtest.User(0, 0), foldtest.User(0, 1)}
	projectors := []*Projector{d.newProjector(t, nil), d.newProjector(t, nil)}
	for _, p := range projectors {
		drain(t, p.partitions[0])
	}
	const rounds = 12
	sent := 0
	for round := range rounds {
		var evs []events.Event
		for i := range 20 {
			evs = append(evs, foldtest.Deliver("c", int64(20*round+i+1), users...),
				foldtest.Event(fmt.Sprint("mark ", (round+i)%9), events.ConversationMarkedUnread, "d", nil, users[i%2]),
				foldtest.Event(fmt.Sprint("read ", round, i), events.ConversationRead, "d", foldtest.UpTo(1), users[i%2]))
		}
		sent += len(evs)
		d.append(t, evs...)
		for _, p := range projectors {
			d.age(t, p.partitions[0])
		}
		d.foldTogether(t, projectors)
	}

	d.checkReplay(t, users...)
	all := d.generations(t, 0)
	if len(all) != rounds+1 {
		t.Errorf("there are %d generations, want %d", len(all), rounds+1)
	}
	for i, g := range all[1:] {
		if g.Number != i+2 || !all[i].After.Before(g.After) && i > 0 {
			t.Errorf("generation %d after %v follows %d after %v", g.Number, g.After, all[i].Number, all[i].After)
		}
	}
	folded := 0
	for _, p := range projectors {
		folded += count(p.metrics.folded) + count(p.metrics.duplicates)
	}
	if folded != sent {
		t.Errorf("%d events were decided on, want %d", folded, sent)
	}
}

// A projector dies, with its session, in the batch that begins a generation of keys:
// at any place, whether the commit has ended or not. Its successor begins the
// generation once, counts no event twice, and decides as a replay does.
func TestKilledAsAGenerationBegins(t *testing.T) {
	const kill = `PERFORM pg_terminate_backend(pg_backend_pid()); RAISE 'it outlived its end';`
	places := []fault{
		{"before the generation is written", `BEFORE INSERT ON badged.dedup_generations`},
		{"after the generation is written", `AFTER INSERT ON badged.dedup_generations`},
	}
	for _, f := range append(places, slices.DeleteFunc(slices.Clone(faults), func(f fault) bool {
		return strings.Contains(f.trigger, "dead_letter") || strings.Contains(f.trigger, "room") // the batch has neither
	})...) {
		for _, merged := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, merged %t", f.place, merged), func(t *testing.T) {
				d := newDatabase(t)
				ann := foldtest.User(0, 0)
				// Counted twice, it would hide what comes after it.
				level := foldtest.Event("level", events.ConversationLevelSet, "c", foldtest.Level(events.LevelNone), ann)
				undo := foldtest.Event("undo", events.ConversationLevelSet, "c", foldtest.Level(events.LevelAll), ann)
				d.append(t, foldtest.Deliver("c", 1, ann), level, undo)
				d.fold(t)
				dies := d.projector.partitions[0]
				if merged {
					d.merge(t, dies)
				}
				d.age(t, dies)
				d.append(t, level, foldtest.Deliver("c", 2, ann))
				d.awaitSettled(t, 0)
				d.arm(t, f.trigger, kill)
				if _, _, err := dies.step(t.Context()); err == nil {
					t.Fatal("the batch was committed")
				}
				if n, g := d.fired(t), d.present(t, 0); n != 1 || g != 1 {
					t.Fatalf("the fault fired %d times, in generation %d", n, g)
				}

				next := d.newProjector(t, nil).partitions[0]
				d.tend(t, next)
				drain(t, next)
				if g := d.present(t, 0); g != 2 {
					t.Errorf("it is generation %d, want 2", g)
				}
				// A repetition in the generation that has begun, and one in the next.
				d.append(t, level)
				drain(t, next)
				d.rotate(t, next)
				d.append(t, level)
				drain(t, next)
				if merged {
					d.merge(t, next)
				}
				if n := d.badge(t, ann).Total; n != 2 {
					t.Errorf("the total is %d, want 2", n)
				}
				d.checkReplay(t, ann)
			})
		}
	}
}

// A running projector begins and drops generations on the partitions that it owns
// while events arrive.
func TestMaintenanceOfARunningProjector(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	p := d.newProjector(t, func(cfg *Config) {
		cfg.DedupWindow, cfg.MaintenanceInterval = 2*time.Microsecond, time.Millisecond
	})
	run(t, p)
	deadline := time.Now().Add(patience)
	for seq := int64(1); ; seq++ {
		d.append(t, foldtest.Deliver("c", seq, ann))
		p.Wake(0)
		d.bus.awaitTotal(t, ann, seq)
		stored := d.stored(t)
		if d.present(t, 0) > 4 && !strings.HasPrefix(stored, "1 ") && count(p.metrics.dedupGeneration.WithLabelValues("0")) > 4 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("there are keys of the generations %s in generation %d", stored, d.present(t, 0))
		}
	}
	if got := d.present(t, 1); got != 1 {
		t.Errorf("a partition without events is in generation %d, want 1", got)
	}
	d.checkReplay(t, ann)
}

// A role that does not own the schema can serve with rights to its tables.
func TestServingRoleNeedNotOwnTheSchema(t *testing.T) {
	server := pgtest.NewServer(t) // roles belong to all databases of a server
	owner := openDatabase(t, server.NewDB(t, migrated))
	owner.exec(t, `CREATE ROLE "serving role" LOGIN`)
	owner.exec(t, `GRANT USAGE ON SCHEMA badged TO "serving role"`)
	owner.exec(t, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA badged TO "serving role"`)
	ann := foldtest.User(0, 0)
	p := owner.newProjector(t, func(cfg *Config) {
		cfg.Pool = newPool(t, owner.url, func(cfg *pgxpool.Config) { cfg.ConnConfig.User = "serving role" })
	}).partitions[0]
	mark := foldtest.Event("mark", events.ConversationMarkedUnread, "c", nil, ann)
	owner.append(t, foldtest.Deliver("c", 1, ann), mark)
	drain(t, p)
	for range 5 {
		owner.rotate(t, p)
		owner.append(t, mark)
		drain(t, p)
	}
	if b := owner.badge(t, ann); b.Total != 1 {
		t.Errorf("the total is %d, want 1", b.Total)
	}
	owner.checkReplay(t, ann)
	owner.merge(t, p)
	if got, want := owner.stored(t), "4 5 6"; got != want {
		t.Errorf("there are keys of the generations %s, want %s", got, want)
	}
}
