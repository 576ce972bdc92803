package projector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/projector/internal/store"
	"github.com/badged/badged/projector/rebuild"
	"github.com/badged/badged/projector/replay"
	"github.com/badged/badged/pubsub"
)

// watch is a Progress that calls functions; nil ones are left out.
type watch struct {
	planned func(partition int, work int64)
	done    func()
	blocked func(partition, pid int)
}

func (w watch) Planned(partition int, work int64) {
	if w.planned != nil {
		w.planned(partition, work)
	}
}

func (w watch) Done(int, int) {
	if w.done != nil {
		w.done()
	}
}

func (w watch) Blocked(partition, pid int, _ string) {
	if w.blocked != nil {
		w.blocked(partition, pid)
	}
}

// rebuild rebuilds all partitions; change may be nil.
func (d *database) rebuild(t testing.TB, change func(*rebuild.Config)) []rebuild.Result {
	t.Helper()
	rebuilt, err := d.tryRebuild(t.Context(), change)
	if err != nil {
		t.Fatal(err)
	}
	return rebuilt
}

func (d *database) tryRebuild(ctx context.Context, change func(*rebuild.Config)) (rebuilt []rebuild.Result, err error) {
	cfg := rebuild.Config{Pool: d.pool, Log: d.log, Rebuilt: func(p rebuild.Result) { rebuilt = append(rebuilt, p) }}
	if change != nil {
		change(&cfg)
	}
	return rebuilt, rebuild.Run(ctx, cfg)
}

// onlyPartition makes a rebuild that of one partition.
func onlyPartition(p int) func(*rebuild.Config) {
	return func(cfg *rebuild.Config) { cfg.Partition = &p }
}

// schema returns what the tables of the schema are and look like, but not which
// files they are in.
func (d *database) schema(t testing.TB) string {
	t.Helper()
	return strings.Join(d.lines(t, `SELECT c.oid::regclass || ' ' || c.relkind::text || ' of ' || coalesce(i.inhparent::regclass::text, '') || ' owner ' || c.relowner
       || ' options ' || coalesce(c.reloptions::text, '') || ' rights ' || coalesce(c.relacl::text, '') || ' bound ' || coalesce(pg_get_expr(c.relpartbound, c.oid), '')
       || coalesce((SELECT string_agg(E'\n  ' || a.attname || ' ' || a.atttypid::regtype || ' ' || a.attnotnull, '' ORDER BY a.attnum) FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum > 0), '')
       || coalesce((SELECT string_agg(E'\n  ' || k.conname || ' ' || pg_get_constraintdef(k.oid), '' ORDER BY k.conname) FROM pg_constraint AS k WHERE k.conrelid = c.oid), '')
       || coalesce((SELECT string_agg(E'\n  ' || pg_get_indexdef(x.indexrelid), '' ORDER BY x.indexrelid::regclass::text) FROM pg_index AS x WHERE x.indrelid = c.oid), '')
FROM pg_class AS c LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid
WHERE c.relnamespace = 'badged'::regnamespace AND c.relkind IN ('r', 'p')
ORDER BY c.relname`), "\n")
}

// identities returns which tables hold users and conversations, and the epochs.
func (d *database) identities(t testing.TB) []string {
	t.Helper()
	return d.lines(t, `SELECT partition_id || ' ' || epoch
       || ' ' || to_regclass('badged.users_p' || lpad(partition_id::text, 2, '0'))::oid
       || ' ' || to_regclass('badged.conversations_p' || lpad(partition_id::text, 2, '0'))::oid
FROM badged.partitions ORDER BY partition_id`)
}

