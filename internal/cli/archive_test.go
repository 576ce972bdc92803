package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/snippets"
	"github.com/badged/badged/internal/partition/archiving"
)

func TestArchivePrints(t *testing.T) {
	some := archiving.Result{Partition: 3, Files: 2, Events: 12345, Bytes: 1234567, Dropped: 3, Kept: "its range from transaction 700 on is not complete yet"}
	none := archiving.Result{Partition: 4, Kept: "its range from transaction 1 on has an event of 2026-01-31T00:00:00Z"}
	onThePage := archiving.Result{Files: 2, Events: 81204, Dropped: 2, Kept: "its range from transaction 9437184 on has an event of 2026-08-03T11:02:41Z"}
	for _, tc := range []struct {
		cmd        archiveCmd
		partitions []archiving.Result
		want       string
	}{
		{archiveCmd{}, []archiving.Result{none}, "nothing to archive; in the first partition, its range from transaction 1 on has an event of 2026-01-31T00:00:00Z\n"},
		{
			archiveCmd{},
			[]archiving.Result{some, none},
			`partition 3: 12,345 events in 2 files archived, 3 tables dropped from the log; its range from transaction 700 on is not complete yet
12,345 events of 2 partitions archived in 2 files, 1,234,567 bytes
`,
		},
		{
			archiveCmd{},
			[]archiving.Result{onThePage, {Partition: 1, Files: 6, Events: 246516, Bytes: 24100028, Dropped: 6, Kept: onThePage.Kept}, {Partition: 2}, {Partition: 3}},
			strings.Replace(snippets.Output(t, "docs/cli.md", "badged archive --before 2026-08-01T00:00:00Z --to /var/backups/badged/log"), "…", "partition 1: 246,516 events in 6 files archived, 6 tables dropped from the log; "+onThePage.Kept, 1),
		},
		{
			archiveCmd{JSON: true},
			[]archiving.Result{some},
			`{"partition":3,"files":2,"events":12345,"bytes":1234567,"dropped":3,"kept":"its range from transaction 700 on is not complete yet"}
{"partitions":1,"files":2,"events":12345,"bytes":1234567,"dropped":3}
`,
		},
	} {
		var parts []func(io.Writer) error
		var sum archivedSum
		for _, p := range tc.partitions {
			sum.add(p)
			if p.Files > 0 {
				parts = append(parts, func(w io.Writer) error { return tc.cmd.print(w, p) })
			}
		}
		expectPrinted(t, tc.want, append(parts, func(w io.Writer) error { return tc.cmd.finish(w, sum) })...)
	}
}

func TestArchiveUsage(t *testing.T) {
	const db = " --database-url=postgres://localhost/chat"
	expectUsage(t, map[string]string{
		"archive" + db:          "give one of --before TIME, --older-than DURATION, --take-over, --give-up FILE and --reencrypt",
		"archive --to=dir" + db: "give one of --before TIME, --older-than DURATION, --take-over, --give-up FILE and --reencrypt",
		"archive --before=2026-01-31T00:00:00Z --older-than=1h --to=dir" + db: "give one of --before TIME, --older-than DURATION, --take-over, --give-up FILE and --reencrypt",
		"archive --older-than=-1h --to=dir" + db:                              "--older-than must be more than 0s",
		"archive --reencrypt --to=dir" + db:                                   "--reencrypt needs --archive-keys FILE",
		"archive --before=2026-01-31T00:00:00Z" + db:                          "missing flags: --to=DIR",
		"archive --before=2999-01-31T00:00:00Z --to=dir" + db:                 "--before must be in the past",
		"archive --before=yesterday --to=dir" + db:                            "--before",
		"archive --before=2026-01-31T00:00:00Z --to=dir":                      "--database-url (BADGED_DATABASE_URL) is required",
		"archive --before=2026-01-31T00:00:00Z --to=dir x" + db:               "unexpected argument x",
		"restore" + db:       "missing flags: --from=DIR",
		"restore --from=dir": "--database-url (BADGED_DATABASE_URL) is required",
	})
}
