package renumber_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/events/topics"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/partition"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/archiving"
	"github.com/badged/badged/internal/partition/renumber"
	"github.com/badged/badged/internal/pg/pgsession"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// ahead is how far the counter of the original's cluster is ahead.
const ahead = 5000

// reach makes a cluster give out transaction ids up to one, unless it has.
func reach(t testing.TB, url string, id int64) {
	t.Helper()
	advance(t, url, max(0, int(id-currentID(t, url))))
}

// advance makes a cluster give out transaction ids.
func advance(t testing.TB, url string, n int) {
	t.Helper()
	exec(t, url, fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..%d LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$`, n))
}

func exec(t testing.TB, url string, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// audited is the consumer group beside the projector, in partition 0.
const audited = "audit"

// audit reads the next n events of partition 0 with a stock watermill subscriber. It returns the
// events after the last acknowledgement is stored.
func audit(t testing.TB, d *projectortest.Database, n int) []string {
	t.Helper()
	db := stdlib.OpenDBFromPool(d.Pool)
	defer db.Close()
	subscriber, err := watermillsql.NewSubscriber(db, watermillsql.SubscriberConfig{
		ConsumerGroup: audited, PollInterval: 5 * time.Millisecond, ResendInterval: time.Millisecond,
		SchemaAdapter: topics.NewSchema(1), OffsetsAdapter: topics.NewOffsets(),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer subscriber.Close()
	messages, err := subscriber.Subscribe(t.Context(), events.Topic(0))
	if err != nil {
		t.Fatal(err)
	}
	before := auditedUpTo(t, d)
	var all []string
	for range n {
		msg := projectortest.Await(t, messages, "the next event of the audit")
		all = append(all, string(msg.Payload))
		msg.Ack()
	}
	for auditedUpTo(t, d) < before+n {
	}
	return all
}

// auditedUpTo returns the number of events of partition 0 up to the position of the audit.
func auditedUpTo(t testing.TB, d *projectortest.Database) int {
	t.Helper()
	p, err := events.PositionOf(t.Context(), d.Pool, 0, audited)
	if err != nil {
		t.Fatal(err)
	}
	return slices.IndexFunc(append(d.Records(t, 0), events.Record{Place: events.Place{Position: events.Position{TransactionID: math.MaxInt64}}}),
		func(r events.Record) bool { return p.Before(r.Position) })
}

// oldFolded is the part of a history of partitions 0 and 1 that is folded before
// the dump.
func oldFolded() []events.Event {
	return []events.Event{
		foldtest.Deliver("c", 1, foldtest.User(0, 0), foldtest.User(1, 0)), foldtest.Deliver("c", 2, foldtest.User(0, 0)),
		foldtest.Event("level", events.ConversationLevelSet, "c", foldtest.Level(events.LevelMentions), foldtest.User(1, 0)),
		foldtest.Event("mark", events.ConversationMarkedUnread, "c", nil, foldtest.User(1, 0)),
	}
}

// oldUnfolded is the rest of it.
func oldUnfolded() []events.Event {
	return []events.Event{
		foldtest.Deliver("c", 3, foldtest.User(0, 0), foldtest.User(1, 0)),
		foldtest.Event("level 2", events.ConversationLevelSet, "c", foldtest.Level(events.LevelNone), foldtest.User(1, 0), foldtest.User(0, 0)),
		foldtest.Deliver("d", 1, foldtest.User(0, 1)), foldtest.Deliver("d", 2, foldtest.User(0, 1), foldtest.User(1, 0)),
	}
}

// recent comes after the restore.
func recent() []events.Event {
	return []events.Event{
		foldtest.Event("level 3", events.ConversationLevelSet, "c", foldtest.Level(events.LevelAll), foldtest.User(1, 0), foldtest.User(0, 0)),
		foldtest.Event("read", events.ConversationRead, "c", foldtest.UpTo(2), foldtest.User(0, 0)),
		foldtest.Deliver("d", 3, foldtest.User(0, 1)),
	}
}

// newOriginal returns a database of the cluster `from` with a history that is partly folded and
// partly read by the audit. Some of its transaction ids are below the next id of the cluster `to`,
// and some are far above this id.
func newOriginal(t *testing.T, from, to *pgtest.Server) *projectortest.Database {
	t.Helper()
	d := projectortest.Open(t, from.NewDB(t, projectortest.Migrated()))
	d.AppendEach(t, oldFolded()[:2]...)
	d.Fold(t)
	d.BeginGeneration(t, 0) // so a generation begins in the middle
	reach(t, to.URL(), currentID(t, d.URL))
	reach(t, d.URL, currentID(t, to.URL())+ahead)
	d.AppendEach(t, oldFolded()[2:]...)
	d.InsertPayload(t, `{"garbage": true}`)
	d.Fold(t)
	audit(t, d, 1)
	d.AppendEach(t, oldUnfolded()...)
	return d
}

// publishEach publishes events in SQL, which works even before the log is repaired. Each event has
// a transaction of its own; the last event is published within a savepoint.
func publishEach(t testing.TB, url string, evs []events.Event) {
	t.Helper()
	for i, e := range evs {
		e.Time = time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
		b, err := e.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		sql := "SELECT badged.publish('" + string(b) + "')"
		if i == len(evs)-1 {
			sql = "BEGIN; SELECT pg_current_xact_id(); SAVEPOINT s; " + sql + "; RELEASE s; COMMIT"
		}
		exec(t, url, sql)
	}
}

// keys returns the messages of a partition in order.
func keys(t testing.TB, d *projectortest.Database, partition int) []string {
	t.Helper()
	return d.Lines(t, fmt.Sprintf(`SELECT uuid::text FROM badged.%s AS log ORDER BY log.transaction_id, log."offset"`, events.Topic(partition)))
}

// generationSizes returns the number of events of partition 0 up to the beginning of each
// generation of keys.
func generationSizes(t testing.TB, d *projectortest.Database) []string {
	t.Helper()
	return d.Lines(t, `SELECT format('%s begins behind %s', generation,
    (SELECT count(*) FROM badged.events_p00 AS e WHERE (e.transaction_id, e."offset") <= (g.transaction_id, g."offset")))
FROM badged.dedup_generations AS g WHERE partition_id = 0 ORDER BY generation`)
}

func repaired(t testing.TB, url string, change func(*renumber.Config)) (reports []renumber.Result, needed bool, err error) {
	t.Helper()
	cfg := renumber.Config{Conn: connConfig(t, url), Report: func(p renumber.Result) { reports = append(reports, p) }}
	if change != nil {
		change(&cfg)
	}
	needed, err = renumber.Run(t.Context(), cfg)
	return reports, needed, err
}

func connConfig(t testing.TB, url string) *pgx.ConnConfig {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// wantRestored checks that opening the log fails and names the command to run.
func wantRestored(t testing.TB, url string) {
	t.Helper()
	_, err := events.Open(t.Context(), projectortest.NewPool(t, url, nil))
	if !errors.Is(err, events.ErrRestored) || !strings.Contains(err.Error(), "`badged repair-log --database-url …`") {
		t.Errorf("the log opens with %v, want ErrRestored", err)
	}
}

// epochs returns the epoch of each partition.
func epochs(t testing.TB, url string) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	rows, _ := conn.Query(t.Context(), `SELECT epoch FROM badged.partitions ORDER BY partition_id`)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// restores are the ways in which a database comes to another cluster.
func restores() map[string]func(t *testing.T, from *pgtest.Server, fromURL string, to *pgtest.Server) string {
	psql := func(t *testing.T, to *pgtest.Server, template pgtest.Template, sql []byte) string {
		url := to.NewDB(t, template)
		to.Run(t, sql, "psql", "--quiet", "--set=ON_ERROR_STOP=1", "--file=-", url)
		return url
	}
	return map[string]func(t *testing.T, from *pgtest.Server, fromURL string, to *pgtest.Server) string{
		"plain": func(t *testing.T, from *pgtest.Server, fromURL string, to *pgtest.Server) string {
			return psql(t, to, pgtest.Template{}, from.Run(t, nil, "pg_dump", fromURL))
		},
		"inserts": func(t *testing.T, from *pgtest.Server, fromURL string, to *pgtest.Server) string {
			return psql(t, to, pgtest.Template{}, from.Run(t, nil, "pg_dump", "--inserts", fromURL))
		},
		"custom": func(t *testing.T, from *pgtest.Server, fromURL string, to *pgtest.Server) string {
			url := to.NewDB(t, pgtest.Template{})
			to.Run(t, from.Run(t, nil, "pg_dump", "--format=custom", fromURL), "pg_restore", "--dbname="+url)
			return url
		},
		"sequences not set": func(t *testing.T, from *pgtest.Server, fromURL string, to *pgtest.Server) string {
			sql := regexp.MustCompile(`(?m)^SELECT pg_catalog\.setval\(.*$`).ReplaceAll(from.Run(t, nil, "pg_dump", fromURL), nil)
			return psql(t, to, pgtest.Template{}, sql)
		},
	}
}

// A log that was restored into another cluster is refused until it is repaired. Then it has all
// events in their order, followed by the events appended since, and each consumer continues at
// its position.
func TestRepairLog(t *testing.T) {
	for name, restore := range restores() {
		for _, passed := range []bool{false, true} {
			if passed && name != "plain" {
				continue // as for plain
			}
			t.Run(fmt.Sprintf("%s, counter passed %v", name, passed), func(t *testing.T) {
				from, to := pgtest.Borrow(t), pgtest.Borrow(t)
				original := newOriginal(t, from, to)
				url := restore(t, from, original.URL, to)
				wantRestored(t, url)
				if passed { // as if no server had been started for long
					advance(t, url, 2*ahead)
				}
				publishEach(t, url, recent())
				wantRestored(t, url)
				before := epochs(t, url)

				plan, needed, err := repaired(t, url, func(c *renumber.Config) { c.DryRun = true })
				if err != nil || !needed || len(plan) == 0 {
					t.Fatalf("a dry run finds %v, %v, %v", plan, needed, err)
				}
				if diff := cmp.Diff(before, epochs(t, url)); diff != "" {
					t.Errorf("a dry run changed epochs:\n%s", diff)
				}
				reports, needed, err := repaired(t, url, nil)
				if err != nil || !needed {
					t.Fatalf("repairing: %v, %v", needed, err)
				}
				if diff := cmp.Diff(plan, reports); diff != "" {
					t.Errorf("what was done is not what was said (-said +done):\n%s", diff)
				}
				if reports[0] != (renumber.Result{Partition: 0, Copied: 7, Appended: 3}) {
					t.Errorf("partition 0: %+v", reports[0])
				}
				for i, epoch := range epochs(t, url) {
					if epoch == before[i] {
						t.Errorf("partition %d is still in epoch %s", i, epoch)
					}
				}

				d := projectortest.Open(t, url)
				original.AppendEach(t, recent()...) // what would have been
				for p := range foldtest.Partitions {
					if diff := cmp.Diff(keys(t, original, p), keys(t, d, p)); diff != "" {
						t.Errorf("order in partition %d (-want +got):\n%s", p, diff)
					}
				}
				if n := len(d.Records(t, 0)); n != 10 {
					t.Errorf("%d events of partition 0 can be read, want 10", n)
				}
				if diff := cmp.Diff(generationSizes(t, original), generationSizes(t, d)); diff != "" {
					t.Errorf("generations of keys (-want +got):\n%s", diff)
				}
				wantDeadLetterInTheLog(t, d)
				d.Fold(t)
				original.Fold(t)
				if diff := cmp.Diff(original.Dump(t), d.Dump(t)); diff != "" {
					t.Errorf("badges (-original +repaired):\n%s", diff)
				}
				if got, want := audit(t, d, 9), payloads(d.Records(t, 0)[1:]); !slices.Equal(got, want) {
					t.Errorf("the audit goes on with %q, want %q", got, want)
				}
				wantSequencesAhead(t, d)
				d.StopFolding()
				if reports, needed, err := repaired(t, url, nil); err != nil || needed || len(reports) > 0 {
					t.Errorf("a second repair: %v, %v, %v; want nothing", reports, needed, err)
				}
			})
		}
	}
}

func payloads(records []events.Record) []string {
	var all []string
	for _, r := range records {
		all = append(all, string(r.Payload))
	}
	return all
}

// wantDeadLetterInTheLog checks that the dead letter names its event.
func wantDeadLetterInTheLog(t testing.TB, d *projectortest.Database) {
	t.Helper()
	got := d.Lines(t, `SELECT convert_from(e.payload, 'UTF8') FROM badged.dead_letters AS l
JOIN badged.events_p00 AS e ON e.transaction_id = l.transaction_id AND e."offset" = l."offset" AND e.uuid = l.uuid`)
	if !slices.Equal(got, []string{`{"garbage": true}`}) {
		t.Errorf("dead letters name %q", got)
	}
}

// wantSequencesAhead checks that what is added next has a number of its own.
func wantSequencesAhead(t testing.TB, d *projectortest.Database) {
	t.Helper()
	for table, column := range map[string]string{"dead_letters": "id", "events_p00": `"offset"`} {
		last := d.Lines(t, fmt.Sprintf(`SELECT 'behind' FROM badged.%[1]s
HAVING max(%[2]s) > (SELECT last_value FROM badged.%[1]s_%[3]s_seq)`, table, column, strings.Trim(column, `"`)))
		if len(last) > 0 {
			t.Errorf("the sequence of %s is behind", table)
		}
	}
}

// A repair that was interrupted after some partitions continues with the rest, and the log cannot
// be opened in between.
func TestRepairLogGoesOnWhereItWasInterrupted(t *testing.T) {
	from, to := pgtest.Borrow(t), pgtest.Borrow(t)
	original := newOriginal(t, from, to)
	url := restores()["custom"](t, from, original.URL, to)
	publishEach(t, url, recent())
	ctx, cancel := context.WithCancel(t.Context())
	_, err := renumber.Run(ctx, renumber.Config{Conn: connConfig(t, url), Report: func(renumber.Result) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted after a partition: %v", err)
	}
	advance(t, url, 2*ahead) // so that no id gives it away
	wantRestored(t, url)
	reports, _, err := repaired(t, url, nil)
	if err != nil || len(reports) != 1 || reports[0].Partition != 1 {
		t.Fatalf("going on: %v, %v; want partition 1", reports, err)
	}
	d := projectortest.Open(t, url)
	original.AppendEach(t, recent()...)
	d.Fold(t)
	original.Fold(t)
	if diff := cmp.Diff(original.Dump(t), d.Dump(t)); diff != "" {
		t.Errorf("badges (-original +repaired):\n%s", diff)
	}
}

// Rows copied into a database with a log of its own are refused and not changed: they do not show
// what is missing, such as ranges of the log.
func TestRepairLogOfCopiedRows(t *testing.T) {
	from, to := pgtest.Borrow(t), pgtest.Borrow(t)
	original := newOriginal(t, from, to)
	url := to.NewDB(t, projectortest.Migrated())
	rows := from.Run(t, nil, "pg_dump", "--data-only", "--table=badged.events_p00*", "--load-via-partition-root", original.URL)
	to.Run(t, append([]byte("TRUNCATE badged.events_p00_offsets;\n"), rows...), "psql", "--quiet", "--set=ON_ERROR_STOP=1", "--file=-", url)
	wantRestored(t, url)
	for _, dry := range []bool{true, false} {
		_, _, err := repaired(t, url, func(c *renumber.Config) { c.DryRun = dry })
		if !errors.Is(err, renumber.ErrRows) {
			t.Errorf("repairing copied rows, dry run %t: %v, want ErrRows", dry, err)
		}
	}
	wantRestored(t, url)
}

// A repaired log can be dumped and restored again.
func TestRepairLogTwice(t *testing.T) {
	from, second, third := pgtest.Borrow(t), pgtest.Borrow(t), pgtest.Borrow(t)
	original := newOriginal(t, from, second)
	restore := restores()["plain"]
	url := restore(t, from, original.URL, second)
	publishEach(t, url, recent()[:2])
	if _, _, err := repaired(t, url, nil); err != nil {
		t.Fatal(err)
	}
	advance(t, url, ahead)
	publishEach(t, url, recent()[2:])
	url = restore(t, second, url, third)
	wantRestored(t, url)
	if _, _, err := repaired(t, url, nil); err != nil {
		t.Fatal(err)
	}
	d := projectortest.Open(t, url)
	original.AppendEach(t, recent()...)
	for p := range foldtest.Partitions {
		if diff := cmp.Diff(keys(t, original, p), keys(t, d, p)); diff != "" {
			t.Errorf("order in partition %d (-want +got):\n%s", p, diff)
		}
	}
	d.Fold(t)
	original.Fold(t)
	if diff := cmp.Diff(original.Dump(t), d.Dump(t)); diff != "" {
		t.Errorf("badges (-original +repaired):\n%s", diff)
	}
}

// A log that is archived and renumbered twice still matches its archive: renumbered events come
// after archived ones.
func TestArchiveBetweenTwoRepairs(t *testing.T) {
	from, second, third, dir := pgtest.Borrow(t), pgtest.Borrow(t), pgtest.Borrow(t), t.TempDir()
	original := newOriginal(t, from, second)
	ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
	archived := func(d *projectortest.Database) (files int) {
		t.Helper()
		d.Fold(t)
		d.Exec(t, `DELETE FROM badged.events_p00_offsets WHERE consumer_group <> 'projector'`)
		d.EndRange(t, 0)
		if err := archiving.Run(t.Context(), archiving.Config{
			Pool: d.Pool, Log: d.Log, Store: archive.Folder(dir), Before: time.Now().Add(time.Hour),
			Archived: func(r archiving.Result) { files += r.Files },
		}); err != nil {
			t.Fatal(err)
		}
		return files
	}
	restore := restores()["custom"]
	archived(original)
	original.AppendEach(t, recent()[:1]...)
	url := restore(t, from, original.URL, second)
	if _, _, err := repaired(t, url, nil); err != nil {
		t.Fatal(err)
	}
	d := projectortest.Open(t, url)
	d.Fold(t)
	replaytest.VerifyArchive(t, d.Pool, d.Log, dir, ann, bob)
	d.BeginGeneration(t, 0)
	takeOver(t, d, dir)
	if files := archived(d); files != 1 {
		t.Errorf("%d files were archived, want 1", files)
	}
	d.StopFolding()
	advance(t, url, ahead)
	d.AppendEach(t, recent()[1:]...)
	url = restore(t, second, url, third)
	if _, _, err := repaired(t, url, nil); err != nil {
		t.Fatal(err)
	}
	d = projectortest.Open(t, url)
	d.Fold(t)
	original.AppendEach(t, recent()[1:]...)
	original.Fold(t)
	if got, want := d.Badge(t, ann), original.Badge(t, ann); got.Total != want.Total || got.Version != want.Version {
		t.Errorf("the badge is %+v, want %+v", got, want)
	}
	replaytest.VerifyArchive(t, d.Pool, d.Log, dir, ann, bob)
}

// takeOver makes a restored database the one that the archive in dir belongs to.
func takeOver(t *testing.T, d *projectortest.Database, dir string) {
	t.Helper()
	a, err := archive.Continue(t.Context(), archive.Folder(dir))
	if err == nil {
		err = errors.Join(archiving.TakeOver(t.Context(), d.Pool, d.Log, a), a.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A dump that is restored into its own cluster is a copy too.
func TestRepairLogOfADumpInItsOwnCluster(t *testing.T) {
	server := pgtest.Borrow(t)
	original := newOriginal(t, server, server)
	url := restores()["custom"](t, server, original.URL, server)
	wantRestored(t, url)
	publishEach(t, url, recent())
	before := epochs(t, url)
	reports, needed, err := repaired(t, url, nil)
	if err != nil || !needed || len(reports) != 2 || reports[0] != (renumber.Result{Partition: 0, Copied: 7, Appended: 3}) {
		t.Fatalf("repairing: %v, %v, %v", reports, needed, err)
	}
	if before[0] == epochs(t, url)[0] {
		t.Error("the epoch is the old one")
	}
	d := projectortest.Open(t, url)
	original.AppendEach(t, recent()...)
	d.Fold(t)
	original.Fold(t)
	if diff := cmp.Diff(original.Dump(t), d.Dump(t)); diff != "" {
		t.Errorf("badges (-original +repaired):\n%s", diff)
	}
}

func TestRepairLogOfALogAtHome(t *testing.T) {
	d := projectortest.New(t)
	d.AppendEach(t, oldFolded()...)
	publishEach(t, d.URL, recent())
	before := epochs(t, d.URL)
	if reports, needed, err := repaired(t, d.URL, nil); err != nil || needed || len(reports) > 0 {
		t.Errorf("repairing: %v, %v, %v; want nothing", reports, needed, err)
	}
	if diff := cmp.Diff(before, epochs(t, d.URL)); diff != "" {
		t.Errorf("epochs changed:\n%s", diff)
	}
}

// Run fails while a projector runs, which would fold rows while they move.
func TestRepairLogRefusesWhileAProjectorRuns(t *testing.T) {
	d := projectortest.New(t)
	d.Append(t, foldtest.Deliver("c", 1, foldtest.User(3, 0)))
	d.Fold(t)
	_, _, err := repaired(t, d.URL, nil)
	var owned *renumber.PartitionOwnedError
	if !errors.As(err, &owned) || owned.Application != pgsession.ApplicationName("projector") || owned.PID == 0 {
		t.Errorf("repairing while a projector runs: %v", err)
	}
	d.StopFolding()
	if _, _, err := repaired(t, d.URL, nil); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// Every column that holds a transaction id of the log is renumbered.
func TestRepairLogKnowsEveryPlaceInTheLog(t *testing.T) {
	d := projectortest.New(t)
	want := []string{
		// Which are settled anew.
		"badged.log_ranges.starts", "badged.log_ranges.ends", "badged.log_ranges.bound", "badged.log_ranges.made_id",
	}
	for p := range foldtest.Partitions {
		want = append(want, "badged."+events.Topic(p)+"_r1.transaction_id")
		want = append(want, "badged."+events.Topic(p)+".transaction_id", "badged."+events.Topic(p)+"_offsets.last_processed_transaction_id")
	}
	for _, table := range partition.WithPlaces() {
		want = append(want, "badged."+table.Kind+".transaction_id")
	}
	slices.Sort(want)
	got := d.Lines(t, `SELECT concat_ws('.', table_schema, table_name, column_name)
FROM information_schema.columns WHERE table_schema = 'badged' AND udt_name = 'xid8'`)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("columns that hold places in the log (-known +there): add what is new to partition.Tables\n%s", diff)
	}
}

// A copy gets events and is copied again before it is repaired: these events come after the
// copied ones, although their ids are lower.
func TestRepairLogOfACopyOfACopy(t *testing.T) {
	from, second, third := pgtest.Borrow(t), pgtest.Borrow(t), pgtest.Borrow(t)
	original := newOriginal(t, from, second)
	restore := restores()["custom"]
	url := restore(t, from, original.URL, second)
	publishEach(t, url, recent())
	url = restore(t, second, url, third)
	if _, _, err := repaired(t, url, nil); err != nil {
		t.Fatal(err)
	}
	d := projectortest.Open(t, url)
	original.AppendEach(t, recent()...)
	for p := range foldtest.Partitions {
		if diff := cmp.Diff(keys(t, original, p), keys(t, d, p)); diff != "" {
			t.Errorf("order in partition %d (-want +got):\n%s", p, diff)
		}
	}
}