// Whatever the history, and wherever the rebuild was overtaken by events and by
// generations of keys: it finds nothing different, and changes nothing.
func TestRebuildFindsNothingWrongWithWhatWasFolded(t *testing.T) {
	d := newDatabase(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		users := []string{fmt.Sprint("ann-", n), fmt.Sprint("bob-", n), fmt.Sprint("cem-", n)}
		history := foldtest.DrawHistory(rt, foldtest.EveryType(), users)
		for i := range history {
			history[i].Source = fmt.Sprint("history ", n)
		}
		overtakes := rapid.IntRange(0, len(history)).Draw(rt, "overtakes")
		d.appendAndFold(t, rt, history[overtakes:])
		before := d.identities(t)
		rebuilt := d.rebuild(t, func(cfg *rebuild.Config) {
			partition := events.PartitionOf(rapid.SampledFrom(users).Draw(rt, "rebuilt"), foldtest.Partitions)
			cfg.Partition = &partition
			cfg.Memory = rapid.SampledFrom([]int64{1, 20_000, 1 << 20}).Draw(rt, "memory")
			cfg.Progress = watch{done: func() {
				if overtakes > 0 {
					d.appendAndFold(t, rt, append(history[:overtakes:overtakes], history[overtakes:]...))
					overtakes = 0
				}
			}}
		})
		for _, p := range rebuilt {
			if p.DifferentUsers != 0 || len(p.First) != 0 {
				rt.Fatalf("after\n%sit found %+v", foldtest.Story(history), p)
			}
		}
		if diff := cmp.Diff(before, d.identities(t)); diff != "" || len(rebuilt) != 1 {
			rt.Fatalf("%d partitions were rebuilt, tables and epochs (-before +after):\n%s", len(rebuilt), diff)
		}
	})
	sum := d.verifyAll(t, replay.VerifyOptions{})
	for _, p := range d.rebuild(t, nil) {
		sum.Users -= p.Users
		sum.Conversations -= p.Conversations
	}
	if sum.Users != 0 || sum.Conversations != 0 {
		t.Errorf("verifying knows %d users and %d conversations more", sum.Users, sum.Conversations)
	}
}

