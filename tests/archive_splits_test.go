package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/log/eventlog"
)

// archiveKeysIn makes a file of keys.
func archiveKeysIn(t *testing.T) string {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "keys")
	writeFile(t, file, id.String()+"\n")
	return file
}

// usersOfParts returns a user for each partition that exists once one of 4 partitions was split.
func usersOfParts(partition int) map[int]string {
	a, b, _ := eventlog.Children(partition, 4)
	layout, in := events.NewLayout(4, []int{a, b}), map[int]string{}
	for n := 0; len(in) < 2; n++ {
		if user := fmt.Sprint("user-", n); events.PartitionOf(user, 4) == partition {
			in[layout.PartitionOf(user)] = user
		}
	}
	return in
}

// fileOf returns the name of an archived file of a partition.
func fileOf(archive string, partition, number int) string {
	return filepath.Join(archive, fmt.Sprintf("%s.%05d.ndjson.zst", events.Topic(partition), number))
}

// A database is restored from a base backup that is older than a split, while its encrypted
// archive is newer than the split. Commands detect this. After the same split they work with the
// archive again. They report files of events that the database has lost, and delete files only
// on request. Not parallel: a range is complete only once all older transactions have ended.
func TestArchiveOfADatabaseRestoredToBeforeASplit(t *testing.T) {
	dir := pgtest.OpenDir(t)
	pgdata, kept := filepath.Join(dir, "live", "pgdata"), filepath.Join(dir, "kept")
	pg := postgresIn(t, filepath.Join(dir, "live"))
	archive, keys := filepath.Join(t.TempDir(), "archive"), archiveKeysIn(t)
	in := usersOfParts(0)
	first, second := in[4], in[8]
	p := serve(t, pg.URL())
	run := func(args ...string) (out, stderr string, code int) {
		t.Helper()
		return command(t, append(args, "--quiet", "--archive-keys="+keys, "--database-url="+pg.URL())...)
	}
	done := func(args ...string) string {
		t.Helper()
		out, stderr, code := run(args...)
		if code != 0 {
			t.Fatalf("badged %v exits with %d:\n%s%s", args, code, out, stderr)
		}
		return out
	}
	cut := []string{"archive", "--older-than=1ns", "--to=" + archive}
	// cutInto repeats cutting, since the log of a partition is not cut while older
	// transactions are open or shortly after the projector has folded it.
	cutInto := func(number int, partitions ...int) {
		t.Helper()
		cutLog(t, pg.URL())
		for range polls(t, "the archive") {
			done(cut...)
			if !slices.ContainsFunc(partitions, func(p int) bool {
				_, err := os.Stat(fileOf(archive, p, number))
				return err != nil
			}) {
				return
			}
		}
	}
	said := 0
	say := func() {
		t.Helper()
		said++
		publish(t, p, delivered("c", said, fmt.Sprintf("%q,%q", first, second)))
		for _, u := range []string{first, second} {
			awaitTotalOf(t, p, u, int64(said))
		}
	}
	say()
	cutInto(1, 0)
	say()
	baseBackup(t, pg, kept)
	if _, _, code := command(t, "partition", "split", "0", "--quiet", "--database-url="+pg.URL()); code != 0 {
		t.Fatal("it was not split")
	}
	say()
	cutInto(2, 4, 8)
	say()

	p.kill()
	pg.Kill()
	if err := os.RemoveAll(pgdata); err != nil {
		t.Fatal(err)
	}
	copyTree(t, filepath.Join(kept, "pgdata"), pgdata)
	restart(t, pg)
	p = serve(t, pg.URL())
	said = 2
	done("archive", "--take-over", "--to="+archive)
	const again = "run `badged partition split 0`, so that the database agrees with the archive, then repeat this command"
	for _, args := range [][]string{{"verify", "--archive=" + archive}, {"rebuild", "--archive=" + archive}, cut} {
		if _, stderr, code := run(args...); code != 1 || !strings.Contains(stderr, again) {
			t.Errorf("%v exits with %d: %s", args, code, stderr)
		}
	}
	must(t, "partition", "split", "0", "--quiet", "--database-url="+pg.URL())
	right := func() {
		t.Helper()
		agrees(t, pg.URL(), archive, "--archive-keys="+keys)
		for _, u := range []string{first, second} {
			out := must(t, "user", "explain", u, "--archive="+archive, "--archive-keys="+keys, "--database-url="+pg.URL())
			if !strings.Contains(out, fmt.Sprintf("c adds %d: %[1]d unread", said)) || strings.Contains(out, "Events appended until ") {
				t.Errorf("of %s it explains\n%s", u, out)
			}
		}
	}
	right()
	say() // again
	cutLog(t, pg.URL())
	lost := []string{fileOf(archive, 4, 2), fileOf(archive, 8, 2)}
	for range polls(t, "what archiving says") {
		_, stderr, code := run(cut...)
		n := slices.IndexFunc(lost, func(file string) bool {
			return strings.Contains(stderr, file+" has events that are not in the log: if the database was restored to a time before the file was written, move the file out of the archive")
		})
		if code == 0 {
			continue
		} else if code != 1 || n < 0 {
			t.Fatalf("archiving exits with %d: %s", code, stderr)
		}
		if err := os.Rename(lost[n], filepath.Join(t.TempDir(), "kept")); err != nil {
			t.Fatal(err)
		}
		if lost = slices.Delete(lost, n, n+1); len(lost) == 0 {
			break
		}
	}
	cutInto(2, 4, 8)
	right()

	must(t, "user", "erase", first, "--archive="+archive, "--archive-keys="+keys, "--database-url="+pg.URL())
	agrees(t, pg.URL(), archive, "--archive-keys="+keys)
	named(t, archive, 3)
	for flag, want := range map[string]string{
		"":                                   "manifest.json is encrypted: give the file of its keys with --archive-keys",
		"--archive-keys=" + archiveKeysIn(t): "manifest.json is encrypted with another key than age1",
	} {
		args := []string{"verify", "--quiet", "--archive=" + archive, "--database-url=" + pg.URL()}
		if flag != "" {
			args = append(args, flag)
		}
		fails(t, 1, want, args...)
	}
}

