package projector

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/log/eventbatch"
)

// extend calls extend_log for a partition until there is nothing more to do, with
// ranges that are few ids wide, and returns how often that was.
func (d *database) extend(t testing.TB, partition int) (calls int) {
	t.Helper()
	for more := true; more; calls++ {
		if err := d.pool.QueryRow(t.Context(), extendLogSQL, partition, time.Duration(0), 4).Scan(&more); err != nil {
			t.Fatal(err)
		}
	}
	return calls
}

// ranges returns those of a partition, and how many events each has.
func (d *database) ranges(t testing.TB, partition int) []string {
	t.Helper()
	var all []string
	for _, number := range d.lines(t, `SELECT number::text FROM badged.log_ranges WHERE partition_id = $1 ORDER BY number`, partition) {
		table := fmt.Sprintf("badged.%s_r%s", events.Topic(partition), number)
		all = append(all, d.lines(t, `SELECT 'r`+number+`: ' || (SELECT count(*) FROM `+table+`) FROM `+table+` UNION SELECT 'r`+number+`: 0' ORDER BY 1 DESC LIMIT 1`)...)
	}
	return all
}

// pass uses up transaction ids until the next event goes into the last range of a
// partition, and no open transaction, such as autovacuum's, has an id below it.
func (d *database) pass(t testing.TB, partition int) {
	t.Helper()
	for {
		passed := d.lines(t, `SELECT (pg_current_xact_id() >= starts AND pg_snapshot_xmin(pg_current_snapshot()) >= starts)::text
FROM badged.log_ranges WHERE partition_id = $1 AND ends IS NULL`, partition)
		if passed[0] == "true" {
			return
		}
	}
}