// Whatever was wrong: the rebuilt tables are what they would have been, they say
// whom they differed for, and all goes on with them as before, in new epochs.
func TestRebuildRepairs(t *testing.T) {
	for _, p := range plants {
		t.Run(p.name, func(t *testing.T) {
			d, ann := startPlants(t)
			d.fold(t)
			d.exec(t, `CREATE INDEX extra ON badged.conversations_p00 (user_id, version) WHERE unread > 0`)
			d.exec(t, `GRANT SELECT ON badged.users_p00 TO PUBLIC`)
			right, schema, before := d.dump(t), d.schema(t), d.identities(t)
			d.exec(t, p.sql, ann)
			rebuilt := d.rebuild(t, func(cfg *rebuild.Config) {
				cfg.Bus = d.bus
				onlyPartition(0)(cfg)
			})

			var got []string
			for _, found := range rebuilt[0].First {
				got = append(got, strings.ReplaceAll(found.String(), fmt.Sprintf("%q", ann), "ANN"))
			}
			slices.Sort(got)
			if diff := cmp.Diff(p.want, got); diff != "" || rebuilt[0].DifferentUsers != 1 {
				t.Errorf("it found %d users different (-want +got):\n%s", rebuilt[0].DifferentUsers, diff)
			}
			if diff := cmp.Diff(right, d.dump(t)); diff != "" {
				t.Errorf("the rows are (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(schema, d.schema(t)); diff != "" {
				t.Errorf("the tables are (-before +after):\n%s", diff)
			}
			for i, now := range d.identities(t) {
				if changed := now != before[i]; changed != (i == 0) {
					t.Errorf("tables and epoch of partition %d were %s, are %s", i, before[i], now)
				}
			}
			b := d.badge(t, ann)
			updates := d.bus.of(ann)
			told := updates[len(updates)-1]
			if diff := cmp.Diff(b, told.Badge); diff != "" || told.BaseVersion != b.Version || told.Partition != 0 {
				t.Errorf("clients are told %+v, %s", told, diff)
			}

			d.append(t, foldtest.Deliver("c", 5, ann), foldtest.Deliver("d", 2, foldtest.User(0, 1)), foldtest.Event("all", events.UserReadAll, "", nil, foldtest.User(0, 1)))
			d.fold(t)
			d.verifyAll(t, replay.VerifyOptions{})
			if after := d.badge(t, ann); after.Version != b.Version+1 || after.Epoch != b.Epoch || after.Total != b.Total+1 {
				t.Errorf("after another message the badge %+v is %+v", b, after)
			}
		})
	}
}

// Of many who are different the first are told, whole tables that were lost
// come back, and one who is in the log no more goes.
func TestRebuildRepairsMany(t *testing.T) {
	d, ann := startPlants(t)
	for i := range 30 {
		d.append(t, foldtest.Deliver(fmt.Sprint("room ", i), 1, foldtest.User(0, i)))
	}
	d.fold(t)
	right := d.dump(t)
	d.exec(t, `TRUNCATE badged.users_p00, badged.conversations_p00, badged.conversations_p01`)
	d.exec(t, `INSERT INTO badged.users VALUES (1, 0, 0, 0, $1, '{}')`, foldtest.User(0, 50))
	rebuilt := d.rebuild(t, nil)
	named := map[string]struct{}{}
	for _, difference := range rebuilt[0].First {
		named[difference.UserID] = struct{}{}
	}
	if rebuilt[0].DifferentUsers != 31 || len(named) != rebuild.Reported || rebuilt[1].DifferentUsers != 1 || rebuilt[2].DifferentUsers != 0 {
		t.Errorf("it found %+v", rebuilt)
	}
	if diff := cmp.Diff(right, d.dump(t)); diff != "" {
		t.Errorf("the rows are (-before +after):\n%s", diff)
	}
	if left := d.lines(t, `SELECT user_id FROM badged.users WHERE user_id = $1`, foldtest.User(0, 50)); len(left) > 0 {
		t.Errorf("%v stays", left)
	}
	if b := d.badge(t, ann); b.Total == 0 {
		t.Errorf("the badge is %+v", b)
	}
}

// Who was healed is ahead of the log, and right. Once the partition has new
// tables, nobody is.
func TestRebuildKeepsWhatWasHealed(t *testing.T) {
	d, ann := startPlants(t)
	d.fold(t)
	d.exec(t, `UPDATE badged.users SET total = 99 WHERE user_id = $1`, ann)
	d.heal(t, ann)
	d.append(t, foldtest.Deliver("c", 5, ann))
	d.fold(t)
	before := d.dump(t)
	for _, p := range d.rebuild(t, nil) {
		if p.DifferentUsers != 0 {
			t.Errorf("after a healing it found %+v", p)
		}
	}
	if diff := cmp.Diff(before, d.dump(t)); diff != "" {
		t.Errorf("the rows are (-before +after):\n%s", diff)
	}
	d.exec(t, `UPDATE badged.users SET total = 99 WHERE user_id = $1`, ann)
	if rebuilt := d.rebuild(t, onlyPartition(0)); len(rebuilt) != 1 || rebuilt[0].DifferentUsers != 1 || len(rebuilt[0].First) != 1 {
		t.Errorf("it found %+v", rebuilt)
	}
	if left := d.lines(t, `SELECT user_id FROM badged.healed_users`); len(left) > 0 {
		t.Errorf("%v are still taken for healed", left)
	}
	d.verifyAll(t, replay.VerifyOptions{})
}

// A batch that waits while the tables are swapped goes by the new ones, and
// tells clients of the new epoch.
func TestRebuildRevisesTheBatchThatWaits(t *testing.T) {
	d, ann := startPlants(t)
	d.fold(t)
	d.exec(t, `UPDATE badged.users SET total = 99 WHERE user_id = $1`, ann)
	d.append(t, foldtest.Deliver("c", 5, ann))
	d.awaitVisible(t, 0)
	d.exec(t, `CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM set_config('lock_timeout', '0', true), pg_advisory_xact_lock(42);
    RETURN NULL;
END $$`)
	d.exec(t, `CREATE TRIGGER hold AFTER UPDATE ON badged.partitions FOR EACH STATEMENT EXECUTE FUNCTION hold()`)
	holder, err := d.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // after a commit it fails
	if _, err := holder.Exec(t.Context(), `SELECT pg_advisory_xact_lock(42)`); err != nil {
		t.Fatal(err)
	}
	awaitWaiting := func(n int) {
		for len(d.lines(t, `SELECT 'waits' FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)) < n {
		}
	}
	rebuilds, steps := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := d.tryRebuild(t.Context(), onlyPartition(0))
		rebuilds <- err
	}()
	awaitWaiting(1)
	p := d.projector.partitions[0]
	go func() {
		_, _, err := p.step(t.Context())
		steps <- err
	}()
	awaitWaiting(2)
	if err := holder.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := await(t, rebuilds, "the rebuild"); err != nil {
		t.Fatal(err)
	}
	if err := await(t, steps, "the batch"); !errors.Is(err, store.ErrRevised) {
		t.Errorf("the batch ended with %v, want %v", err, store.ErrRevised)
	}
	d.fold(t)
	d.verifyAll(t, replay.VerifyOptions{})
	var updates []pubsub.Update
	for len(d.projector.updates) > 0 {
		updates = append(updates, <-d.projector.updates...)
	}
	if u, b := updates[len(updates)-1], d.badge(t, ann); u.Epoch != b.Epoch || u.Version != b.Version || u.Total != 5 {
		t.Errorf("clients are told %+v of %+v", u, b)
	}
}

// Keys that are forgotten while the tables are rebuilt are so for both: what
// comes again then applies again.
func TestRebuildAcrossGenerations(t *testing.T) {
	d, ann := startPlants(t)
	p := d.projector.partitions[0]
	mark := foldtest.Event("mark", events.ConversationMarkedUnread, "c2", nil, ann)
	d.append(t, mark, foldtest.Event("r", events.ConversationRead, "c2", foldtest.UpTo(2), ann))
	d.fold(t)
	overtaken := false
	rebuilt := d.rebuild(t, func(cfg *rebuild.Config) {
		onlyPartition(0)(cfg)
		cfg.Progress = watch{done: func() {
			if overtaken {
				return
			}
			overtaken = true
			for seq := range int64(store.ProbedGenerations + 1) {
				d.rotate(t, p)
				d.append(t, foldtest.Deliver("e", seq+1, ann))
				drain(t, p)
			}
			d.append(t, mark, mark)
			drain(t, p)
		}}
	})
	if s := d.snapshot(t, ann); !overtaken || rebuilt[0].DifferentUsers != 0 || !slices.ContainsFunc(s.Conversations, func(c pubsub.Conversation) bool { return c.MarkedUnread }) {
		t.Errorf("of %+v it found %+v", s, rebuilt)
	}
}

// A role that does not own the schema rebuilds with rights to its tables and to
// three functions; what it has rebuilt, it may use.
func TestRebuildingRoleNeedNotOwnTheSchema(t *testing.T) {
	server := pgtest.NewServer(t) // roles belong to all databases of a server
	owner := openDatabase(t, server.NewDB(t, migrated))
	owner.exec(t, `CREATE ROLE "serving role" LOGIN`)
	owner.exec(t, `GRANT USAGE ON SCHEMA badged TO "serving role"`)
	owner.exec(t, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA badged TO "serving role"`)
	ann := foldtest.User(0, 0)
	pool := newPool(t, owner.url, func(cfg *pgxpool.Config) { cfg.ConnConfig.User = "serving role" })
	p := owner.newProjector(t, func(cfg *Config) { cfg.Pool = pool }).partitions[0]
	owner.append(t, foldtest.Deliver("c", 1, ann))
	drain(t, p)
	owner.exec(t, `UPDATE badged.users SET total = 99`)
	asRole := func(cfg *rebuild.Config) {
		cfg.Pool = pool
		onlyPartition(0)(cfg)
	}
	_, err := owner.tryRebuild(t.Context(), asRole)
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "42501" || !strings.Contains(err.Error(), "drop_staging_tables") {
		t.Errorf("without the rights: %v", err)
	}
	owner.exec(t, `GRANT EXECUTE ON FUNCTION badged.create_staging_tables(integer), badged.swap_staging_tables(integer), badged.drop_staging_tables(integer) TO "serving role"`)
	if rebuilt := owner.rebuild(t, asRole); rebuilt[0].DifferentUsers != 1 {
		t.Errorf("it found %+v", rebuilt)
	}
	owner.append(t, foldtest.Deliver("c", 2, ann))
	drain(t, p)
	if b := owner.badge(t, ann); b.Total != 2 {
		t.Errorf("the badge is %+v", b)
	}
	owner.verifyAll(t, replay.VerifyOptions{})
}
