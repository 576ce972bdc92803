package projector

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/pgwire"
	"github.com/badged/badged/projector/internal/store"
)

// connect returns a connection outside the pool.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

func mustExec(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// While another session reads the tables of forgotten keys, as pg_dump does,
// they stay, and no session waits for the dump or behind the drop. Afterwards
// all are dropped.
func TestDropDoesNotWait(t *testing.T) {
	d := newDatabase(t)
	p, ann := d.projector.partitions[0], foldtest.User(0, 0)
	dump := connect(t, d.url)
	mustExec(t, dump, `BEGIN; LOCK TABLE badged.dedup_keys_p00_g1 IN ACCESS SHARE MODE`)
	for range 3 {
		d.rotate(t, p)
	}
	seq := int64(0)
	for locked := range 3 {
		if got := d.tend(t, p); got != locked+1 {
			t.Errorf("%d tables could not be dropped, want %d", got, locked+1)
		}
		seq++
		d.append(t, foldtest.Deliver("c", seq, ann), foldtest.Deliver("c", seq, ann))
		drain(t, p)
		if b := d.badge(t, ann); b.Total != seq || b.Version != seq {
			t.Errorf("total %d at version %d, want %d at %[3]d", b.Total, b.Version, seq)
		}
		other := connect(t, d.url)
		mustExec(t, other, `BEGIN; LOCK TABLE badged.dedup_keys_p00_g1 IN ACCESS SHARE MODE NOWAIT; ROLLBACK`)
		d.rotate(t, p)
	}
	mustExec(t, dump, `COMMIT`)
	if got := d.tend(t, p); got != 0 {
		t.Errorf("%d tables could not be dropped, want 0", got)
	}
	if got, want := d.keyTables(t), "g5 g6 g7 g8"; got != want {
		t.Errorf("the tables are %s, want %s", got, want)
	}
}

// No session waits for a drop that is under way.
func TestDropDelaysNoSession(t *testing.T) {
	d := newDatabase(t)
	p, ann := d.projector.partitions[0], foldtest.User(0, 0)
	for range 3 {
		d.rotate(t, p)
	}
	d.append(t, foldtest.Deliver("c", 1, ann))
	d.awaitSettled(t, 0)
	dropping := connect(t, d.url)
	mustExec(t, dropping, `BEGIN; SELECT badged.drop_dedup_generations(0)`)

	step(t, p, 10)
	if b := d.badge(t, ann); b.Total != 1 {
		t.Errorf("the total is %d, want 1", b.Total)
	}
	d.append(t, foldtest.Deliver("c", 2, ann))
	if got := d.tend(t, p); got != 1 {
		t.Errorf("%d tables were left to drop, want 1", got)
	}
	mustExec(t, dropping, `COMMIT`)
	drain(t, p)
	if b := d.badge(t, ann); b.Total != 2 {
		t.Errorf("the total is %d, want 2", b.Total)
	}
	if got, want := d.keyTables(t), "g2 g3 g4 g5"; got != want {
		t.Errorf("the tables are %s, want %s", got, want)
	}
}

// An owner that missed so many rotations that its probed tables were dropped
// fails, counts nothing, and is right once it has read the state of the
// partition, whether it has folded before or not.
func TestFormerOwnerProbesDroppedTables(t *testing.T) {
	for _, name := range []string{"folded before", "only took up its position"} {
		t.Run(name, func(t *testing.T) {
			d := newDatabase(t)
			ann := foldtest.User(0, 0)
			former, owner := d.newProjector(t, nil).partitions[0], d.projector.partitions[0]
			if name == "folded before" {
				d.append(t, foldtest.Deliver("before", 1, ann))
			}
			drain(t, former)
			for range 5 {
				d.rotate(t, owner)
			}
			d.tend(t, owner)
			repeated := foldtest.Event("level", events.ConversationLevelSet, "c", foldtest.Level(events.LevelNone), ann)
			d.append(t, foldtest.Deliver("c", 1, ann), repeated)
			drain(t, owner)
			d.append(t, foldtest.Event("undo", events.ConversationLevelSet, "c", foldtest.Level(events.LevelAll), ann), repeated)
			d.awaitSettled(t, 0)
			before := d.dump(t)

			_, _, err := former.step(t.Context())
			var pgErr *pgconn.PgError
			if gone := errors.As(err, &pgErr) && pgErr.Code == "42P01"; !gone && !errors.Is(err, store.ErrFenced) {
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

// A generation that was begun without moving the position, which no projector
// does, also fences a batch: it must not probe the wrong tables.
func TestGenerationIsFenced(t *testing.T) {
	d := newDatabase(t)
	p, ann := d.projector.partitions[0], foldtest.User(0, 0)
	drain(t, p)
	d.tend(t, p)
	d.append(t, foldtest.Deliver("c", 1, ann))
	d.awaitSettled(t, 0)
	d.exec(t, `INSERT INTO badged.dedup_generations SELECT partition_id, 2, transaction_id, "offset" FROM badged.dedup_generations WHERE partition_id = 0`)
	if _, _, err := p.step(t.Context()); !errors.Is(err, store.ErrFenced) {
		t.Errorf("the batch ended with %v, want %v", err, store.ErrFenced)
	}
	p.known = false
	drain(t, p)
	if got := d.lines(t, `SELECT count(*)::text FROM badged.dedup_keys_p00_g2`)[0]; got != "1" {
		t.Errorf("the second generation has %s keys, want 1", got)
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

// A running projector creates, begins and drops generations on the partitions
// that it owns while events arrive.
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
		tables := d.keyTables(t)
		if d.present(t, 0) > 4 && !strings.HasPrefix(tables, "g1 ") && count(p.metrics.dedupGeneration.WithLabelValues("0")) > 4 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the tables are %s in generation %d", tables, d.present(t, 0))
		}
	}
	if got := d.present(t, 1); got != 1 {
		t.Errorf("a partition without events is in generation %d, want 1", got)
	}
	d.checkReplay(t, ann)
}

// A role that does not own the schema can serve with rights to its tables and
// to two functions, and can use the tables created for it. Without the
// functions it folds in one generation, and logs what is missing.
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
	_, err := p.rotateGenerations(t.Context())
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "42501" || !strings.Contains(err.Error(), "create_dedup_generation") {
		t.Errorf("without the right to create: %v", err)
	}
	owner.exec(t, `GRANT EXECUTE ON FUNCTION badged.create_dedup_generation(integer), badged.drop_dedup_generations(integer) TO "serving role"`)
	for range 5 {
		owner.rotate(t, p)
		owner.append(t, mark)
		drain(t, p)
	}
	if b := owner.badge(t, ann); b.Total != 1 {
		t.Errorf("the total is %d, want 1", b.Total)
	}
	owner.checkReplay(t, ann)
	if got, want := owner.keyTables(t), "g3 g4 g5 g6"; got != want {
		t.Errorf("the tables are %s, want %s", got, want)
	}
}

// Each key costs one index lookup per generation, whatever their sizes, with
// and without statistics.
func TestProbesAreIndexLookups(t *testing.T) {
	d := newDatabase(t)
	p := d.projector.partitions[0]
	d.rotate(t, p)
	d.rotate(t, p)
	keys := make([][16]byte, 1000)
	for i := range keys {
		keys[i] = uuid.New()
	}
	for _, state := range []string{"young", "grown", "analyzed"} {
		switch state {
		case "grown":
			for g := 1; g <= 3; g++ {
				d.exec(t, `INSERT INTO `+store.KeysTable(0, g)+` SELECT gen_random_uuid() FROM generate_series(1, 20000)`)
			}
		case "analyzed":
			for g := 1; g <= 3; g++ {
				d.exec(t, `VACUUM ANALYZE `+store.KeysTable(0, g))
			}
		}
		plan := strings.Join(d.lines(t, `EXPLAIN `+store.RememberNewKeysSQL(0, 3), keys, make(pgwire.Bytes, len(keys))), "\n")
		for g := 1; g <= 2; g++ {
			if want := fmt.Sprintf("Index Only Scan using dedup_keys_p00_g%d_pkey", g); !strings.Contains(plan, want) || strings.Contains(plan, "Seq Scan") {
				t.Errorf("with %s tables the plan has no %s:\n%s", state, want, plan)
			}
		}
		if n := strings.Count(plan, "Index Cond: (key = "); n != 2 {
			t.Errorf("with %s tables the plan has %d lookups by key, want 2:\n%s", state, n, plan)
		}
		plan = strings.Join(d.lines(t, `EXPLAIN `+store.FindKeysSQL(0, 3), keys), "\n")
		for g := 1; g <= 3; g++ {
			if want := fmt.Sprintf("Scan using dedup_keys_p00_g%d_pkey", g); !strings.Contains(plan, want) || strings.Contains(plan, "Seq Scan") {
				t.Errorf("with %s tables the plan has no %s:\n%s", state, want, plan)
			}
		}
	}
}

// Concurrent maintenance, as while a partition changes owners, is harmless.
func TestConcurrentMaintenance(t *testing.T) {
	d := newDatabase(t)
	p := d.projector.partitions[0]
	for range 5 {
		for range 3 {
			d.rotate(t, p)
		}
		start := make(chan struct{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				<-start
				if _, err := p.rotateGenerations(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		wg.Wait()
		d.tend(t, p)
		n := d.present(t, 0)
		if got, want := d.keyTables(t), fmt.Sprintf("g%d g%d g%d g%d", n-2, n-1, n, n+1); got != want {
			t.Errorf("the tables are %s, want %s", got, want)
		}
	}
}
