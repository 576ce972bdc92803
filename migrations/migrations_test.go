package migrations_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/migrations"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// emptyDatabase creates an empty database and returns how to connect to it.
func emptyDatabase(t *testing.T) *pgx.ConnConfig {
	t.Helper()
	cfg, err := pgx.ParseConfig(pgtest.NewDB(t, pgtest.Template{}))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func up(t *testing.T, cfg *pgx.ConnConfig, partitions int) []migrations.Migration {
	t.Helper()
	applied, err := migrations.Up(t.Context(), migrations.Config{Conn: cfg, Partitions: partitions})
	if err != nil {
		t.Fatal(err)
	}
	return applied
}

func status(t *testing.T, cfg *pgx.ConnConfig) []migrations.Migration {
	t.Helper()
	all, err := migrations.Status(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// countPending returns how many of ms have not been applied.
func countPending(ms []migrations.Migration) (n int) {
	for _, m := range ms {
		if m.AppliedAt.IsZero() {
			n++
		}
	}
	return n
}

// names returns the versions and names of migrations.
func names(ms []migrations.Migration) []string {
	var s []string
	for _, m := range ms {
		s = append(s, fmt.Sprint(m.Version, " ", m.Name))
	}
	return s
}

// column runs a query and returns its rows, of one column of text.
func column(t *testing.T, cfg *pgx.ConnConfig, query string) []string {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return values
}

const (
	tablesSQL     = `SELECT tablename::text FROM pg_tables WHERE schemaname = 'badged' ORDER BY tablename COLLATE "C"`
	partitionsSQL = `SELECT partitions::text FROM badged.settings`
	epochsSQL     = `SELECT epoch FROM badged.partitions ORDER BY partition_id`
	schemasSQL    = `SELECT nspname::text FROM pg_namespace WHERE nspname = 'badged'`
)

// tablesOf returns the tables of a database with a number of partitions.
func tablesOf(partitions int) []string {
	tables := []string{"alerts", "archive_claims", "archived_files", "audit", "audit_chain", "audit_ends", "baselines", "conversations", "dead_letters", "dedup_filters", "dedup_generations", "dedup_runs", "devices", "erased_revocations", "erasures", "expiry_progress", "granted_roles", "healed_users", "ingest_places", "ingest_positions", "jobs", "key_quotas", "late_folds", "log_home", "log_identity", "log_ranges", "move_changes", "move_places", "moves", "notifier_partitions", "partitions", "paths", "rebuilt_partitions", "revocation_counter", "revocation_secret", "revocations", "room_alerts", "room_chunks", "room_marks", "room_rounds", "rooms", "samples", "schema_migrations", "settings", "settled_letters", "shard", "shard_partitions", "stale_partitions", "tail_partitions", "timeline_ends", "users", "hints", "webhook_queue", "webhooks"}
	for p := range partitions {
		for _, name := range []string{"events_p%02d", "events_p%02d_r1", "events_p%02d_offsets", "users_p%02d", "conversations_p%02d", "paths_p%02d", "rooms_p%02d", "room_chunks_p%02d", "room_marks_p%02d", "users_p%02d_baseline", "conversations_p%02d_baseline", "paths_p%02d_baseline", "keys_p%02d_baseline", "rooms_p%02d_baseline", "room_chunks_p%02d_baseline", "room_marks_p%02d_baseline", "dedup_blocks_p%02d", "dedup_pages_p%02d", "devices_p%02d", "alerts_p%02d", "room_rounds_p%02d", "room_alerts_p%02d", "webhook_queue_p%02d"} {
			tables = append(tables, fmt.Sprintf(name, p))
		}
	}
	slices.Sort(tables)
	return tables
}

func TestUpMakesEveryTable(t *testing.T) {
	for _, tc := range []struct{ asked, partitions int }{
		{asked: 0, partitions: migrations.DefaultPartitions},
		{asked: 1, partitions: 1},
		{asked: 101, partitions: 101},
	} {
		t.Run(fmt.Sprint(tc.asked, " partitions"), func(t *testing.T) {
			cfg := emptyDatabase(t)
			up(t, cfg, tc.asked)
			if diff := cmp.Diff(tablesOf(tc.partitions), column(t, cfg, tablesSQL)); diff != "" {
				t.Errorf("tables (-want +got):\n%s", diff)
			}
			if got := column(t, cfg, partitionsSQL)[0]; got != fmt.Sprint(tc.partitions) {
				t.Errorf("the database has %s partitions, want %d", got, tc.partitions)
			}
			epochs := column(t, cfg, epochsSQL)
			if len(epochs) != tc.partitions {
				t.Errorf("%d partitions have an epoch, want %d", len(epochs), tc.partitions)
			}
			slices.Sort(epochs)
			if n := len(slices.Compact(epochs)); n != tc.partitions {
				t.Errorf("%d partitions share %d epochs", tc.partitions, n)
			}
		})
	}
}

// Each table has a row in docs/reference/tables.md, which says how long its rows live.
func TestDocsListAllTables(t *testing.T) {
	cfg := emptyDatabase(t)
	up(t, cfg, 4)
	text, err := os.ReadFile("../docs/reference/tables.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) > 4 {
			for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
				listed = append(listed, name[1])
			}
		}
	}
	slices.Sort(listed)
	exist := column(t, cfg, `SELECT DISTINCT regexp_replace(relname, '_p[0-9]+', '_pNN') FROM pg_class AS c
WHERE relnamespace = 'badged'::regnamespace AND relkind IN ('r', 'p') AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = c.oid)`)
	slices.Sort(exist)
	if diff := cmp.Diff(exist, listed); diff != "" {
		t.Errorf("docs/reference/tables.md lacks (-) or has (+)\n%s", diff)
	}
}

// Each view has a row in docs/postgres.md with its columns, except the column partition.
func TestDocsListAllViews(t *testing.T) {
	cfg := emptyDatabase(t)
	up(t, cfg, 4)
	text, err := os.ReadFile("../docs/postgres.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| `badged\\.(\\w+)` \\|[^|]*\\|(.*)\\|$").FindAllStringSubmatch(string(text), -1) {
		for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[2], -1) {
			listed = append(listed, row[1]+"."+name[1])
		}
	}
	slices.Sort(listed)
	exist := column(t, cfg, `SELECT table_name || '.' || column_name FROM information_schema.columns JOIN information_schema.views USING (table_schema, table_name)
WHERE table_schema = 'badged' AND column_name <> 'partition_id'`)
	slices.Sort(exist)
	if diff := cmp.Diff(exist, listed); diff != "" {
		t.Errorf("docs/postgres.md lacks (-) or has (+)\n%s", diff)
	}
}