// named fails the test unless an archive has at least that many event files, and besides them
// only its manifest and lock.
func named(t *testing.T, dir string, least int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for _, e := range entries {
		switch name := e.Name(); {
		case strings.HasSuffix(name, ".ndjson.zst"):
			files++
		case name != "manifest.json" && name != "lock":
			t.Errorf("the archive has %s", name)
		}
	}
	if files < least {
		t.Errorf("the archive has %d files, want %d or more", files, least)
	}
}

// A partition was split on one shard, and one of its children moved to the other shard. The
// archives of both shards are restored into a new cluster, into a cluster with other names, and
// into a single database: every badge is right. Not parallel, as above.
func TestArchiveOfSplitPartitionsIsRestored(t *testing.T) {
	database := stack(pgtest.NewDBs(t, sharded(2)))
	dir := filepath.Join(t.TempDir(), "archive")
	c := newCrowd(t, serve(t, database))
	c.users = c.users[:8*partitions]
	p, member := c.partitionOfA(database)
	_, second, _ := eventlog.Children(p, partitions)
	on := "--database-url=" + database
	posts := 0
	say := func() {
		t.Helper()
		for part := range slices.Chunk(c.users, 20) {
			publish(t, c.p, delivered("c", int(c.delivered[part[0]])+1, `"`+strings.Join(part, `","`)+`"`))
			for _, u := range part {
				c.delivered[u]++
			}
		}
		posts++
		publish(t, c.p, posted("hall", posts, "bot"))
	}
	publish(t, c.p, joined("hall", fmt.Sprintf("%q,%q", member, c.users[0])))
	rooms := func() {
		for _, u := range []string{member, c.users[0]} {
			c.delivered[u] += int64(posts)
			c.changes[u] = 1
		}
	}
	say()
	archived := func() {
		t.Helper()
		for user, want := range c.delivered {
			await(t, user+" to have its messages", func() bool {
				return c.badge(user).Total >= want
			})
		}
		cutLog(t, database)
		must(t, archiving(database, dir)...)
	}
	archived()
	must(t, "partition", "split", fmt.Sprint(p), "--quiet", on)
	must(t, "partition", "move", fmt.Sprint(second), "--to=b", "--quiet", on)
	say()
	rooms()
	c.check()
	archived()
	prints(t, "no difference", "verify", "--quiet", "--archive="+dir, on)
	fails(t, 1, "no other shard than b has old rows", "partition", "move", fmt.Sprint(p), "--to=b", "--quiet", on)
	c.p.kill()
	for _, tc := range []struct {
		name string
		into []string // the flags that name the databases
		from []string
	}{
		{"a new cluster", shardFlags(pgtest.NewDBs(t, sharded(2))), []string{"--from=" + dir}},
		{"a single database", []string{"--database-url=" + oneDatabase(t)}, []string{"--from=" + dir + "/a", "--from=" + dir + "/b"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if out := must(t, append(append([]string{"restore", "--quiet"}, tc.from...), tc.into...)...); !strings.Contains(out, fmt.Sprintf(" of %d partitions restored from ", partitions+1)) || strings.Contains(out, "have no events of") {
				t.Errorf("restoring prints %s", out)
			}
			c.t, c.p = t, launch(t, nil, append([]string{"serve", "--listen=127.0.0.1:0"}, tc.into...)...)
			c.check()
			prints(t, "no difference", append([]string{"verify", "--quiet"}, tc.into...)...)
			fails(t, 1, "has events already", append(append([]string{"restore", "--quiet"}, tc.from...), tc.into...)...)
		})
	}
	other := "--database-url=" + oneDatabase(t)
	fails(t, 1, "if it is the folder of a cluster whose shards have other names, or this is a single database, give --from for the archive of each of its shards, such as --from DIR/NAME", "restore", "--quiet", "--from="+dir, other)
	// The command is given only one of the two archives.
	prints(t, "the archives have no events of ", "restore", "--quiet", "--from="+dir+"/b", "--from="+dir+"/b", other)
}
