package topics_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// partitions is how many partitions the logs of these tests have.
const partitions = foldtest.Partitions

var migrated = projectortest.Migrated()

// openLog returns the log of a new database, and a pool on it.
func openLog(t testing.TB, url string) (*events.Log, *pgxpool.Pool) {
	t.Helper()
	pool := projectortest.NewPool(t, url, nil)
	log, err := events.Open(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return log, pool
}

func newLog(t testing.TB) (*events.Log, *pgxpool.Pool) {
	t.Helper()
	return openLog(t, pgtest.NewDB(t, migrated))
}

// userIn returns the nth user of a partition.
func userIn(partition, n int) string { return foldtest.User(partition, n) }

// delivered is a message to users.
func delivered(id string, users ...string) events.Event {
	return foldtest.Named(id, foldtest.Deliver("c", 1, users...))
}

func mustAppend(t testing.TB, log *events.Log, evs ...events.Event) {
	t.Helper()
	if _, err := log.Append(t.Context(), evs...); err != nil {
		t.Fatal(err)
	}
}

// begin begins a transaction that ends with the test, if not before.
func begin(t testing.TB, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	// It stays open while others work, which takes long on a busy machine.
	if _, err := tx.Exec(t.Context(), `SET LOCAL idle_in_transaction_session_timeout = 0`); err != nil {
		t.Fatal(err)
	}
	return tx
}

// readAll reads what is in a partition, in the order of the log.
func readAll(t testing.TB, pool *pgxpool.Pool, partition int) []events.Record {
	t.Helper()
	return (&projectortest.Database{Pool: pool}).Records(t, partition)
}

// ids returns the ids of the events in records, all of which must decode.
func ids(t testing.TB, records []events.Record) []string {
	t.Helper()
	var s []string
	for _, r := range records {
		e, err := events.Decode(r.Payload)
		if err != nil {
			t.Fatalf("record %s: %v", r.Position, err)
		}
		s = append(s, e.ID)
	}
	return s
}

// stored returns the ids of all events, by partition.
func stored(t testing.TB, pool *pgxpool.Pool) [partitions][]string {
	t.Helper()
	var all [partitions][]string
	for p := range partitions {
		all[p] = ids(t, readAll(t, pool, p))
	}
	return all
}