// Index keys sort by bytes whatever collation the database has, since rows are moved in the
// order of their keys between databases with different collations. The exceptions are indexes
// of tables that are never moved, or that are only used for lookups.
func TestKeysSortByBytes(t *testing.T) {
	cfg := emptyDatabase(t)
	up(t, cfg, 1)
	got := column(t, cfg, `SELECT DISTINCT t.relname || '.' || pg_get_indexdef(i.indexrelid, k, true)
FROM pg_index AS i JOIN pg_class AS t ON t.oid = i.indrelid, generate_series(1, i.indnkeyatts) AS k
WHERE t.relnamespace = 'badged'::regnamespace AND i.indcollation[k - 1] NOT IN (0, '"C"'::regcollation) ORDER BY 1`)
	if diff := cmp.Diff([]string{"events_p00_offsets.consumer_group", "hints.shard", "samples.process", "settled_letters.user_ids"}, got); diff != "" {
		t.Errorf("keys with the collation of the database (-want +got):\n%s", diff)
	}
}

// Every table has a replica identity. Without one, Postgres refuses updates and deletes once
// another product creates a publication of all tables in the database.
func TestRowsOfEveryTableAreIdentified(t *testing.T) {
	cfg := emptyDatabase(t)
	up(t, cfg, 1)
	got := column(t, cfg, `SELECT relname::text FROM pg_class AS c
WHERE relnamespace = 'badged'::regnamespace AND relkind = 'r' AND relpersistence = 'p' AND relreplident <> 'f'
  AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid AND (indisreplident OR indisprimary AND relreplident = 'd')) ORDER BY 1`)
	if len(got) > 0 {
		t.Errorf("tables whose rows nothing identifies: %q", got)
	}
}

