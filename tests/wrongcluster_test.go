package tests

import (
	"bufio"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/snippets"
)

// awaitRow waits until a query returns a row.
func awaitRow(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	await(t, sql, func() bool { return valueIn[bool](t, conn, `SELECT EXISTS (`+sql+`)`) })
}

// A database with unfolded events is dumped and restored into a younger Postgres cluster, where the
// backend continues to publish. Servers refuse to start and name the command to run. The renumbering is
// killed and run again, and in the end every user has every message.
func wrongCluster(t *testing.T) {
	from, to := pgtest.NewServer(t), pgtest.NewServer(t)
	original, restored := from.NewDB(t, migrated()), to.NewDB(t, pgtest.Template{})

	before := pgtest.Connect(t, original)
	pgtest.Exec(t, before, `DO $$ BEGIN FOR i IN 1..5000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$`)
	p := serve(t, original)
	publish(t, p, delivered("team", 1, `"ann","bob"`))
	position := publish(t, p, delivered("team", 2, `"ann","bob"`))
	wantTotal(t, p, "ann", position, 2)
	total(t, p, "bob", position)
	p.mustStop()
	pgtest.Exec(t, before, `SELECT badged.publish($1)`, delivered("team", 3, `"ann","bob"`)) // not folded
	to.Run(t, from.Run(t, nil, "pg_dump", original), "psql", "--quiet", "--set=ON_ERROR_STOP=1", restored)
	after := pgtest.Connect(t, restored)
	pgtest.Exec(t, after, `SELECT badged.publish($1)`, delivered("team", 4, `"ann","bob"`))

	database := "--database-url=" + restored
	for _, args := range [][]string{
		{"serve", "--listen=127.0.0.1:0", "--publisher-keys=a=secret"},
		{"serve", "--listen=127.0.0.1:0", "--roles=projector", "--redis-url=redis://127.0.0.1:1"},
		{"lag"},
		{"user", "show", "ann"},
		{"deadletters", "list"},
		{"migrate", "up"},
	} {
		_, stderr, code := command(t, append(args, database)...)
		if code != 1 || !strings.Contains(stderr, "run `badged repair-log --database-url …`") || strings.Count(stderr, "badged: ") != 1 {
			t.Errorf("%v exits with %d and prints\n%s", args, code, stderr)
		}
		if args[0] == "lag" {
			snippets.ExpectShape(t, snippets.With(t, "docs/backup.md", "badged: open the event log", "").Text, stderr)
		}
	}
	out := must(t, "repair-log", "--dry-run", database)
	if !strings.Contains(out, "would renumber 3 events; 1 appended") || !strings.Contains(out, "nothing was changed") {
		t.Errorf("a dry run prints\n%s", out)
	}
	snippets.ExpectShape(t, snippets.Output(t, "docs/backup.md", "badged repair-log --dry-run"), out)

	killRepair(t, restored)
	fails(t, 1, "repair-log", "lag", database)
	out = must(t, "repair-log", database)
	if strings.Count(out, "renumbered 3 events; 1 appended") != 1 || !strings.HasSuffix(out, "run `badged verify`, then start the servers\n") {
		t.Errorf("the continued renumbering prints\n%s", out)
	}
	snippets.ExpectShape(t, snippets.Output(t, "docs/cli.md", "badged repair-log"), out)
	if out := must(t, "repair-log", database); !strings.HasPrefix(out, "nothing to do") {
		t.Errorf("a third renumbering prints\n%s", out)
	}

	p = serve(t, restored)
	position = publish(t, p, delivered("team", 5, `"ann","bob"`))
	for _, user := range []string{"ann", "bob"} {
		wantTotal(t, p, user, position, 5)
	}
	must(t, "verify", database) // exits with 1 on any difference
}

// killRepair kills repair-log after its first partition, while it renumbers the second.
func killRepair(t *testing.T, database string) {
	t.Helper()
	homes := []int{events.PartitionOf("ann", partitions), events.PartitionOf("bob", partitions)}
	slices.Sort(homes)
	holder, watcher := pgtest.Connect(t, database), pgtest.Connect(t, database)
	pgtest.Exec(t, holder, `BEGIN`)
	pgtest.Exec(t, holder, fmt.Sprintf(`LOCK TABLE badged.%s_offsets IN EXCLUSIVE MODE`, events.Topic(homes[1])))

	cmd := exec.CommandContext(t.Context(), binary, "repair-log", "--database-url="+database)
	cmd.Env = environment()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	if !strings.HasPrefix(line, fmt.Sprintf("partition %d: renumbered 3 events", homes[0])) {
		t.Errorf("repair-log prints %q", line)
	}
	const session = `SELECT FROM pg_stat_activity WHERE application_name = 'badged repair-log'`
	awaitRow(t, watcher, session+` AND wait_event_type = 'Lock'`)
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed

	// The session of the killed command is blocked and has not detected the kill.
	_, stderr, code := command(t, "repair-log", "--database-url="+database)
	if code != 1 || !strings.Contains(stderr, `is owned by "badged repair-log"`) {
		t.Errorf("while the killed one's session lives, repair-log exits with %d and prints\n%s", code, stderr)
	}
	pgtest.Exec(t, holder, `ROLLBACK`)
	awaitRow(t, watcher, `SELECT WHERE NOT EXISTS (`+session+`)`)
}
