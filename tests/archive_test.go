package tests

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/privates3"
	"github.com/badged/badged/internal/devtest/snippets"
)

// cutLog ends the current range of every partition's log, and waits until no open transaction,
// such as a transaction of the server's maintenance, can write into that range.
func cutLog(t *testing.T, database string) {
	t.Helper()
	for _, url := range stackOf(database) {
		cutShard(t, url)
	}
}

func cutShard(t *testing.T, database string) {
	t.Helper()
	extendLog(t, database, 4)
	starts := useIDs(t, database)
	conn := pgtest.Connect(t, database)
	await(t, "the end of the range", func() bool {
		return valueIn[bool](t, conn, `SELECT pg_current_xact_id()::text::bigint > $1 AND pg_snapshot_xmin(pg_current_snapshot())::text::bigint > $1`, starts)
	})
}

// endNoRanges keeps servers from ending ranges by themselves, which they do after a minute
// and the more transactions ahead the faster these are used: up to 32 million, and useIDs
// would use them all. Servers try again later.
const endNoRanges = `CREATE OR REPLACE FUNCTION public.end_no_ranges() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
	RAISE EXCEPTION 'the test ends ranges' USING ERRCODE = 'lock_not_available';
END$$;
CREATE OR REPLACE TRIGGER end_no_ranges BEFORE INSERT ON badged.log_ranges FOR EACH STATEMENT
WHEN (pg_catalog.current_setting('application_name') OPERATOR(pg_catalog.=) 'badged folding') EXECUTE FUNCTION public.end_no_ranges()`

// extendLog makes the current range of every partition end that many transaction ids ahead.
func extendLog(t *testing.T, database string, ahead int) {
	t.Helper()
	conn := pgtest.Connect(t, database)
	pgtest.Exec(t, conn, endNoRanges)
	rows, _ := conn.Query(t.Context(), `SELECT badged.existing_partitions()`)
	all, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		for range polls(t, "the lock of the log") {
			var more bool // whether another call is needed
			err := conn.QueryRow(t.Context(), `SELECT badged.extend_log($1, '0', $2)`, p, ahead).Scan(&more)
			if err == nil && !more {
				break
			}
			var pgErr *pgconn.PgError
			if err != nil && (!errors.As(err, &pgErr) || pgErr.Code != "55P03") { // a reader held its lock for longer than the function waits
				t.Fatal(err)
			}
		}
	}
}

// useIDs consumes transaction ids up to the greatest start of a partition's last range, and
// returns that id.
func useIDs(t *testing.T, database string) (starts int64) {
	t.Helper()
	conn := pgtest.Connect(t, database)
	// The number can be large: a server that has run for a minute creates ranges of a
	// million transactions.
	if err := conn.QueryRow(t.Context(), `SELECT max(starts::text::bigint) FROM badged.log_ranges WHERE ends IS NULL`).Scan(&starts); err != nil {
		t.Fatal(err)
	}
	set, loop, _ := strings.Cut(snippets.With(t, "docs/archiving.md", "pg_current_xact_id()", "sql").Text, "DO ")
	for _, statement := range []string{set, `SET default_transaction_isolation = 'read committed'`, "DO " + loop} {
		pgtest.Exec(t, conn, statement)
	}
	return starts
}

// logged returns the number of events in the log.
func logged(t *testing.T, database string) (n int) {
	t.Helper()
	for _, url := range stackOf(database) {
		n += inLog(t, pgtest.Connect(t, url))
	}
	return n
}

// audited returns how many actions of a kind have ended without an error, according to the audit
// trail of the first shard.
func audited(t *testing.T, database, action string) int {
	t.Helper()
	return value[int](t, database, `SELECT count(*) FROM badged.audit JOIN badged.audit_ends AS e ON audit_id = id
WHERE action = $1 AND e.error IS NULL`, action)
}

// agrees fails the test unless verifying and rebuilding find no difference, with and without an
// archive. flags are added to the commands.
func agrees(t *testing.T, database, dir string, flags ...string) {
	t.Helper()
	for _, command := range []string{"verify", "rebuild"} {
		args := append([]string{command, "--quiet", "--database-url=" + database}, flags...)
		prints(t, "no difference", args...)
		prints(t, "no difference", append(args, "--archive="+dir)...)
	}
}

