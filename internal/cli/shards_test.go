package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/internal/pg/embedpg"
)

// newShards returns the flags of a cluster of three shards with a partition each, and
// their URLs.
func newShards(t *testing.T) (flags, urls []string) {
	t.Helper()
	for i := range 3 {
		urls = append(urls, pgtest.NewDB(t, schematest.Migrated(3)))
		flags = append(flags, fmt.Sprintf("--shard=%c=%s", 'a'+i, urls[i]))
	}
	mustDo(t, append([]string{"migrate", "up", "--partitions=3"}, flags...)...)
	return flags, urls
}

// away is where no Postgres listens.
const away = "postgres://127.0.0.1:1/none"

// userOf returns a user of a partition of three.
func userOf(partition int) string {
	for i := 0; ; i++ {
		if user := fmt.Sprint("user-", i); events.PartitionOf(user, 3) == partition {
			return user
		}
	}
}

// poolOf connects to a database.
func poolOf(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func has(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s lacks %q:\n%s", what, part, text)
		}
	}
}

// Commands about all data go through all shards and say which; commands about a user go
// to the shard of the user.
func TestCommandsOnShards(t *testing.T) {
	flags, urls := newShards(t)
	on := func(args ...string) []string { return append(args, flags...) }
	for i, url := range urls {
		log, err := events.Open(t.Context(), poolOf(t, url))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := log.Append(t.Context(), events.Event{
			ID: "1", Source: "test", Type: events.MessageDelivered,
			Data: events.Data{ConversationID: "c", Seq: 1, UserIDs: []string{userOf(i)}},
		}); err != nil {
			t.Fatal(err)
		}
	}

	lines := strings.Split(strings.TrimSpace(mustDo(t, on("lag")...)), "\n")
	if len(lines) != 4 || !strings.HasSuffix(lines[0], "SHARD") || !strings.HasSuffix(lines[1], "a") || !strings.HasSuffix(lines[3], "c") {
		t.Errorf("lag prints\n%s", strings.Join(lines, "\n"))
	}
	shown := badged(t, on("user", "show", userOf(1))...)
	has(t, "user show", shown.out, "partition  1\n", "shard      b\n")
	asJSON := badged(t, on("user", "show", userOf(1), "--json")...)
	for _, r := range []result{shown, asJSON} {
		has(t, "user show", r.err, "partition 1 is behind: 1 event not folded yet")
		if r.code != exitDone || strings.Contains(r.out, "Nothing has ever happened") {
			t.Errorf("user show exits with %d and prints\n%s", r.code, r.out)
		}
	}
	explained := badged(t, on("user", "explain", userOf(2))...)
	has(t, "user explain", explained.out, "log        partition 2 up to ")
	has(t, "user explain", explained.err, "partition 2 is behind: 1 event not folded yet")
	if out := mustDo(t, on("verify", "-q")...); out != "0 users and 0 conversations of 3 partitions compared with the log: no difference; 3 events are not folded yet\n" {
		t.Errorf("verify prints %q", out)
	}
	if out := mustDo(t, on("verify", "-q", "--json", "--user="+userOf(0), "--user="+userOf(2))...); out != `{"partitions":2,"users":0,"conversations":0,"differences":0}`+"\n" {
		t.Errorf("verify of two users prints %q", out)
	}
	if out := mustDo(t, on("rebuild", "-q")...); out != "0 users and 0 conversations of 3 partitions rebuilt from the log: no difference, nothing was changed; 3 events are not folded yet\n" {
		t.Errorf("rebuild prints %q", out)
	}
	mustDo(t, on("rebuild", "-q", "--partition=1")...)
	mustDo(t, on("repair-log")...)

	audit := mustDo(t, on("audit", "list")...)
	if n := strings.Count(audit, "rebuild"); n != 4 || !strings.HasPrefix(audit, "SHARD  ID") {
		t.Errorf("the trail has %d rebuilds:\n%s", n, audit)
	}
	has(t, "the newest action", strings.Split(audit, "\n")[1], "c      2000000000003  ")
	has(t, "audit verify", mustDo(t, on("audit", "verify")...), "shard a: 4 records", "shard b: 10 records", "shard c: --count=")

	dir := filepath.Join(t.TempDir(), "archive")
	has(t, "archive", mustDo(t, on("archive", "-q", "--to="+dir, "--before="+time.Now().UTC().Format(time.RFC3339Nano))...), "nothing to archive")
	for _, shard := range []string{"a", "b", "c"} {
		if _, err := os.Stat(filepath.Join(dir, shard, "manifest.json")); err != nil {
			t.Error(err)
		}
	}
	export := mustDo(t, on("user", "export", userOf(1))...)
	has(t, "the export", export, `"record":{"holdings":`)
	mustDo(t, on("user", "merge", userOf(0), userOf(2))...)
	has(t, "erasing nothing", mustDo(t, on("user", "erase", "somebody-else", "--archive="+dir)...), "badged had no data of this user")
}

