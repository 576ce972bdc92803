package renumber_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/partition/renumber"
	"github.com/badged/badged/internal/pg/pgsession"
)

// ranges returns those of a partition, and how many events each has.
func ranges(t testing.TB, d *projectortest.Database, partition int) []string {
	t.Helper()
	var all []string
	for _, number := range d.Lines(t, `SELECT number::text FROM badged.log_ranges WHERE partition_id = $1 ORDER BY number`, partition) {
		table := fmt.Sprintf("badged.%s_r%s", events.Topic(partition), number)
		all = append(all, d.Lines(t, `SELECT 'r`+number+`: ' || (SELECT count(*) FROM `+table+`) FROM `+table+` UNION SELECT 'r`+number+`: 0' ORDER BY 1 DESC LIMIT 1`)...)
	}
	return all
}

// The ranges of the original log have transaction ids far above the ids of the new cluster. After
// the repair the log is one range, which gets an end like any other range.
func TestRepairLogSettlesRanges(t *testing.T) {
	from, to := pgtest.Borrow(t), pgtest.Borrow(t)
	original := newOriginal(t, from, to)
	for range 2 {
		original.EndRange(t, 0)
		original.Append(t, foldtest.Deliver("ranges", 1, foldtest.User(0, 0)))
	}
	before := keys(t, original, 0)
	url := restores()["custom"](t, from, original.URL, to)
	if _, _, err := repaired(t, url, nil); err != nil {
		t.Fatal(err)
	}
	d := projectortest.Open(t, url)
	if got, want := ranges(t, d, 0), []string{fmt.Sprint("r1: ", len(before))}; !slices.Equal(got, want) {
		t.Errorf("the ranges are %v, want %v", got, want)
	}
	d.AddRange(t, 0)
	d.Append(t, foldtest.Deliver("ranges", 2, foldtest.User(0, 0)))
	d.PassRange(t, 0)
	d.Append(t, foldtest.Deliver("ranges", 3, foldtest.User(0, 0)))
	if got, want := ranges(t, d, 0), []string{fmt.Sprint("r1: ", len(before)+1), "r2: 1"}; !slices.Equal(got, want) {
		t.Errorf("then the ranges are %v, want %v", got, want)
	}
	d.Fold(t)
	replaytest.Verify(t, d.Pool, d.Log)
}

// A repair waits for a long reader of the log, and delays no publisher.
func TestRepairLogHoldsUpNoPublisher(t *testing.T) {
	from, to := pgtest.Borrow(t), pgtest.Borrow(t)
	original := newOriginal(t, from, to)
	url := restores()["custom"](t, from, original.URL, to)
	reading := connect(t, url)
	mustExec(t, reading, `BEGIN; SELECT FROM badged.events_p00`)
	publishing := connect(t, url)
	mustExec(t, publishing, `SET lock_timeout = '10s'`) // rather than wait for ever
	told := 0
	if _, _, err := repaired(t, url, func(cfg *renumber.Config) {
		cfg.Blocked = func(partition int, holder pgsession.Holder) {
			if told++; partition != 0 || holder.PID != int(reading.PgConn().PID()) {
				t.Errorf("it waits for %s, with partition %d", holder, partition)
			}
			mustExec(t, publishing, `INSERT INTO badged.events_p00 (transaction_id, uuid, payload) VALUES (pg_current_xact_id(), gen_random_uuid(), '{}')`)
			mustExec(t, reading, `COMMIT`)
		}
	}); err != nil || told != 1 {
		t.Errorf("told %d times, it ends with %v", told, err)
	}
}

// connect returns a connection to url.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func mustExec(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}
