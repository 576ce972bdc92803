package cli

import (
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
	for args, want := range map[string]string{
		"0":        "badged: the partition was split already: partition 0 is split into 2 and 4\n",
		"99":       "badged: there is no such partition as 99\n",
		"2 --undo": "badged: no split was begun of partition 2\n",
	} {
		if r := badged(t, append(append([]string{"partition", "split"}, strings.Fields(args)...), "--quiet", url)...); r.code != exitFailed || r.err != want {
			t.Errorf("split %s: exit code %d, stderr %q, want %q", args, r.code, r.err, want)
		}
	}
	if r := badged(t, "partition", "split", "--undo", url); r.code == exitDone || !strings.Contains(r.err, "--undo needs the number of one partition") {
		t.Errorf("undoing all: exit code %d, stderr %q", r.code, r.err)
	}
	if out := mustDo(t, "audit", "list", url); strings.Count(out, "partition.split") < 2 {
		t.Errorf("the audit trail is\n%s", out)
	}
}
