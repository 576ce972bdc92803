package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// A file of an archive is lost. Nothing can be archived or erased until an operator gives up the
// file by its name. Badges do not change, and each command says what it cannot compute without
// the file. Not parallel: a range is complete only once all older transactions have ended.
func TestLostFileIsGivenUp(t *testing.T) {
	database, dir := oneDatabase(t), filepath.Join(t.TempDir(), "archive")
	on := "--database-url=" + database
	p := serve(t, database)
	home := events.PartitionOf("ann", partitions)
	say := func(seq int) {
		t.Helper()
		total(t, p, "ann", publish(t, p, delivered("lunch", seq, `"ann","`+ghost+`"`)))
		awaitTotalOf(t, p, ghost, int64(seq))
	}
	cut := func(files int) {
		t.Helper()
		for range polls(t, "the archive") {
			cutLog(t, database)
			must(t, archiving(database, dir)...)
			if value[int](t, database, `SELECT count(*)::int FROM badged.archived_files WHERE partition_id = $1`, home) == files {
				return
			}
		}
	}
	for seq := range 3 {
		say(seq + 1)
		cut(seq + 1)
	}
	say(4)
	file := func(number int) string { return filepath.Base(fileOf(dir, home, number)) }
	name := strings.TrimSuffix(file(2), ".ndjson.zst")
	giveUp := func(files string) (out, stderr string, code int) {
		t.Helper()
		return command(t, "archive", "--give-up="+files, "--to="+dir, on)
	}
	for files, want := range map[string]string{
		name:                "archive file " + file(2) + " is intact: there is nothing to give up",
		"events_p99.00001":  "no archived file has the name events_p99.00001",
		"manifest.json":     `"manifest.json" does not name a file of an archive`,
		name + "-00001":     "ends before it begins",
		name + ".r1":        "is intact",
		file(2) + ",second": `"second" does not name a file`,
	} {
		if out, stderr, code := giveUp(files); code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("giving up %s exits with %d: %s%s", files, code, out, stderr)
		}
	}
	if err := os.Remove(filepath.Join(dir, file(2))); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		archiving(database, dir),
		{"verify", "--archive=" + dir, on},
		{"rebuild", "--archive=" + dir, on},
		{"user", "explain", "ann", "--archive=" + dir, on},
		{"user", "export", "ann", "--archive=" + dir, on},
		{"user", "erase", ghost, "--archive=" + dir, on},
		{"restore", "--from=" + dir, "--database-url=" + oneDatabase(t)},
	} {
		want := file(2) + " is missing: restore it from a copy, or give it up with `badged archive --give-up " + name + " --to DIR`"
		if out, stderr, code := command(t, args...); code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%v exits with %d: %s%s", args, code, out, stderr)
		}
	}
	out, stderr, code := giveUp(name)
	if want := "gave up 1 event in 1 file: " + file(2) + "\n"; code != 0 || !strings.HasPrefix(out, want) {
		t.Fatalf("giving it up exits with %d: %s%s", code, out, stderr)
	}
	if trail := must(t, "audit", "list", "--json", on); !strings.Contains(trail, `"action":"archive.give-up"`) || !strings.Contains(trail, `"files":["`+file(2)+`"]`) {
		t.Errorf("the audit trail is\n%s", trail)
	}
	says := func(want string, args ...string) string {
		t.Helper()
		out, stderr, code := command(t, append(args, on)...)
		if code != 0 || !strings.Contains(out+stderr, want) {
			t.Errorf("%v exits with %d, and does not say %q:\n%s%s", args, code, want, out, stderr)
		}
		return out
	}
	gone := fmt.Sprintf("in partition %d, 1 event in 1 file of the archive were given up: ", home)
	agrees := func() {
		t.Helper()
		for _, args := range [][]string{{"verify"}, {"rebuild", "-q"}} {
			for _, from := range [][]string{nil, {"--archive=" + dir}} {
				want := "no difference"
				if from != nil {
					want = gone
				}
				if out := says(want, append(args, from...)...); !strings.Contains(out, "no difference") {
					t.Errorf("%v %v prints %s", args, from, out)
				}
			}
		}
	}
	agrees()
	for _, from := range [][]string{nil, {"--archive=" + dir}} {
		out := says("They cannot be listed, since files with 1 event of the partition were given up.", append([]string{"user", "explain", "ann"}, from...)...)
		if !strings.Contains(out, "lunch adds 4: 4 unread") {
			t.Errorf("%v: it explains\n%s", from, out)
		}
	}
	if out, stderr, code := command(t, "user", "export", "ann", "--archive="+dir, on); code != 1 || !strings.Contains(stderr, "it does not include 1 events of file "+file(2)+", which was given up") || strings.Count(out, `"kind":"archived_event"`) != 2 {
		t.Errorf("the export exits with %d: %s\n%s", code, stderr, out)
	}
	cut(4)
	agrees()
	says(gone+"if a copy of them turns up, it may name the user: delete it", "user", "erase", ghost, "--archive="+dir)
	forgets(t, database, dir, ghost)
	agrees()
	prints(t, "1 event of files that were given up are lost\n", "restore", "-q", "--from="+dir, "--database-url="+oneDatabase(t))
}

// A whole archive is lost. Its files are given up with the commands that the errors name, and a
// new archive begins. A copy of the archive without the last files can be used after these files
// are given up. Not parallel, as above.
func TestLostArchiveIsGivenUp(t *testing.T) {
	database := pgtest.NewDB(t, migrated())
	on := "--database-url=" + database
	dir, old := filepath.Join(t.TempDir(), "archive"), filepath.Join(t.TempDir(), "old")
	p := serve(t, database)
	seq := 0
	say := func(dir string) {
		t.Helper()
		seq++
		total(t, p, "ann", publish(t, p, delivered("lunch", seq, `"ann","bob","`+ghost+`"`)))
		for range polls(t, "the archive") {
			cutLog(t, database)
			must(t, archiving(database, dir)...)
			if logged(t, database) == 0 {
				return
			}
		}
	}
	// goOn runs the command that an error suggests, which gives up the missing files.
	goOn := func(dir, want string) {
		t.Helper()
		_, stderr, code := command(t, archiving(database, dir)...)
		for range partitions {
			_, rest, found := strings.Cut(stderr, "`badged archive --give-up ")
			files, _, _ := strings.Cut(rest, " --to DIR`")
			if code != 1 || !found || !strings.Contains(stderr, want) {
				t.Fatalf("archiving exits with %d: %s", code, stderr)
			}
			must(t, "archive", "--give-up="+files, "--to="+dir, on)
			if _, stderr, code = command(t, archiving(database, dir)...); code == 0 {
				break
			}
		}
		say(dir)
		must(t, "user", "erase", ghost, "--archive="+dir, on)
		prints(t, "no difference", "verify", on)
		prints(t, "no difference", "verify", "--archive="+dir, on)
		prints(t, "no difference", "rebuild", "-q", "--archive="+dir, on)
	}
	say(dir)
	copyTree(t, dir, old)
	say(dir)
	t.Run("the last files", func(t *testing.T) {
		goOn(old, "is incomplete: it has 1 of 2 files; restore the others from a copy, or give them up with ")
	})
	t.Run("the whole archive", func(t *testing.T) {
		goOn(filepath.Join(t.TempDir(), "new"), "manifest.json is missing, but a part of the log is archived: give its archive. If that is lost, give it up with ")
	})
	awaitTotalOf(t, p, "ann", int64(seq))
}