// archiving returns the arguments that archive all ranges.
func archiving(database, dir string) []string {
	return []string{"archive", "-q", "--database-url=" + database, "--to=" + dir, "--before=" + time.Now().UTC().Format(time.RFC3339Nano)}
}

// The log is archived, and its archived ranges are dropped, while a server runs. Clients are not
// affected, and a rebuild gives the same tables, both from the baseline and from the archive.
// The log is also restored from the archive into another database. Not parallel: a range is
// complete only once all older transactions of the server have ended.
func TestArchive(t *testing.T) {
	s3 := privates3.Start(t, "archives")
	for _, setting := range s3.Env() {
		name, value, _ := strings.Cut(setting, "=")
		t.Setenv(name, value)
	}
	t.Run("folder", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "archive")
		testArchive(t, dir, dir)
	})
	t.Run("bucket", func(t *testing.T) {
		testArchive(t, "s3://archives/some/log", filepath.Join(s3.Dir, "archives", "some", "log"))
	})
	t.Run("encrypted", func(t *testing.T) {
		keys := archiveKeysIn(t)
		folder := filepath.Join(s3.Dir, "archives", "encrypted")
		database := testArchive(t, "s3://archives/encrypted", folder, "--archive-keys="+keys)
		fails(t, 1, "manifest.json is encrypted: give the file of its keys with --archive-keys", "restore", "-q", "--from=s3://archives/encrypted", "--database-url="+newDatabase(t))

		// A new key replaces the first key in the whole archive.
		both, only := filepath.Join(t.TempDir(), "both"), archiveKeysIn(t)
		writeFile(t, both, string(readFile(t, only))+string(readFile(t, keys)))
		for i, want := range []string{" files encrypted again, ", "0 files encrypted again, "} {
			out := must(t, "archive", "--reencrypt", "--to=s3://archives/encrypted", "--archive-keys="+both, "--database-url="+database)
			if !strings.Contains(out, want) || i == 0 && !regexp.MustCompile(`(?m)^[1-9]`).MatchString(out) {
				t.Errorf("encrypting again prints %s", out)
			}
		}
		if out := must(t, "restore", "-q", "--from=s3://archives/encrypted", "--archive-keys="+only, "--database-url="+newDatabase(t)); out == "" {
			t.Error("with the new key alone, restoring prints nothing")
		}
		if trail := must(t, "audit", "list", "--database-url="+database); strings.Count(trail, "archive.reencrypt") != 2*len(stackOf(database)) {
			t.Errorf("the audit trail is\n%s", trail)
		}
	})
}

