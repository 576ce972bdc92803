package cli

import (
	"io"
	"testing"

	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/partition/rebuild"
	"github.com/badged/badged/internal/partition/replay"
)

func TestRebuildPrints(t *testing.T) {
	different := rebuild.Result{
		Partition: 3, Users: 2000, Conversations: 4000, DifferentUsers: 2,
		First: []replay.Difference{{Partition: 3, UserID: "ann", Field: "total", Table: "5", Log: "4"}},
	}
	one, same := different, rebuild.Result{Partition: 4, Users: 1, Conversations: 1}
	one.DifferentUsers = 1
	for _, tc := range []struct {
		cmd        rebuildCmd
		partitions []rebuild.Result
		want       string
	}{
		{rebuildCmd{}, []rebuild.Result{same}, "1 user and 1 conversation of 1 partition rebuilt from the log: no difference, nothing was changed\n"},
		{
			rebuildCmd{},
			[]rebuild.Result{different},
			`partition 3: 2 of 2,000 users differed from the log; it has new tables and a new epoch
  user "ann": total is 5 in the table, 4 by the log
2,000 users and 4,000 conversations of 1 partition rebuilt from the log: 2 users corrected, 1 partition with a new epoch
`,
		},
		{
			rebuildCmd{JSON: true},
			[]rebuild.Result{one, same},
			`{"partition":3,"users":2000,"conversations":4000,"different_users":1,"first":[{"partition":3,"user_id":"ann","field":"total","table":"5","log":"4"}]}
{"partition":4,"users":1,"conversations":1,"different_users":0}
{"partitions":2,"users":2001,"conversations":4001,"different_users":1,"new_epochs":1}
`,
		},
	} {
		var parts []func(io.Writer) error
		var sum operations.Rebuilt
		for _, p := range tc.partitions {
			sum.Add(p)
			if p.DifferentUsers > 0 || tc.cmd.JSON {
				parts = append(parts, func(w io.Writer) error { return tc.cmd.print(w, p, "") })
			}
		}
		expectPrinted(t, tc.want, append(parts, func(w io.Writer) error { return tc.cmd.finish(w, sum) })...)
	}
}

func TestRebuildUsage(t *testing.T) {
	const db = " --database-url=postgres://localhost/chat"
	expectUsage(t, map[string]string{
		"rebuild":                               "--database-url (BADGED_DATABASE_URL) is required",
		"rebuild --user=ann --partition=0" + db: "--user cannot be combined with --partition or --anew",
		"rebuild --user=ann --anew" + db:        "--user cannot be combined with --partition or --anew",
		"rebuild --partition=1 --anew" + db:     "--anew cannot be combined with --partition",
		"rebuild --user=\x01" + db:              "--user must not hold control characters",
		"rebuild --max-load=0" + db:             "--max-load must be from 0.01 to 1",
		"rebuild --max-load=1.5" + db:           "--max-load must be from 0.01 to 1",
		"rebuild --max-load=NaN" + db:           "--max-load must be from 0.01 to 1",
		"rebuild ann" + db:                      "unexpected argument ann",
	})
}
