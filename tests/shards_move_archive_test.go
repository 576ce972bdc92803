package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/log/eventlog"
)

// Files that were archived before a partition moved are used by its new shard, and files that were
// archived before a split by both children: archiving continues there, the log is replayed from the
// archive, and users are exported and erased. Not parallel: a range is complete only once all older
// transactions have ended.
func TestArchivesFollowMovesAndSplits(t *testing.T) {
	database := stack(pgtest.NewDBs(t, sharded(2)))
	dir := filepath.Join(t.TempDir(), "archive")
	server := serve(t, database)
	c := newCrowd(t, server)
	p, _ := c.partitionOfA(database)
	first, second, _ := eventlog.Children(p, partitions)
	in := map[int]string{} // a user of each partition
	for _, u := range c.users {
		if events.PartitionOf(u, partitions) == p {
			in[events.NewLayout(partitions, []int{first, second}).PartitionOf(u)] = u
		}
	}
	user, mate := in[first], in[second]
	seq := 0
	say := func(n int) {
		t.Helper()
		for range n {
			seq++
			total(t, server, user, publish(t, server, delivered("c", seq, fmt.Sprintf("%q,%q", user, mate))))
			c.delivered[user]++
			c.delivered[mate]++
		}
	}
	cut := func(to string, p int) {
		t.Helper()
		cutLog(t, database)
		out := must(t, append(archiving(database, dir), "--json")...)
		t.Logf("%s", out)
		files, err := filepath.Glob(filepath.Join(dir, to, events.Topic(p)+".*"))
		if err != nil || len(files) == 0 {
			t.Errorf("the archive of %s has the files %v (%v)", to, files, err)
		}
	}
	check := func() {
		t.Helper()
		c.check()
		agrees(t, database, dir)
		for _, u := range []string{user, mate} {
			explained := must(t, "user", "explain", u, "--archive="+dir, "--database-url="+database)
			if !strings.Contains(explained, fmt.Sprintf("c adds %d: %[1]d unread", seq)) || strings.Contains(explained, "Events appended until ") {
				t.Errorf("of %s it explains\n%s", u, explained)
			}
		}
	}
	say(3)
	cut("a", p)
	say(2)
	sql(t, stackOf(database)[0], `CREATE FUNCTION stay() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;
		CREATE TRIGGER stay BEFORE DELETE ON badged.partitions FOR EACH ROW EXECUTE FUNCTION stay()`)
	if _, stderr, _ := command(t, "partition", "move", fmt.Sprint(p), "--to=b", "--quiet", "--database-url="+database); !strings.Contains(stderr, "not now") {
		t.Fatalf("the move was not interrupted:\n%s", stderr)
	}
	if err := os.RemoveAll(filepath.Join(dir, "b")); err != nil { // nothing is archived there
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"verify", "--quiet"},
		{"rebuild", "--quiet"},
		{"user", "export", user},
		{"user", "erase", "stranger"},
	} {
		must(t, append(args, "--archive="+dir, "--database-url="+database)...)
	}
	must(t, archiving(database, dir)...) // b gets a copy of the files that a archived
	sql(t, stackOf(database)[0], `DROP TRIGGER stay ON badged.partitions`)
	must(t, "partition", "move", fmt.Sprint(p), "--to=b", "--quiet", "--database-url="+database)
	say(2)
	check()
	cut("b", p)
	check()
	if left, _ := filepath.Glob(filepath.Join(dir, "a", events.Topic(p)+".*")); len(left) > 0 {
		t.Errorf("the archive of a still has %v", left)
	}
	must(t, "partition", "move", fmt.Sprint(p), "--to=a", "--quiet", "--database-url="+database)
	say(1)
	check()
	must(t, "partition", "split", fmt.Sprint(p), "--quiet", "--database-url="+database)
	say(1)
	check()
	must(t, "partition", "move", fmt.Sprint(first), "--to=b", "--quiet", "--database-url="+database)
	say(1)
	cut("a", second)
	cut("b", first)
	must(t, "partition", "split", fmt.Sprint(first), "--quiet", "--database-url="+database)
	say(1)
	check()
	sql(t, database, spoil, mate)
	prints(t, fmt.Sprintf("user %q was healed", mate), "rebuild", "--user="+mate, "--archive="+dir, "--database-url="+database)
	c.changes[mate] = c.badge(mate).Version - c.delivered[mate]
	if out := must(t, "user", "export", user, "--archive="+dir, "--database-url="+database); strings.Count(out, "message.delivered") < seq {
		t.Errorf("the export has less than %d events:\n%s", seq, out)
	}
	must(t, "user", "erase", user, "--archive="+dir, "--database-url="+database)
	forgets(t, database, dir, fmt.Sprintf("%q", user))
	c.delivered[user] = 0
	c.check()
	must(t, "verify", "--quiet", "--archive="+dir, "--database-url="+database)
}
