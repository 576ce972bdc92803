package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/snippets"
)

// ghost is the user who is erased.
const ghost = "ghost-0815"

// populateArchived publishes events of ghost and ann, archives them, and publishes more.
func populateArchived(t *testing.T, p *process, database, dir string) {
	t.Helper()
	publish(t, p, joined("hall", `"`+ghost+`","ann"`))
	publish(t, p, posted("hall", 1, ghost))
	publish(t, p, delivered("tea", 1, `"`+ghost+`"`))
	total(t, p, "ann", publish(t, p, delivered("lunch", 1, `"`+ghost+`","ann"`)))
	awaitTotalOf(t, p, ghost, 2)
	both := value[int](t, database, `SELECT CASE badged.partition_of($1) WHEN badged.partition_of('ann') THEN 1 ELSE 2 END`, ghost)
	for range polls(t, "the archive") {
		cutLog(t, database)
		must(t, archiving(database, dir)...)
		if value[int](t, database, `SELECT count(DISTINCT partition_id)::int FROM badged.archived_files WHERE partition_id IN (badged.partition_of($1), badged.partition_of('ann'))`, ghost) == both {
			break
		}
	}
	total(t, p, "ann", publish(t, p, delivered("lunch", 2, `"`+ghost+`","ann"`)))
}

// refusedAsCopy fails the test unless every command that writes to an archive refuses with the
// reason why, and does not change the archive.
func refusedAsCopy(t *testing.T, database, dir, why string) {
	t.Helper()
	before := contentOf(t, dir)
	for i, args := range [][]string{
		archiving(database, dir),
		{"user", "erase", "ann", "--archive=" + dir, "--database-url=" + database},
		{"archive", "--reencrypt", "--to=" + dir, "--archive-keys=" + archiveKeysIn(t), "--database-url=" + database},
	} {
		const says = " belongs to another copy of this log"
		out, stderr, code := command(t, args...)
		if code != 1 || !strings.Contains(stderr, says) || !strings.Contains(stderr, why) || !strings.Contains(stderr, "run `badged archive --take-over --to DIR`") {
			t.Errorf("%v exits with %d: %s%s", args, code, out, stderr)
		}
		if i == 0 && strings.HasPrefix(why, "this database was restored to an earlier time") {
			shown := snippets.With(t, "docs/archiving.md", "belongs to another copy", "").Text
			snippets.ExpectShape(t, shown, strings.Replace(stderr, dir, "/var/backups/badged/log", 1))
		}
	}
	if diff := cmp.Diff(before, contentOf(t, dir)); diff != "" {
		t.Errorf("the archive was changed (-before +after):\n%s", diff)
	}
}

// contentOf returns the content of the files of a folder by their names.
func contentOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		text := readFile(t, filepath.Join(dir, e.Name()))
		files[e.Name()] = string(text)
	}
	return files
}

// A database has lost an erasure, since the promoted standby did not have it or an older base
// backup was restored. Commands with the archive detect this. The database becomes the owner of
// the archive again and erases the user again; then everything works as before. Not parallel: a
// range is complete only once all older transactions have ended.
func TestArchiveOfADatabaseRestoredToBeforeAnErasure(t *testing.T) {
	t.Run("a promoted standby", func(t *testing.T) {
		pg := startPair(t)
		lostErasure(t, pg.hosts(), pg.part, func(*process) { pg.failOver() })
	})
	t.Run("a base backup", func(t *testing.T) {
		server := pgtest.NewServer(t)
		database := server.NewDB(t, migrated())
		var putBack func()
		lostErasure(t, database, func() { putBack = server.BaseBackup(t) }, func(p *process) {
			p.kill()
			putBack()
		})
	})
}

func lostErasure(t *testing.T, database string, keep func(), restore func(*process)) {
	dir := filepath.Join(t.TempDir(), "archive")
	p := serve(t, database)
	populateArchived(t, p, database, dir)
	keep()
	must(t, "user", "erase", ghost, "--archive="+dir, "--database-url="+database)
	if everywhere := contentOf(t, dir)["manifest.json"]; strings.Contains(everywhere, ghost) {
		t.Errorf("the manifest names the user:\n%s", everywhere)
	}
	restore(p)
	p = serve(t, database)
	awaitTotalOf(t, p, ghost, 3)

	refusedAsCopy(t, database, dir, "this database was restored to an earlier time, or is a copy of the files of the other one")
	const knows = " lists an erasure of users, the last of "
	for _, args := range [][]string{{"verify", "--quiet"}, {"user", "explain", "ann"}, {"user", "export", "ann"}} {
		_, stderr, code := command(t, append(args, "--archive="+dir, "--database-url="+database)...)
		if fails := args[0] == "verify"; (code != 0) != fails || !strings.Contains(stderr, knows) || !strings.Contains(stderr, "run `badged archive --take-over --to DIR`, which erases these users again") {
			t.Errorf("%v exits with %d: %s", args, code, stderr)
		}
	}
	out := must(t, "archive", "--take-over", "--to="+dir, "--database-url="+database)
	if want := "the archive " + dir + " belongs to this database now\n1 user erased again, since the archive lists the erasure\n"; out != want {
		t.Errorf("taking over prints %q, want %q", out, want)
	}
	prints(t, `"users":0,"gone":0`, "archive", "--take-over", "--to="+dir, "--json", "--database-url="+database)
	forgets(t, database, dir, ghost)
	agrees(t, database, dir)
	must(t, "audit", "verify", "--database-url="+database)
	awaitTotalOf(t, p, "ann", 3)
	total(t, p, "ann", publish(t, p, delivered("lunch", 3, `"ann"`)))
	cutLog(t, database)
	must(t, archiving(database, dir)...)
	must(t, "user", "erase", "ann", "--archive="+dir, "--database-url="+database)
	agrees(t, database, dir)
	must(t, "audit", "verify", "--database-url="+database)
}

