package tests

import (
	"context"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/snippets"
)

// A transaction has published, was prepared for a commit in two phases, and was never ended. Every
// command that it blocks names it by its identifier and says what to do, and does not wait longer
// than --max-wait.
func TestPreparedTransactionIsNamed(t *testing.T) {
	t.Parallel()
	database := pgtest.Borrow(t).NewDB(t, migrated())
	p := serve(t, database)
	publish(t, p, delivered("lunch", 1, `"ann","bob"`))
	extendLog(t, database, 10_000)
	publisher := pgtest.Connect(t, database)
	_, all := users(64) // of each partition
	t.Cleanup(func() {  // otherwise the database cannot be dropped
		_, _ = publisher.Exec(context.WithoutCancel(t.Context()), `ROLLBACK PREPARED 'order-4711'`)
	})
	for _, statement := range []string{
		`BEGIN`,
		`SELECT badged.publish('` + delivered("order", 1, all) + `')`,
		`PREPARE TRANSACTION 'order-4711'`,
	} {
		pgtest.Exec(t, publisher, statement)
	}
	const named, remedy = `the prepared transaction "order-4711" of database `, `run COMMIT PREPARED 'order-4711' or ROLLBACK PREPARED 'order-4711'`
	names := func(where, said string) {
		t.Helper()
		if !strings.Contains(said, named) || !strings.Contains(said, remedy) {
			t.Errorf("%s says\n%s", where, said)
		}
	}
	await(t, "the metric", func() bool {
		return metric(t, metricsOf(t, p), `badged_log_open_transaction_seconds{kind="prepared"}`) > 10
	})
	lag := must(t, "lag", "--database-url="+database)
	names("lag", lag)
	snippets.ExpectShape(t, snippets.Output(t, "docs/runbooks.md", "badged lag"), regexp.MustCompile(`\bdatabase \w+,`).ReplaceAllString(lag, "database chat,"))
	prints(t, `"prepared": "order-4711"`, "lag", "--json", "--database-url="+database)
	checked, code := checkConnect(t, "--database-url="+database)
	if names("config check", checked); code != 0 {
		t.Errorf("config check exits with %d", code)
	}

	// The partition cannot be split, and the command ends.
	_, said, code := command(t, "partition", "split", "3", "--max-wait=2s", "--database-url="+database)
	if names("partition split", said); code != 1 || !strings.Contains(said, "waited ") || !strings.Contains(said, "as before") {
		t.Errorf("split exits with %d and says\n%s", code, said)
	}
	must(t, "partition", "split", "3", "--undo", "--max-wait=2s", "--database-url="+database)

	// Nothing can be archived.
	useIDs(t, database)
	dir := filepath.Join(t.TempDir(), "archive")
	out, said, code := command(t, archiving(database, dir)...)
	if names("archive", said); code != 1 || out != "" || !strings.Contains(said, "nothing could be archived: ") {
		t.Errorf("archive exits with %d and says\n%s%s", code, out, said)
	}

	// Once the transaction is committed, everything continues, and its events count.
	pgtest.Exec(t, publisher, `COMMIT PREPARED 'order-4711'`)
	connect(t, p.url, "user-7").awaitTotal(1)
	cutLog(t, database)
	prints(t, " archived in ", archiving(database, dir)...)

	// Another prepared transaction locks the range to be dropped, without events in it.
	publish(t, p, delivered("lunch", 2, `"ann"`))
	cutLog(t, database)
	for _, statement := range []string{
		`BEGIN`, `SELECT FROM badged.` + events.Topic(events.PartitionOf("ann", partitions)), `PREPARE TRANSACTION 'order-4711'`,
	} {
		pgtest.Exec(t, publisher, statement)
	}
	_, said, code = command(t, append(archiving(database, dir), "--max-wait=2s")...)
	if names("archive that waits", said); code != 1 || !strings.Contains(said, "waited ") {
		t.Errorf("archive exits with %d and says\n%s", code, said)
	}
	pgtest.Exec(t, publisher, `ROLLBACK PREPARED 'order-4711'`)
	must(t, append(archiving(database, dir), "--before="+time.Now().UTC().Format(time.RFC3339Nano))...)
}
