package rebuild

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/projector"
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

func (w watch) Blocked(partition int, holder pgsession.Holder) {
	if w.blocked != nil {
		w.blocked(partition, holder.PID)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// rebuild rebuilds all partitions; change may be nil.
func rebuild(t testing.TB, d *projectortest.Database, change func(*Config)) []Result {
	t.Helper()
	rebuilt, err := tryRebuild(t.Context(), d, change)
	if err != nil {
		t.Fatal(err)
	}
	return rebuilt
}

func tryRebuild(ctx context.Context, d *projectortest.Database, change func(*Config)) (rebuilt []Result, err error) {
	cfg := Config{Pool: d.Pool, Log: d.Log, Rebuilt: func(p Result) { rebuilt = append(rebuilt, p) }}
	if change != nil {
		change(&cfg)
	}
	return rebuilt, Run(ctx, cfg)
}

// onlyPartition makes a rebuild that of one partition.
func onlyPartition(p int) func(*Config) {
	return func(cfg *Config) { cfg.Partition = &p }
}

// schema returns the definitions of all tables of the schema, without the files that store the
// tables.
func schema(t testing.TB, d *projectortest.Database) string {
	t.Helper()
	return strings.Join(d.Lines(t, `SELECT c.oid::regclass || ' ' || c.relkind::text || ' of ' || coalesce(i.inhparent::regclass::text, '') || ' owner ' || c.relowner
       || ' options ' || coalesce(c.reloptions::text, '') || ' rights ' || coalesce(c.relacl::text, '') || ' bound ' || coalesce(pg_get_expr(c.relpartbound, c.oid), '')
       || coalesce((SELECT string_agg(E'\n  ' || a.attname || ' ' || a.atttypid::regtype || ' ' || a.attnotnull, '' ORDER BY a.attnum) FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum > 0), '')
       || coalesce((SELECT string_agg(E'\n  ' || k.conname || ' ' || pg_get_constraintdef(k.oid), '' ORDER BY k.conname) FROM pg_constraint AS k WHERE k.conrelid = c.oid), '')
       || coalesce((SELECT string_agg(E'\n  ' || pg_get_indexdef(x.indexrelid), '' ORDER BY x.indexrelid::regclass::text) FROM pg_index AS x WHERE x.indrelid = c.oid), '')
FROM pg_class AS c LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid
WHERE c.relnamespace = 'badged'::regnamespace AND c.relkind IN ('r', 'p')
ORDER BY c.relname`), "\n")
}

// identities returns which tables hold users and conversations, and the epochs.
func identities(t testing.TB, d *projectortest.Database) []string {
	t.Helper()
	return d.Lines(t, `SELECT partition_id || ' ' || epoch
       || ' ' || to_regclass('badged.users_p' || lpad(partition_id::text, 2, '0'))::oid
       || ' ' || to_regclass('badged.conversations_p' || lpad(partition_id::text, 2, '0'))::oid
FROM badged.partitions ORDER BY partition_id`)
}

// After any history, with events and key generations during the rebuild, a rebuild finds no
// difference and changes nothing.
func TestRebuildFindsNothingWrongWithWhatWasFolded(t *testing.T) {
	d := projectortest.New(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		users := []string{fmt.Sprint("ann-", n), fmt.Sprint("bob-", n), fmt.Sprint("cem-", n)}
		draw := foldtest.DrawNamed
		if rapid.Bool().Draw(rt, "with rooms") {
			draw = foldtest.DrawNamedRooms
		}
		history := draw(rt, n, users)
		overtakes := rapid.IntRange(0, len(history)).Draw(rt, "overtakes")
		d.AppendAndFold(t, rt, history[overtakes:])
		before := identities(t, d)
		rebuilt := rebuild(t, d, func(cfg *Config) {
			partition := events.PartitionOf(rapid.SampledFrom(users).Draw(rt, "rebuilt"), foldtest.Partitions)
			cfg.Partition = &partition
			cfg.Memory = rapid.SampledFrom([]int64{1, 20_000, 1 << 20}).Draw(rt, "memory")
			cfg.Progress = watch{done: func() {
				if overtakes > 0 {
					d.AppendAndFold(t, rt, append(history[:overtakes:overtakes], history[overtakes:]...))
					overtakes = 0
				}
			}}
		})
		for _, p := range rebuilt {
			if p.DifferentUsers != 0 || len(p.First) != 0 {
				rt.Fatalf("after\n%sit found %+v", foldtest.Story(history), p)
			}
		}
		if diff := cmp.Diff(before, identities(t, d)); diff != "" || len(rebuilt) != 1 {
			rt.Fatalf("%d partitions were rebuilt, tables and epochs (-before +after):\n%s", len(rebuilt), diff)
		}
	})
	rebuild(t, d, nil)
	replaytest.Verify(t, d.Pool, d.Log)
}

// A rebuild reports and repairs every corruption. The new tables have the definitions of the old
// ones, the partition gets a new epoch, and folding continues.
func TestRebuildRepairs(t *testing.T) {
	d, ann := projectortest.NewForCorruptions(t)
	d.Exec(t, `CREATE INDEX extra ON badged.conversations_p00 (user_id, version) WHERE unread > 0`)
	d.Exec(t, `GRANT SELECT ON badged.users_p00 TO PUBLIC`)
	right, looks := d.Dump(t), schema(t, d)
	for _, c := range projectortest.Corruptions() {
		t.Run(c.Name, func(t *testing.T) {
			before := identities(t, d)
			d.Exec(t, c.SQL, ann)
			rebuilt := rebuild(t, d, func(cfg *Config) {
				cfg.Bus = d.Bus
				onlyPartition(0)(cfg)
			})

			var got []string
			for _, found := range rebuilt[0].First {
				got = append(got, strings.ReplaceAll(found.String(), fmt.Sprintf("%q", ann), "USER"))
			}
			slices.Sort(got)
			if diff := cmp.Diff(c.Want, got); diff != "" || rebuilt[0].DifferentUsers != 1 {
				t.Errorf("%d users differ (-want +got):\n%s", rebuilt[0].DifferentUsers, diff)
			}
			projectortest.Same(t, "rows", right, d.Dump(t))
			projectortest.Same(t, "tables", looks, schema(t, d))
			for i, now := range identities(t, d) {
				if changed := now != before[i]; changed != (i == 0) {
					t.Errorf("tables and epoch of partition %d were %s, are %s", i, before[i], now)
				}
			}
			b, updates := d.Badge(t, ann), d.Bus.Of(ann)
			last := updates[len(updates)-1]
			if diff := cmp.Diff(b, last.Badge); diff != "" || last.BaseVersion != b.Version || last.Partition != 0 {
				t.Errorf("clients get %+v, %s", last, diff)
			}
		})
	}
	b := d.Badge(t, ann)
	d.Append(t, foldtest.Deliver("c", 5, ann), foldtest.Deliver("d", 2, foldtest.User(0, 1)), foldtest.Event("all", events.UserReadAll, "", nil, foldtest.User(0, 1)))
	d.Fold(t)
	replaytest.Verify(t, d.Pool, d.Log)
	if after := d.Badge(t, ann); after.Version != b.Version+1 || after.Epoch != b.Epoch || after.Total != b.Total+1 {
		t.Errorf("after another message the badge %+v is %+v", b, after)
	}
}

// Every corruption of a room or of a membership is reported and repaired, whatever
// share of the users fits into memory.
func TestRebuildRepairsRooms(t *testing.T) {
	d, member := projectortest.NewForRooms(t)
	right := d.Dump(t)
	for _, c := range projectortest.RoomCorruptions() {
		for _, memory := range []int64{1, 1 << 20} {
			d.Exec(t, strings.ReplaceAll(c.SQL, "USER", "'"+member+"'"))
			rebuilt := rebuild(t, d, func(cfg *Config) {
				cfg.Memory = memory
				onlyPartition(0)(cfg)
			})
			if rebuilt[0].DifferentUsers == 0 || d.Dump(t) != right {
				t.Errorf("%s: it found %+v, and left (-want +got):\n%s", c.Name, rebuilt[0], cmp.Diff(right, d.Dump(t)))
			}
		}
	}
	replaytest.Verify(t, d.Pool, d.Log)
}

// If many users differ, only the first users are reported. Lost rows are restored, and users that
// the log does not name are removed.
func TestRebuildRepairsMany(t *testing.T) {
	d, ann := projectortest.NewForCorruptions(t)
	for i := range 30 {
		d.Append(t, foldtest.Deliver(fmt.Sprint("room ", i), 1, foldtest.User(0, i)))
	}
	d.Fold(t)
	right := d.Dump(t)
	d.Exec(t, `TRUNCATE badged.users_p00, badged.conversations_p00, badged.conversations_p01`)
	d.Exec(t, `INSERT INTO badged.users (version, total, mentions, partition_id, user_id, categories) VALUES (1, 0, 0, 0, $1, '{}')`, foldtest.User(0, 50))
	rebuilt := rebuild(t, d, nil)
	named := map[string]struct{}{}
	for _, difference := range rebuilt[0].First {
		named[difference.UserID] = struct{}{}
	}
	if rebuilt[0].DifferentUsers != 31 || len(named) != reported || rebuilt[1].DifferentUsers != 1 || rebuilt[2].DifferentUsers != 0 {
		t.Errorf("it found %+v", rebuilt)
	}
	if diff := cmp.Diff(right, d.Dump(t)); diff != "" {
		t.Errorf("the rows are (-before +after):\n%s", diff)
	}
	if left := d.Lines(t, `SELECT user_id FROM badged.users WHERE user_id = $1`, foldtest.User(0, 50)); len(left) > 0 {
		t.Errorf("%v stays", left)
	}
	if b := d.Badge(t, ann); b.Total == 0 {
		t.Errorf("the badge is %+v", b)
	}
	if got := d.Lines(t, analyzedSQL); !slices.Equal(got, []string{"users_p00", "users_p01"}) {
		t.Errorf("the planner has statistics of %q, want those of the new tables", got)
	}
}

// analyzedSQL returns the tables of users that were analyzed.
const analyzedSQL = `SELECT relname FROM pg_class
WHERE relnamespace = 'badged'::regnamespace AND relkind = 'r' AND relname ~ '^users_p..$' AND reltuples > 0 ORDER BY 1`

// The versions of a healed user are ahead of the log, which is no difference. After the tables are
// replaced, the user no longer counts as healed.
func TestRebuildKeepsWhatWasHealed(t *testing.T) {
	d, ann := projectortest.NewForCorruptions(t)
	d.Exec(t, `UPDATE badged.users SET total = 99 WHERE user_id = $1`, ann)
	if _, version, err := replay.NewVerifier(d.Pool, d.Log).Heal(t.Context(), ann); version == 0 || err != nil {
		t.Fatalf("healed in version %d, %v", version, err)
	}
	d.Append(t, foldtest.Deliver("c", 5, ann))
	d.Fold(t)
	before := d.Dump(t)
	for _, p := range rebuild(t, d, nil) {
		if p.DifferentUsers != 0 {
			t.Errorf("after healing it found %+v", p)
		}
	}
	if diff := cmp.Diff(before, d.Dump(t)); diff != "" {
		t.Errorf("the rows are (-before +after):\n%s", diff)
	}
	d.Exec(t, `UPDATE badged.users SET total = 99 WHERE user_id = $1`, ann)
	if rebuilt := rebuild(t, d, onlyPartition(0)); len(rebuilt) != 1 || rebuilt[0].DifferentUsers != 1 || len(rebuilt[0].First) != 1 {
		t.Errorf("it found %+v", rebuilt)
	}
	if left := d.Lines(t, `SELECT user_id FROM badged.healed_users`); len(left) > 0 {
		t.Errorf("%v still count as healed", left)
	}
	replaytest.Verify(t, d.Pool, d.Log)
}

// A batch that waits while the tables are swapped writes to the new tables, and clients get the new
// epoch.
func TestRebuildRevisesTheBatchThatWaits(t *testing.T) {
	d, ann := projectortest.NewForCorruptions(t)
	d.Exec(t, `UPDATE badged.users SET total = 99 WHERE user_id = $1`, ann)
	d.Append(t, foldtest.Deliver("c", 5, ann))
	d.Exec(t, `CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM set_config('lock_timeout', '0', true), pg_advisory_xact_lock(42);
    RETURN NULL;
END $$`)
	d.Exec(t, `CREATE TRIGGER hold AFTER UPDATE ON badged.partitions FOR EACH STATEMENT EXECUTE FUNCTION hold()`)
	holder := d.Begin(t)
	if _, err := holder.Exec(t.Context(), `SELECT pg_advisory_xact_lock(42)`); err != nil {
		t.Fatal(err)
	}
	awaitWaiting := func(n int) {
		projectortest.Until(t, fmt.Sprintf("%d sessions that wait", n), func() bool {
			return len(d.Lines(t, `SELECT 'waits' FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)) >= n
		})
	}
	rebuilds, folded := make(chan error, 1), make(chan struct{})
	go func() {
		_, err := tryRebuild(t.Context(), d, onlyPartition(0))
		rebuilds <- err
	}()
	awaitWaiting(1)
	go func() {
		d.Fold(t)
		close(folded)
	}()
	awaitWaiting(2)
	if err := holder.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := projectortest.Await(t, rebuilds, "the rebuild"); err != nil {
		t.Fatal(err)
	}
	projectortest.Await(t, folded, "the batch")
	replaytest.Verify(t, d.Pool, d.Log)
	d.Bus.AwaitTotal(t, ann, 5)
	updates := d.Bus.Of(ann)
	if u, b := updates[len(updates)-1], d.Badge(t, ann); u.Epoch != b.Epoch || u.Version != b.Version || b.Total != 5 {
		t.Errorf("clients get %+v of %+v", u, b)
	}
}

// Keys that expire during a rebuild expire in the new tables too: a repeated event then applies
// again.
func TestRebuildAcrossGenerations(t *testing.T) {
	d, ann := projectortest.NewForCorruptions(t)
	mark := foldtest.Event("mark", events.ConversationMarkedUnread, "c2", nil, ann)
	d.Append(t, mark, foldtest.Event("reads the mark", events.ConversationRead, "c2", foldtest.UpTo(2), ann))
	d.Fold(t)
	overtaken := false
	rebuilt := rebuild(t, d, func(cfg *Config) {
		onlyPartition(0)(cfg)
		cfg.Progress = watch{done: func() {
			if overtaken {
				return
			}
			overtaken = true
			for seq := range int64(4) { // one more than are probed
				d.BeginGeneration(t, 0)
				d.Append(t, foldtest.Deliver("e", seq+1, ann))
				d.Fold(t)
			}
			d.Append(t, mark, mark)
			d.Fold(t)
		}}
	})
	if c, err := d.Reader.Conversation(t.Context(), ann, "c2"); err != nil || !overtaken || rebuilt[0].DifferentUsers != 0 || !c.MarkedUnread {
		t.Errorf("of %+v it found %+v, %v", c, rebuilt, err)
	}
}

// A role that does not own the schema rebuilds with rights to its tables and to
// four functions, and folds into the new tables.
func TestRebuildingRoleNeedNotOwnTheSchema(t *testing.T) {
	d := projectortest.Open(t, pgtest.NewServer(t).NewDB(t, projectortest.Migrated()))
	ann := foldtest.User(0, 0)
	pool := d.AsRole(t, `GRANT USAGE ON SCHEMA badged TO ROLE`, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA badged TO ROLE`)
	p := d.Start(t, func(cfg *projector.Config) { cfg.Pool = pool })
	d.Append(t, foldtest.Deliver("c", 1, ann))
	p.Wake(0)
	d.AwaitFolded(t)
	d.Exec(t, `UPDATE badged.users SET total = 99`)
	asRole := func(cfg *Config) {
		cfg.Pool = pool
		onlyPartition(0)(cfg)
	}
	_, err := tryRebuild(t.Context(), d, asRole)
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "42501" || !strings.Contains(err.Error(), "drop_staging_tables") {
		t.Errorf("without the rights: %v", err)
	}
	d.Exec(t, `GRANT EXECUTE ON FUNCTION badged.create_staging_tables(integer), badged.swap_staging_tables(integer), badged.drop_staging_tables(integer),
    badged.analyze_tables(integer, text), badged.tell_of_users(integer, text[]) TO "limited role"`)
	if rebuilt := rebuild(t, d, asRole); rebuilt[0].DifferentUsers != 1 {
		t.Errorf("it found %+v", rebuilt)
	}
	d.Append(t, foldtest.Deliver("c", 2, ann))
	p.Wake(0)
	d.AwaitFolded(t)
	if b := d.Badge(t, ann); b.Total != 2 {
		t.Errorf("the badge is %+v", b)
	}
	replaytest.Verify(t, d.Pool, d.Log)
}