// A copy of a database, however it was made, cannot write into the archive of the original:
// its commands are refused and change nothing. With a copy of the archive it can archive
// independently. Not parallel, as above.
func TestCopiesDoNotWriteIntoTheArchive(t *testing.T) {
	dir := pgtest.OpenDir(t)
	pg := postgresIn(t, filepath.Join(dir, "original"))
	original, archive := pg.URL(), filepath.Join(t.TempDir(), "archive")
	p := serve(t, original)
	populateArchived(t, p, original, archive)
	goesOn := func(database, dir string) {
		t.Helper()
		cutLog(t, database)
		must(t, archiving(database, dir)...)
		agrees(t, database, dir)
	}
	copied := func() (own string) {
		t.Helper()
		own = filepath.Join(t.TempDir(), "own")
		copyTree(t, archive, own)
		return own
	}
	onItsOwn := func(database, own string) {
		t.Helper()
		must(t, "archive", "--take-over", "--to="+own, "--database-url="+database)
		p := serve(t, database)
		total(t, p, "ann", publish(t, p, delivered("staging", 1, `"ann"`)))
		goesOn(database, own)
		p.kill()
	}
	t.Run("by a dump", func(t *testing.T) {
		to := pgtest.NewServer(t)
		staging := to.NewDB(t, pgtest.Template{})
		to.Run(t, pgtest.Borrow(t).Run(t, nil, "pg_dump", original), "psql", "--quiet", "--set=ON_ERROR_STOP=1", staging)
		must(t, "repair-log", "--database-url="+staging)
		refusedAsCopy(t, staging, archive, "this database or the other one was restored from a dump or replicated since")
		onItsOwn(staging, copied())
	})
	t.Run("within the cluster", func(t *testing.T) {
		p.kill()
		conn := pgtest.Connect(t, pg.DatabaseURL("template1"))
		pgtest.Exec(t, conn, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'postgres'`)
		pgtest.Exec(t, conn, `CREATE DATABASE staging TEMPLATE postgres`)
		p = serve(t, original)
		staging := pg.DatabaseURL("staging")
		refusedAsCopy(t, staging, archive, "this database or the other one was copied within its cluster of Postgres since")
		onItsOwn(staging, copied())
	})
	t.Run("of its files", func(t *testing.T) {
		baseBackup(t, pg, filepath.Join(dir, "staging"))
		own := copied()
		goesOn(original, archive) // after the copy was made
		staging := postgresIn(t, filepath.Join(dir, "staging")).URL()
		refusedAsCopy(t, staging, archive, "is a copy of the files of the other one")
		onItsOwn(staging, own)
	})
	t.Run("of its files, which writes first", func(t *testing.T) {
		baseBackup(t, pg, filepath.Join(dir, "first"))
		first := postgresIn(t, filepath.Join(dir, "first")).URL()
		must(t, archiving(first, archive)...)
		refusedAsCopy(t, original, archive, "is a copy of the files of the other one")
		must(t, "archive", "--take-over", "--to="+archive, "--database-url="+original)
		refusedAsCopy(t, first, archive, "is a copy of the files of the other one")
	})
	goesOn(original, archive)
}

// A copy of a database does not become the owner of an archive whose manifest names no owner.
// Not parallel, as above.
func TestArchiveWithoutAnOwner(t *testing.T) {
	database, dir := oneDatabase(t), filepath.Join(t.TempDir(), "archive")
	p := serve(t, database)
	populateArchived(t, p, database, dir)
	file := filepath.Join(dir, "manifest.json")
	text := readFile(t, file)
	var manifest map[string]json.RawMessage
	if err := json.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	delete(manifest, "owner")
	without, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, file, without)
	refusedAsCopy(t, database, dir, "its manifest has files and names no owner")
	must(t, "archive", "--take-over", "--to="+dir, "--database-url="+database)
	must(t, archiving(database, dir)...)
}

// A standby that has every commit is promoted, and continues to use the archive. Not parallel,
// as above.
func TestPromotedStandbyGoesOnWithTheArchive(t *testing.T) {
	pg, dir := startPair(t), filepath.Join(t.TempDir(), "archive")
	p := serve(t, pg.hosts())
	populateArchived(t, p, pg.hosts(), dir)
	must(t, "user", "erase", ghost, "--archive="+dir, "--database-url="+pg.hosts())
	pg.catchUp()
	pg.failOver()
	total(t, p, "ann", insist(t, p, delivered("lunch", 3, `"ann"`)))
	cutLog(t, pg.hosts())
	must(t, archiving(pg.hosts(), dir)...)
	must(t, "user", "erase", "ann", "--archive="+dir, "--database-url="+pg.hosts())
	prints(t, "no difference", "verify", "--quiet", "--archive="+dir, "--database-url="+pg.hosts())
}