// The log continues from range to range without a trace for its readers, also if
// no projector ran in time to add a range.
func TestLogRanges(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	seq := int64(0)
	deliverSome := func() {
		for range 3 {
			seq++
			d.append(t, foldtest.Deliver("c", seq, ann))
		}
	}
	deliverSome()
	for range 3 {
		if calls := d.extend(t, 0); calls != 1 {
			t.Errorf("it took %d calls", calls)
		}
		d.extend(t, 0) // for which there is nothing to do
		deliverSome()
		d.pass(t, 0)
		deliverSome()
	}
	// Autovacuum uses up ids too, so the number of events in each range varies.
	if got := d.ranges(t, 0); len(got) != 4 || slices.ContainsFunc(got, func(r string) bool { return strings.HasSuffix(r, ": 0") }) {
		t.Errorf("the ranges are %v", got)
	}
	d.fold(t)
	if b := d.badge(t, ann); b.Total != seq || b.Version != seq {
		t.Errorf("of %d messages the badge is %+v", seq, b)
	}
	replaytest.Verify(t, d.pool, d.log)
	// The complete ranges get an index, and lose it if events may go there again.
	indexes := func() []string {
		return d.lines(t, `SELECT indexname FROM pg_indexes WHERE schemaname = 'badged' AND indexname LIKE 'events\_p00\_r%\_names' ORDER BY 1`)
	}
	if err := d.projector.indexRanges(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if got := indexes(); !slices.Equal(got, []string{"events_p00_r1_names", "events_p00_r2_names", "events_p00_r3_names"}) {
		t.Errorf("the indexes are %v", got)
	}
	replaytest.Verify(t, d.pool, d.log, ann)
	d.exec(t, `UPDATE badged.log_ranges SET ends = '999999999' WHERE partition_id = 0 AND number = 3`) // of a copied log
	d.exec(t, `SELECT badged.settle_log_ranges(0)`)
	if got := indexes(); !slices.Equal(got, []string{"events_p00_r1_names", "events_p00_r2_names"}) {
		t.Errorf("of a copied log the indexes are %v", got)
	}
}

// A large last range gets an end while it is read and written. A check proves the
// end first, and is dropped if it would refuse events.
func TestLogRangesOfALongLog(t *testing.T) {
	d := newDatabase(t)
	const add = `INSERT INTO badged.events_p00 (transaction_id, uuid, payload)
SELECT pg_current_xact_id(), gen_random_uuid(), convert_to(string_agg(md5(random()::text), ''), 'UTF8') FROM generate_series(1, 5000) AS n, generate_series(1, 120) AS m GROUP BY n`
	d.exec(t, `ALTER TABLE badged.events_p00 ALTER payload SET STORAGE PLAIN`)
	d.exec(t, add)
	extend := func(want bool) {
		t.Helper()
		var more bool
		if err := d.pool.QueryRow(t.Context(), extendLogSQL, 0, time.Duration(0), 4).Scan(&more); err != nil || more != want {
			t.Fatalf("more to do: %v, %v", more, err)
		}
	}
	extend(true) // adds the check
	d.exec(t, `UPDATE badged.log_ranges SET bound = pg_current_xact_id()::text::bigint::text::xid8 WHERE partition_id = 0`)
	extend(true) // gives it up
	if checks := d.lines(t, `SELECT conname::text FROM pg_constraint WHERE conrelid = 'badged.events_p00_r1'::regclass AND contype = 'c'`); len(checks) > 0 {
		t.Errorf("there still is %v", checks)
	}
	extend(true) // adds another
	d.append(t, foldtest.Deliver("c", 1, foldtest.User(0, 0)))
	extend(true) // has it proved
	extend(false)
	if got := d.ranges(t, 0); !slices.Equal(got, []string{"r1: 5001", "r2: 0"}) {
		t.Errorf("the ranges are %v", got)
	}
	if checks := d.lines(t, `SELECT conname::text FROM pg_constraint WHERE conrelid = 'badged.events_p00_r1'::regclass AND contype = 'c'`); len(checks) > 0 {
		t.Errorf("it leaves %v", checks)
	}
}

// The last range fills up before it gets an end. No statement reads its rows while
// it locks others out, and the check allows as many ids as a span takes.
func TestLogRangesOfALongLastRange(t *testing.T) {
	d := newDatabase(t)
	d.extend(t, 0)
	d.pass(t, 0)
	d.exec(t, `ALTER TABLE badged.events_p00_r2 ALTER payload SET STORAGE PLAIN`)
	d.exec(t, `INSERT INTO badged.events_p00 (transaction_id, uuid, payload)
SELECT pg_current_xact_id(), gen_random_uuid(), convert_to(string_agg(md5(random()::text), ''), 'UTF8') FROM generate_series(1, 5000) AS n, generate_series(1, 120) AS m GROUP BY n`)
	var notices []string
	cfg, err := pgx.ParseConfig(d.url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { notices = append(notices, n.Message) }
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	extend := func(span time.Duration, want bool) {
		t.Helper()
		var more bool
		if err := conn.QueryRow(t.Context(), extendLogSQL, 0, span, 4).Scan(&more); err != nil || more != want {
			t.Fatalf("more to do: %v, %v", more, err)
		}
	}
	ahead := func() bool {
		return d.lines(t, `SELECT (max(bound::text::bigint) > 16 * 1024 * 1024)::text FROM badged.log_ranges`)[0] == "true"
	}
	mustExec(t, conn, `UPDATE badged.log_ranges SET made_at = now(), made_id = '3' WHERE partition_id = 0 AND number = 2`)
	extend(365*24*time.Hour, true)
	if !ahead() {
		t.Error("the check is near")
	}
	mustExec(t, conn, `UPDATE badged.log_ranges SET bound = (bound::text::bigint / 8)::text::xid8 WHERE bound IS NOT NULL`)
	extend(365*24*time.Hour, true) // gives it up, with days to go
	extend(365*24*time.Hour, true)
	extend(0, true)
	mustExec(t, conn, `SET client_min_messages = debug1`)
	extend(0, false)
	if implied := `partition constraint for table "events_p00_r2" is implied by existing constraints`; !slices.Contains(notices, implied) {
		t.Errorf("it reads the table with everybody locked out: %q", notices)
	}
	if got := d.ranges(t, 0); !slices.Equal(got, []string{"r1: 0", "r2: 5000", "r3: 0"}) {
		t.Errorf("the ranges are %v", got)
	}
}

// While a transaction reads the log, the log gets no range. Neither the projector
// nor a publisher waits for the reader.
func TestLogRangesWaitForReaders(t *testing.T) {
	d := newDatabase(t)
	reading := connect(t, d.url)
	mustExec(t, reading, `BEGIN; SELECT FROM badged.events_p00`)
	p := d.projector.partitions[0]
	if err := p.extendLog(t.Context()); err != nil {
		t.Error(err)
	}
	d.append(t, foldtest.Deliver("c", 1, foldtest.User(0, 0)))
	if got := d.ranges(t, 0); !slices.Equal(got, []string{"r1: 1"}) {
		t.Errorf("the ranges are %v", got)
	}
	mustExec(t, reading, `COMMIT`)
	if err := p.extendLog(t.Context()); err != nil {
		t.Error(err)
	}
	if got := d.ranges(t, 0); !slices.Equal(got, []string{"r1: 1", "r2: 0"}) {
		t.Errorf("then the ranges are %v", got)
	}
}

// An event with a transaction id that was not given out yet, which only the owner
// of the schema can write, becomes a dead letter: folding and the ranges go on.
func TestEventWithAnIDToComeIsPutAside(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	d.append(t, foldtest.Deliver("c", 1, ann))
	d.exec(t, `INSERT INTO badged.events_p00 (transaction_id, uuid, payload) VALUES ('99999999999', gen_random_uuid(), '{"ahead": true}')`)
	// A payload that no reader would take is not copied.
	d.exec(t, `INSERT INTO badged.events_p00 (transaction_id, uuid, payload) VALUES ('99999999999', gen_random_uuid(), convert_to(repeat('x', $1), 'UTF8'))`, eventbatch.MaxRow+1)
	d.append(t, foldtest.Deliver("c", 2, ann))
	if err := d.projector.partitions[0].buryUnissued(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.extend(t, 0)
	d.fold(t)
	if n := d.badge(t, ann).Total; n != 2 {
		t.Errorf("the total is %d, want 2", n)
	}
	want := []string{`nothing because it had the transaction id 99999999999, which Postgres had not assigned yet`, `{"ahead": true} because it had the transaction id 99999999999, which Postgres had not assigned yet`}
	if got := d.lines(t, `SELECT coalesce(convert_from(payload, 'UTF8'), 'nothing') || ' because ' || reason FROM badged.dead_letters ORDER BY payload NULLS FIRST`); !slices.Equal(got, want) {
		t.Errorf("dead letters: %q, want %q", got, want)
	}
}
