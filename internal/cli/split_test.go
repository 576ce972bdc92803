package cli

import (
	"regexp"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/pgtest"
)

func TestPartitionSplit(t *testing.T) {
	url := "--database-url=" + pgtest.NewDB(t, migrated())
	if out := mustDo(t, "partition", "split", "0", "--quiet", url); !strings.HasPrefix(out, "partition 0 split into 2 and 4 in ") || !strings.Contains(out, "paused for ") {
		t.Errorf("splitting prints %q", out)
	}
	// Of two partitions 1 is left on the first level.
	if out := mustDo(t, "partition", "split", "--quiet", "--json", url); strings.Count(out, `"partition":`) != 1 || !strings.Contains(out, `"partition": 1,`) {
		t.Errorf("splitting the rest prints %q", out)
	}
	if out := mustDo(t, "partition", "list", url); !regexp.MustCompile(`^PARTITION +SIZE +EVENTS +STATE\n(\d+ +\S+ kB +0 +serving\n){4}$`).MatchString(out) {
		t.Errorf("the list of a single database is\n%s", out)
	}
	if out := mustDo(t, "partition", "list", "--json", url); strings.Contains(out, "shard") || strings.Count(out, `"state": "serving"`) != 4 {
		t.Errorf("the list of a single database as JSON is\n%s", out)
	}
	for args, want := range map[string]string{
		"99":       "badged: there is no partition 99: no split has made it\n",
		"2 --undo": "badged: no split was begun of partition 2\n",
	} {
		if r := badged(t, append(append([]string{"partition", "split"}, strings.Fields(args)...), "--quiet", url)...); r.code != exitFailed || r.err != want {
			t.Errorf("split %s: exit code %d, stderr %q, want %q", args, r.code, r.err, want)
		}
	}
	if r := badged(t, "partition", "split", "1", "3", "1", url); r.code != exitUsage || !strings.Contains(r.err, "partition 1 is named twice") {
		t.Errorf("splitting one twice: exit code %d, stderr %q", r.code, r.err)
	}
	if r := badged(t, "partition", "split", "--undo", url); r.code == exitDone || !strings.Contains(r.err, "--undo needs the number of one partition") {
		t.Errorf("undoing all: exit code %d, stderr %q", r.code, r.err)
	}
	if out := mustDo(t, "audit", "list", url); strings.Count(out, "partition.split") < 2 {
		t.Errorf("the audit trail is\n%s", out)
	}
}

// The old rows of a split that was interrupted are deleted also when one of the two new
// partitions has moved to another shard.
func TestOldRowsOfASplitWhenItsPartitionsHaveMoved(t *testing.T) {
	flags, urls := newShards(t)
	on := func(args ...string) []string { return append(append(args, "--quiet"), flags...) }
	mustDo(t, on("partition", "split", "0")...)
	// As if it had been interrupted.
	if _, err := poolOf(t, urls[0]).Exec(t.Context(), `INSERT INTO badged.moves (partition_id, move_id, role, source, target, revision, state)
VALUES (0, gen_random_uuid(), 'source', 'a', '', 0, 'released')`); err != nil {
		t.Fatal(err)
	}
	mustDo(t, on("partition", "move", "3", "--to=b")...)
	if out := mustDo(t, on("partition", "split", "0")...); out != "partition 0 is split into 3 and 6: the rows that an earlier split left are deleted\n" {
		t.Errorf("splitting again prints %q", out)
	}
}
