package events_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// transaction is what these tests use of a transaction of either kind.
type transaction struct {
	tx               any
	exec             func(query string) error
	commit, rollback func() error
}

// beginners begin a transaction of each kind that Publish accepts, also
// without prepared statements, as poolers that share connections require.
var beginners = []struct {
	name  string
	begin func(t *testing.T, url string) transaction
}{
	{"pgx.Tx", beginPgx(pgx.QueryExecModeCacheStatement)},
	{"pgx.Tx/exec", beginPgx(pgx.QueryExecModeExec)},
	{"pgx.Tx/simple protocol", beginPgx(pgx.QueryExecModeSimpleProtocol)},
	{"sql.Tx", beginSQL(pgx.QueryExecModeCacheStatement)},
	{"sql.Tx/exec", beginSQL(pgx.QueryExecModeExec)},
	{"sql.Tx/simple protocol", beginSQL(pgx.QueryExecModeSimpleProtocol)},
}

func connConfig(t *testing.T, url string, mode pgx.QueryExecMode) *pgx.ConnConfig {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.DefaultQueryExecMode = mode
	return cfg
}

func beginPgx(mode pgx.QueryExecMode) func(t *testing.T, url string) transaction {
	return func(t *testing.T, url string) transaction {
		conn, err := pgx.ConnectConfig(t.Context(), connConfig(t, url, mode))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return transaction{
			tx:       tx,
			exec:     func(query string) error { _, err := tx.Exec(t.Context(), query); return err },
			commit:   func() error { return tx.Commit(t.Context()) },
			rollback: func() error { return tx.Rollback(t.Context()) },
		}
	}
}

func beginSQL(mode pgx.QueryExecMode) func(t *testing.T, url string) transaction {
	return func(t *testing.T, url string) transaction {
		db := stdlib.OpenDB(*connConfig(t, url, mode))
		t.Cleanup(func() { _ = db.Close() })
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return transaction{
			tx:       tx,
			exec:     func(query string) error { _, err := tx.ExecContext(t.Context(), query); return err },
			commit:   tx.Commit,
			rollback: tx.Rollback,
		}
	}
}

func eachTransaction(t *testing.T, test func(t *testing.T, url string, tx transaction)) {
	for _, b := range beginners {
		t.Run(b.name, func(t *testing.T) {
			url := pgtest.NewDB(t, migrated)
			test(t, url, b.begin(t, url))
		})
	}
}