// testArchive tests an archive at dir, whose files are in folder, and returns the database that was
// archived. flags are added to every command that uses the archive.
func testArchive(t *testing.T, dir, folder string, flags ...string) (database string) {
	database = newDatabase(t)
	// Without the long interval, reconciliation would show clients the rows that are
	// corrupted below.
	p := serve(t, database, "--reconcile-interval=10m")
	ann := connect(t, p.url, "ann")
	publish(t, p, delivered("lunch", 1, `"ann","bob"`))
	publish(t, p, delivered("lunch", 2, `"ann"`))
	ann.awaitTotal(2)
	if out := must(t, append(archiving(database, dir), flags...)...); !strings.HasPrefix(out, "nothing to archive; in the first partition, its range from transaction 0 on ") {
		t.Errorf("before any range has ended it prints %s", out)
	}
	cutLog(t, database)
	out := must(t, append(archiving(database, dir), flags...)...)
	if got := logged(t, database); got != 0 || !strings.Contains(out, "partition "+fmt.Sprint(events.PartitionOf("ann", partitions))+": 2 events in 1 file archived, 1 table dropped from the log; its range from transaction ") ||
		!strings.Contains(out, "3 events of 8 partitions archived in 2 files, ") {
		t.Errorf("%d events are left; it prints %s", got, out)
	}
	if n := audited(t, database, "archive"); n != 2 {
		t.Errorf("the audit trail has %d archivings, of 2", n)
	}
	states := filepath.Join(t.TempDir(), "states.csv")
	writeFile(t, states, "user_id,conversation_id,last_seq,read_seq\nann,lunch,2,0\n")
	if _, stderr, code := command(t, "import", "--undo", "--quiet", states, "--database-url="+database); code != 1 ||
		!strings.Contains(stderr, "a part of the log is archived, so it is not known what else changed these conversations: reset them with conversation.reset instead") {
		t.Errorf("undoing an import exits with %d and says %s", code, stderr)
	}
	publish(t, p, delivered("lunch", 3, `"ann","bob"`))
	publish(t, p, delivered("lunch", 2, `"ann"`)) // a repetition
	ann.awaitTotal(3)
	for _, from := range [][]string{{}, append([]string{"--archive=" + dir}, flags...)} {
		run := func(args ...string) string {
			t.Helper()
			return must(t, append(append(args, "--database-url="+database), from...)...)
		}
		if out := run("verify"); !strings.HasPrefix(out, "2 users and 2 conversations of 8 partitions compared with the log: no difference") {
			t.Errorf("with %v, verifying says %s", from, out)
		}
		explained := run("user", "explain", "ann")
		if named := strings.Contains(explained, "Events appended until "); named != (len(from) == 0) || !strings.Contains(explained, "lunch adds 3: 3 unread") {
			t.Errorf("with %v, it explains\n%s", from, explained)
		}
		sql(t, database, spoil, "ann")
		if out := run("rebuild", "-q"); !strings.Contains(out, ": 1 user corrected, 1 partition with a new epoch") {
			t.Errorf("with %v, rebuilding says %s", from, out)
		}
		ann.awaitTotal(3)
		sql(t, database, spoil, "ann")
		if out := run("rebuild", "--user=ann"); !strings.Contains(out, `user "ann" was healed`) {
			t.Errorf("with %v, rebuilding her says %s", from, out)
		}
		run("verify")
	}
	cutLog(t, database)
	prints(t, `{"partitions":8,"files":2,"events":3,`, append(append(archiving(database, dir), "--json"), flags...)...)
	must(t, append([]string{"verify", "--database-url=" + database, "--archive=" + dir}, flags...)...)

	restored, unread := "6 events of 8 partitions restored from 4 files; ", 3
	if len(flags) == 0 && dir != folder {
		// Ann's partition is split; both children use its files.
		must(t, "partition", "split", fmt.Sprint(events.PartitionOf("ann", partitions)), "--quiet", "--database-url="+database)
		publish(t, p, delivered("lunch", 4, `"ann","bob"`))
		ann.awaitTotal(4)
		must(t, "verify", "--quiet", "--database-url="+database, "--archive="+dir)
		cutLog(t, database)
		must(t, archiving(database, dir)...)
		prints(t, "lunch adds 4: 4 unread", "user", "explain", "ann", "--database-url="+database, "--archive="+dir)
		restored, unread = "8 events of 9 partitions restored from 8 files; ", 4
	}
	other := newDatabase(t)
	p = serve(t, other)
	if out := must(t, append([]string{"restore", "-q", "--from=" + dir, "--database-url=" + other}, flags...)...); !strings.HasPrefix(out, restored) {
		t.Errorf("restoring prints %s", out)
	}
	connect(t, p.url, "ann").awaitTotal(int64(unread))
	if n := audited(t, other, "restore"); n != 1 {
		t.Errorf("the audit trail has %d restores, of 1", n)
	}
	if len(flags) > 0 {
		return database // `load` could not recognize an encrypted file
	}
	file := filepath.Join(folder, events.Topic(events.PartitionOf("ann", partitions))+".00001.ndjson.zst")
	if len(stackOf(database)) > 1 {
		found, err := filepath.Glob(filepath.Join(folder, "*", filepath.Base(file)))
		if err != nil || len(found) != 1 {
			t.Fatalf("one shard should have archived %s: %q, %v", filepath.Base(file), found, err)
		}
		file = found[0]
	}
	fails(t, 1, ":1: is a line of an archive: to fill ", "load", file, "-q", "--database-url="+other)
	return database
}