// Dead letters have ids of their own on each shard.
func TestDeadLettersOnShards(t *testing.T) {
	flags, urls := newShards(t)
	on := func(args ...string) []string { return append(args, flags...) }
	for i, url := range urls[:2] {
		pgtest.Exec(t, poolOf(t, url), `INSERT INTO badged.dead_letters (partition_id, transaction_id, "offset", uuid, reason) VALUES ($1, '7', 1, gen_random_uuid(), 'it is broken')`, i)
	}
	has(t, "the list", mustDo(t, on("deadletters", "list")...), "SHARD  ID", "\na      1  ", "\nb      1000000000001  ")
	if r := badged(t, on("deadletters", "retry", "--all")...); r.code != exitFailed || !strings.Contains(r.err, "retry dead letter 1000000000001: ") {
		t.Errorf("retry exits with %d: %s", r.code, r.err)
	}
	var letter struct {
		ID    int64
		Shard string
	}
	if err := json.Unmarshal([]byte(mustDo(t, on("deadletters", "discard", "1000000000001")...)), &letter); err != nil || letter.Shard != "b" || letter.ID != 1000000000001 {
		t.Errorf("%+v was discarded (%v)", letter, err)
	}
	if r := badged(t, on("deadletters", "discard", "99")...); r.code != exitFailed || !strings.Contains(r.err, "there is no such dead letter") {
		t.Errorf("discarding none exits with %d: %s", r.code, r.err)
	}
}

// A shard that is unavailable is named after the others were done, and fails only what needs it.
func TestCommandsWhileAShardIsAway(t *testing.T) {
	flags, urls := newShards(t)
	flags[1] = "--shard=b=" + away
	on := func(args ...string) []string { return append(args, flags...) }
	const gone = "shard b, which has partition 1, is unavailable: failed to connect "
	for _, tc := range []struct {
		args []string
		out  string
	}{
		{[]string{"lag"}, "\n2  "},
		{[]string{"verify", "-q"}, "of 2 partitions compared with the log: no difference\n"},
		{[]string{"rebuild", "-q"}, "of 2 partitions rebuilt from the log"},
		{[]string{"audit", "list"}, "rebuild"},
		{[]string{"deadletters", "list"}, ""},
		{[]string{"log"}, ""},
		{[]string{"user", "erase", userOf(0)}, ""},
		{[]string{"user", "export", userOf(0)}, ""},
		{[]string{"user", "show", userOf(1)}, ""},
		{[]string{"user", "merge", userOf(0), userOf(1)}, ""},
		{[]string{"verify", "-q", "--partition=1"}, ""},
		{[]string{"repair-log"}, "shard c: nothing to do"},
		{[]string{"migrate", "status"}, "\nc      00001_log.sql"},
	} {
		want := gone
		if tc.args[0] == "repair-log" || tc.args[0] == "migrate" {
			want = "shard b: " // they do not ask the other shards
		}
		if r := badged(t, on(tc.args...)...); r.code != exitFailed || !strings.Contains(r.err, want) || !strings.Contains(r.out, tc.out) {
			t.Errorf("%v exits with %d and prints\n%s%s", tc.args, r.code, r.out, r.err)
		}
	}
	if r := badged(t, on("user", "erase", userOf(0))...); strings.Contains(r.out, "had no data") || !strings.Contains(r.err, "not everything was erased: run it again") {
		t.Errorf("an erasure while a shard is away prints\n%s%s", r.out, r.err)
	}
	if r := badged(t, on("user", "show", userOf(0))...); r.code != exitUnknown {
		t.Errorf("showing a user of a shard that is there exits with %d: %s", r.code, r.err)
	}
	mustDo(t, on("verify", "-q", "--user="+userOf(2))...)
	mustDo(t, "audit", "verify", "--shard=c="+urls[2])
}

// Shards are migrated at the same time. One that fails is named, and the others are done;
// repeating the command completes the cluster.
func TestMigrateUpWhenAShardFails(t *testing.T) {
	var flags []string
	urls := map[string]string{}
	for _, name := range []string{"a", "b", "c", "d"} {
		urls[name] = pgtest.NewDB(t, pgtest.Template{})
		flags = append(flags, "--shard="+name+"="+urls[name])
	}
	broken := poolOf(t, urls["c"])
	pgtest.Exec(t, broken, `CREATE SCHEMA badged; CREATE TABLE badged.partitions ()`)
	up := append([]string{"migrate", "up", "--partitions=4"}, flags...)
	r := badged(t, up...)
	if r.code != exitFailed || !strings.Contains(r.err, "3 of 4 shards are migrated; repeat the command for the others: shard c: migrate: ") {
		t.Errorf("migrate exits with %d: %s", r.code, r.err)
	}
	lines := slices.Collect(strings.Lines(r.out))
	of := func(line string) string { return strings.TrimPrefix(line, "shard ")[:1] }
	for _, shard := range []string{"a", "b", "d"} {
		if n := strings.Count(r.out, "shard "+shard+": applied "); n < 7 {
			t.Errorf("of shard %s %d migrations are printed", shard, n)
		}
	}
	if n := len(slices.CompactFunc(lines, func(a, b string) bool { return of(a) == of(b) })); n != 4 {
		t.Errorf("what is printed of a shard is not together:\n%s", r.out)
	}
	has(t, "what is printed", r.out, "shard c: applied 00001_log.sql\n")

	pgtest.Exec(t, broken, `DROP TABLE badged.partitions`)
	has(t, "the second time", mustDo(t, up...), "shard a: nothing to do", "shard c: applied 00002_tables.sql", "shard c: has joined the cluster and holds partition 2\n")
}