// The events exist if and only if the backend's own rows do.
func TestPublishCommits(t *testing.T) {
	eachTransaction(t, func(t *testing.T, url string, tx transaction) {
		pool := newPool(t, url)
		if err := tx.exec(`CREATE TABLE messages (seq bigint)`); err != nil {
			t.Fatal(err)
		}
		receipt, err := events.Publish(t.Context(), tx.tx, delivered("1", userIn(2, 0), userIn(0, 0)), delivered("2", userIn(0, 0)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]int{0, 2}, receipt.Partitions); diff != "" {
			t.Errorf("partitions of the receipt (-want +got):\n%s", diff)
		}
		var rows int
		if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM badged.events_p00`).Scan(&rows); err != nil || rows != 0 {
			t.Errorf("%d rows can be seen before the commit, error %v", rows, err)
		}
		if err := tx.commit(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([partitions][]string{{"1", "2"}, nil, {"1"}}, stored(t, pool)); diff != "" {
			t.Errorf("stored (-want +got):\n%s", diff)
		}
		if got := readAll(t, pool, 2, events.Position{})[0].TransactionID; got != receipt.TransactionID {
			t.Errorf("stored by transaction %d, the receipt has %d", got, receipt.TransactionID)
		}
		if _, err := pool.Exec(t.Context(), `SELECT FROM messages`); err != nil {
			t.Errorf("the backend's own change is lost: %v", err)
		}
	})
}

func TestPublishRollsBack(t *testing.T) {
	eachTransaction(t, func(t *testing.T, url string, tx transaction) {
		if _, err := events.Publish(t.Context(), tx.tx, delivered("1", userIn(0, 0))); err != nil {
			t.Fatal(err)
		}
		if err := tx.rollback(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([partitions][]string{}, stored(t, newPool(t, url))); diff != "" {
			t.Errorf("stored (-want +got):\n%s", diff)
		}
	})
}

// An invalid event is rejected before anything is sent, so that the
// transaction stays usable.
func TestPublishAnInvalidEvent(t *testing.T) {
	eachTransaction(t, func(t *testing.T, url string, tx transaction) {
		_, err := events.Publish(t.Context(), tx.tx, delivered("1", userIn(0, 0)), delivered("2"))
		var bad *events.BatchError
		if !errors.As(err, &bad) || bad.Events[0].Index != 1 {
			t.Fatalf("error %v", err)
		}
		if _, err := events.Publish(t.Context(), tx.tx, delivered("3", userIn(0, 0))); err != nil {
			t.Fatal(err)
		}
		if err := tx.commit(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([partitions][]string{{"3"}}, stored(t, newPool(t, url))); diff != "" {
			t.Errorf("stored (-want +got):\n%s", diff)
		}
	})
}

// Publishers cannot write the type and the attribute that are badged's own, nor a field that
// is of no use, as in SQL and over HTTP.
func TestPublishRefusesWhatIsReserved(t *testing.T) {
	expired := events.Event{ID: "1", Source: "test", Type: events.ConversationExpired, Data: events.Data{
		ConversationID: "c", UserIDs: []string{userIn(0, 0)}, UpToSeq: 7,
	}}
	ended := events.Event{ID: "1", Source: "test", Type: events.ConversationLevelEnded, Data: events.Data{
		ConversationID: "c", UserIDs: []string{userIn(0, 0)}, Until: time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC),
	}}
	first := joined("2", "c", userIn(0, 0))
	first.Data.Seq = 7
	named := delivered("3", userIn(0, 0))
	named.PublishedBy = "crm"
	eachTransaction(t, func(t *testing.T, url string, tx transaction) {
		log, pool := openLog(t, url)
		for _, tc := range []struct {
			problem string
			e       events.Event
		}{
			{"type: is written by badged itself only", expired},
			{"type: is written by badged itself only", ended},
			{"publishedby: is written by badged itself only", named},
			{"data.seq: is not a field of room.joined", first},
		} {
			want, e := "event 1: invalid event: "+tc.problem, tc.e
			_, err := events.Publish(t.Context(), tx.tx, delivered("1", userIn(0, 0)), e)
			_, logErr := log.Publish(t.Context(), tx.tx, delivered("1", userIn(0, 0)), e)
			for _, err := range []error{err, logErr} {
				if bad := (*events.BatchError)(nil); !errors.As(err, &bad) || err.Error() != want {
					t.Errorf("error %v, want %s", err, want)
				}
			}
		}
		if err := tx.commit(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([partitions][]string{}, stored(t, pool)); diff != "" {
			t.Errorf("stored (-want +got):\n%s", diff)
		}
	})
}

// Ids with special characters survive arrays, literals and JSON.
func TestPublishAnyText(t *testing.T) {
	var evs []events.Event
	for _, id := range []string{`NULL`, `{}`, `a,b`, `"`, `\`, `\"`, `'`, `''`, `$1`, `\x00`, `%s`, `用户👋`, ` `, `{"a":"b\\"}`} {
		e := delivered(id, userIn(0, 0))
		e.TraceParent, e.TraceState, e.Data.ConversationID = id, id, id
		e.Time = e.Time.AddDate(2025, 0, 0)
		evs = append(evs, e)
	}
	eachTransaction(t, func(t *testing.T, url string, tx transaction) {
		if _, err := events.Publish(t.Context(), tx.tx, evs...); err != nil {
			t.Fatal(err)
		}
		if err := tx.commit(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(evs, decodeAll(t, readAll(t, newPool(t, url), 0, events.Position{}))); diff != "" {
			t.Errorf("events (-published +read):\n%s", diff)
		}
	})
}

func TestPublishNothing(t *testing.T) {
	eachTransaction(t, func(t *testing.T, _ string, tx transaction) {
		receipt, err := events.Publish(t.Context(), tx.tx)
		if diff := cmp.Diff(events.Receipt{}, receipt); diff != "" || err != nil {
			t.Errorf("error %v, receipt (-want +got):\n%s", err, diff)
		}
		if err := tx.rollback(); err != nil {
			t.Error(err)
		}
	})
}

func TestPublishWithoutALog(t *testing.T) {
	for _, b := range beginners {
		t.Run(b.name, func(t *testing.T) {
			tx := b.begin(t, pgtest.NewDB(t, pgtest.Template{}))
			if _, err := events.Publish(t.Context(), tx.tx, delivered("1", "ann")); !errors.Is(err, events.ErrNotMigrated) {
				t.Errorf("error %v", err)
			}
			if err := tx.rollback(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Publish refuses a pool or a connection: it would commit at once, which
// callers do not expect.
func TestPublishNeedsATransaction(t *testing.T) {
	log, pool := newLog(t)
	for _, tc := range []struct {
		tx   any
		want string
	}{
		{pool, "publish within *pgxpool.Pool: want a pgx.Tx or a *sql.Tx"},
		{new(sql.DB), "publish within *sql.DB: want a pgx.Tx or a *sql.Tx"},
		{nil, "publish within <nil>: want a pgx.Tx or a *sql.Tx"},
	} {
		_, err := events.Publish(t.Context(), tc.tx, delivered("1", "ann"))
		_, logErr := log.Publish(t.Context(), tc.tx, delivered("1", "ann"))
		for _, err := range []error{err, logErr} {
			if err == nil || err.Error() != tc.want {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		}
	}
	if diff := cmp.Diff([partitions][]string{}, stored(t, pool)); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
}

// A log that is open need not query its number of partitions.
func TestLogPublish(t *testing.T) {
	eachTransaction(t, func(t *testing.T, url string, tx transaction) {
		log, pool := openLog(t, url)
		if _, err := log.Publish(t.Context(), tx.tx, delivered("1", userIn(3, 0))); err != nil {
			t.Fatal(err)
		}
		if err := tx.commit(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([partitions][]string{3: {"1"}}, stored(t, pool)); diff != "" {
			t.Errorf("stored (-want +got):\n%s", diff)
		}
	})
}

// Publish fails in a transaction that has failed.
func TestPublishInAFailedTransaction(t *testing.T) {
	eachTransaction(t, func(t *testing.T, url string, tx transaction) {
		log, pool := openLog(t, url)
		if err := tx.exec(`SELECT 1 / 0`); err == nil {
			t.Fatal("divided by zero")
		}
		if _, err := log.Publish(t.Context(), tx.tx, delivered("1", userIn(3, 0))); err == nil || !strings.Contains(err.Error(), "append to partition 3: ") {
			t.Errorf("error %v", err)
		}
		_ = tx.rollback()
		if diff := cmp.Diff([partitions][]string{}, stored(t, pool)); diff != "" {
			t.Errorf("stored (-want +got):\n%s", diff)
		}
	})
}