// Each partition of the log has position rows for the projector and the notifier from the
// start: their fences are updates, which would otherwise match no row.
func TestUpGivesReadersAPosition(t *testing.T) {
	cfg := emptyDatabase(t)
	up(t, cfg, 2)
	for _, topic := range []string{"events_p00", "events_p01"} {
		got := column(t, cfg, `SELECT consumer_group || ' at ' || last_processed_transaction_id || '/' || offset_acked
FROM badged.`+topic+`_offsets ORDER BY 1`)
		if diff := cmp.Diff([]string{"badged_notifier at 0/0", "projector at 0/0"}, got); diff != "" {
			t.Errorf("positions in %s (-want +got):\n%s", topic, diff)
		}
	}
}

func TestUpAgainDoesNothing(t *testing.T) {
	cfg := emptyDatabase(t)
	if applied := up(t, cfg, 0); len(applied) == 0 {
		t.Fatal("nothing was applied to an empty database")
	}
	epochs, before := column(t, cfg, epochsSQL), status(t, cfg)
	for _, partitions := range []int{0, migrations.DefaultPartitions} {
		if applied := up(t, cfg, partitions); len(applied) != 0 {
			t.Errorf("up with %d partitions applied %v again", partitions, names(applied))
		}
	}
	if diff := cmp.Diff(epochs, column(t, cfg, epochsSQL)); diff != "" {
		t.Errorf("epochs changed (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(before, status(t, cfg)); diff != "" {
		t.Errorf("status changed (-before +after):\n%s", diff)
	}
}

// Of several concurrent calls of Up one applies the migrations; the others wait and do nothing.
func TestConcurrentUps(t *testing.T) {
	cfg := emptyDatabase(t)
	const instances = 4
	applied := make([][]migrations.Migration, instances)
	var wg sync.WaitGroup
	for i := range instances {
		wg.Go(func() {
			var err error
			if applied[i], err = migrations.Up(t.Context(), migrations.Config{Conn: cfg, Partitions: 2}); err != nil {
				t.Errorf("instance %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if diff := cmp.Diff(names(status(t, cfg)), names(slices.Concat(applied...))); diff != "" {
		t.Errorf("applied by all instances together (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(tablesOf(2), column(t, cfg, tablesSQL)); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
}

func TestStatusOfAnEmptyDatabase(t *testing.T) {
	cfg := emptyDatabase(t)
	all := status(t, cfg)
	if len(all) == 0 {
		t.Error("there are no migrations")
	}
	last := int64(0)
	for _, m := range all { // numbers may be skipped
		if m.Version <= last || !strings.HasPrefix(m.Name, fmt.Sprintf("%05d_", m.Version)) {
			t.Errorf("the migration behind %d is %d %s", last, m.Version, m.Name)
		}
		last = m.Version
		if !m.AppliedAt.IsZero() {
			t.Errorf("%s was applied at %v", m.Name, m.AppliedAt)
		}
	}
	if n := countPending(all); n != len(all) {
		t.Errorf("%d of %d are pending", n, len(all))
	}
	if schemas := column(t, cfg, schemasSQL); len(schemas) != 0 {
		t.Errorf("asking for the status created %v", schemas)
	}
}

func TestStatusOfACompleteDatabase(t *testing.T) {
	cfg := emptyDatabase(t)
	pending := status(t, cfg)
	applied := up(t, cfg, 1)
	all := status(t, cfg)
	if diff := cmp.Diff(names(pending), names(all)); diff != "" {
		t.Errorf("migrations (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(names(all), names(applied)); diff != "" {
		t.Errorf("applied (-all +got):\n%s", diff)
	}
	for _, m := range slices.Concat(all, applied) {
		if m.AppliedAt.IsZero() {
			t.Errorf("%s was applied, but it is not known when", m.Name)
		}
	}
	if n := countPending(all); n != 0 {
		t.Errorf("%d are pending", n)
	}
}

// The number of partitions is fixed when the database is created: Up refuses another number.
func TestPartitionsAreSettledOnce(t *testing.T) {
	cfg := emptyDatabase(t)
	up(t, cfg, 3)
	_, err := migrations.Up(t.Context(), migrations.Config{Conn: cfg, Partitions: 4})
	const want = "the number of partitions of the database is 3, not 4: it is chosen when the database is created; `badged partition split` makes more of them"
	if err == nil || err.Error() != want {
		t.Errorf("asking for another number: %v, want %s", err, want)
	}
	up(t, cfg, 3)
	up(t, cfg, 0)
	if diff := cmp.Diff([]string{"3"}, column(t, cfg, partitionsSQL)); diff != "" {
		t.Errorf("partitions (-want +got):\n%s", diff)
	}
}

// Two processes ask for different numbers of partitions in the same empty database. One number
// wins, and the other process gets an error.
func TestConcurrentUpsThatDisagree(t *testing.T) {
	cfg := emptyDatabase(t)
	errs := map[int]error{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, partitions := range []int{1, 2} {
		wg.Go(func() {
			_, err := migrations.Up(t.Context(), migrations.Config{Conn: cfg, Partitions: partitions})
			mu.Lock()
			defer mu.Unlock()
			errs[partitions] = err
		})
	}
	wg.Wait()
	settled := 1
	if errs[1] != nil {
		settled = 2
	}
	if errs[settled] != nil || errs[3-settled] == nil || !strings.Contains(errs[3-settled].Error(), "it is chosen when the database is created") {
		t.Errorf("asking for 1: %v; asking for 2: %v", errs[1], errs[2])
	}
	if diff := cmp.Diff(tablesOf(settled), column(t, cfg, tablesSQL)); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
}

func TestPartitionsOutOfRange(t *testing.T) {
	for _, partitions := range []int{-1, 1025} {
		cfg := emptyDatabase(t)
		if _, err := migrations.Up(t.Context(), migrations.Config{Conn: cfg, Partitions: partitions}); err == nil {
			t.Errorf("a database with %d partitions was made", partitions)
		}
		// No migration was applied, so the next call may choose another number.
		if all := status(t, cfg); countPending(all) != len(all) {
			t.Errorf("after asking for %d partitions only %d migrations are pending", partitions, countPending(all))
		}
		up(t, cfg, 1)
	}
}

// A role without the right to create schemas can migrate in a schema that it owns.
func TestUpInASchemaThatWasGiven(t *testing.T) {
	server := pgtest.NewServer(t) // roles belong to all databases of a server
	cfg, err := pgx.ParseConfig(server.NewDB(t, pgtest.Template{}))
	if err != nil {
		t.Fatal(err)
	}
	column(t, cfg, `CREATE ROLE guest LOGIN`)
	asGuest := cfg.Copy()
	asGuest.User = "guest"
	if _, err := migrations.Up(t.Context(), migrations.Config{Conn: asGuest, Partitions: 1}); err == nil || !strings.Contains(err.Error(), `create the schema badged: permission denied`) || !strings.Contains(err.Error(), ` TO "guest"`+"` as the owner of the database") {
		t.Errorf("without the right to create a schema: %v", err)
	}
	column(t, cfg, `CREATE SCHEMA badged AUTHORIZATION guest`)
	up(t, asGuest, 1)
	if diff := cmp.Diff(tablesOf(1), column(t, cfg, tablesSQL)); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
}