// The URL of a shard leads to an empty database, or to that of another cluster: nothing is
// written to it, nor to the others.
func TestMigrateUpLeavesAWrongDatabaseAlone(t *testing.T) {
	flags, _ := newShards(t)
	wrong := pgtest.NewDB(t, pgtest.Template{})
	schemas := func() (n int) {
		t.Helper()
		if err := poolOf(t, wrong).QueryRow(t.Context(), `SELECT count(*) FROM pg_namespace WHERE nspname = 'badged'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	r := badged(t, "migrate", "up", flags[0], "--shard=b="+wrong, flags[2])
	if r.code != exitFailed || r.out != "" || !strings.Contains(r.err, "nothing was migrated: the database is empty or not part of the cluster: shard b is not part of the cluster, but the map assigns it partition 1") {
		t.Errorf("with an empty database it exits with %d: %s%s", r.code, r.out, r.err)
	}
	if n := schemas(); n != 0 {
		t.Error("the empty database has a schema now")
	}
	others, urls := newShards(t)
	// Its number of partitions is another too, which is not the mistake.
	pgtest.Exec(t, poolOf(t, urls[2]), `UPDATE badged.settings SET partitions = partitions + 1`)
	if r := badged(t, append([]string{"migrate", "up", "--shard=new=" + wrong, flags[0], flags[1]}, others[2])...); r.code != exitFailed || !strings.Contains(r.err, "nothing was migrated: the database belongs to another cluster") {
		t.Errorf("with a shard of another cluster it exits with %d: %s%s", r.code, r.out, r.err)
	}
	if n := schemas(); n != 0 {
		t.Error("the database of the new shard has a schema now")
	}
	if r := badged(t, append([]string{"migrate", "up", "--shard=new=" + wrong, "--shard=twice=" + wrong}, flags...)...); r.code != exitFailed || !strings.Contains(r.err, "the same database is given twice") {
		t.Errorf("with a database given twice it exits with %d: %s%s", r.code, r.out, r.err)
	}
	if n := schemas(); n != 0 {
		t.Error("the database that is given twice has a schema now")
	}
}

// A server with many databases may have room for the locks of one migration, and not of
// two. If it takes no more connections, commands say what to do.
func TestServerWithFewLocksAndConnections(t *testing.T) {
	server, err := embedpg.Start(t.Context(), embedpg.Config{Settings: map[string]string{
		"max_locks_per_transaction": "40", "max_connections": "20", "shared_buffers": "1MB", "autovacuum_max_workers": "1", "max_wal_senders": "0", "max_worker_processes": "0",
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	admin := poolOf(t, server.URL())
	var flags []string
	for _, name := range []string{"a", "b", "c"} {
		pgtest.Exec(t, admin, "CREATE DATABASE "+name)
		u, err := url.Parse(server.URL())
		if err != nil {
			t.Fatal(err)
		}
		u.Path = "/" + name
		flags = append(flags, "--shard="+name+"="+u.String())
	}
	mustDo(t, append([]string{"migrate", "up", "--partitions=20"}, flags...)...)
	var taken []*pgx.Conn
	for {
		conn, err := pgx.Connect(t.Context(), server.URL())
		if err != nil {
			break
		}
		taken = append(taken, conn)
	}
	if r := badged(t, "lag", flags[0], flags[1]); r.code != exitFailed || !strings.Contains(r.err, "or max_connections of the server") {
		t.Errorf("without a connection left, lag exits with %d: %s", r.code, r.err)
	}
	for _, conn := range taken {
		if err := conn.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if r := badged(t, "migrate", "up", "--partitions=200", "--database-url="+server.URL()); r.code != exitFailed ||
		!strings.Contains(r.err, "out of shared memory (SQLSTATE 53200); the migration needs about 9000 locks at a time: raise max_locks_per_transaction of the server") {
		t.Errorf("with 200 partitions it exits with %d: %s", r.code, r.err)
	}
}

// A release that needs a table which `migrate up` has not made says so.
func TestMoveBeforeMigrations(t *testing.T) {
	flags, urls := newShards(t)
	pgtest.Exec(t, poolOf(t, urls[0]), `ALTER TABLE badged.expiry_progress RENAME TO later`)
	r := badged(t, append([]string{"partition", "move", "0", "--to=b"}, flags...)...)
	if r.code != exitFailed || !strings.Contains(r.err, "does not exist (SQLSTATE 42P01)") || !strings.Contains(r.err, "\nMigrations may be pending: ") {
		t.Errorf("the move exits with %d: %s", r.code, r.err)
	}
}
