package events_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/internal/log/eventbatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// partitions is how many partitions the logs of these tests have.
const partitions = 4

var migrated = schematest.Migrated(partitions)

func newPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 10 // some tests hold several connections
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// openLog returns the log of a new database, and a pool on it.
func openLog(t testing.TB, url string) (*events.Log, *pgxpool.Pool) {
	t.Helper()
	pool := newPool(t, url)
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
func userIn(partition, n int) string {
	for i := 0; ; i++ {
		user := fmt.Sprintf("user-%d", i)
		if events.PartitionOf(user, partitions) != partition {
			continue
		}
		if n == 0 {
			return user
		}
		n--
	}
}

// delivered is a message to users.
func delivered(id string, users ...string) events.Event {
	return events.Event{
		ID: id, Source: "/chat", Type: events.MessageDelivered,
		Data: events.Data{ConversationID: "c", UserIDs: users, Seq: 1},
	}
}

func mustAppend(t testing.TB, log *events.Log, evs ...events.Event) events.Receipt {
	t.Helper()
	receipt, err := log.AppendOwn(t.Context(), evs...)
	if err != nil {
		t.Fatal(err)
	}
	return receipt
}

// readAll reads what is in a partition after a position, in the order of the
// log.
func readAll(t testing.TB, q events.Querier, partition int, after events.Position) []events.Record {
	t.Helper()
	rows, _ := q.Query(t.Context(), `SELECT transaction_id::text::bigint, "offset", uuid, payload, own, created_at FROM badged.`+events.Topic(partition)+`
WHERE (transaction_id, "offset") > ($1::bigint::text::xid8, $2::bigint) ORDER BY transaction_id, "offset"`, after.TransactionID, after.Offset)
	var records []events.Record
	var r events.Record
	var row []byte
	if _, err := pgx.ForEachRow(rows, []any{&r.TransactionID, &r.Offset, (*[16]byte)(&r.UUID), &row, &r.Own, &r.AppendedAt}, func() error {
		payloads, err := eventbatch.Unpack(row)
		for r.Index, r.Payload = range payloads {
			records = append(records, r)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return records
}

// ids returns the ids of the events in records, all of which must decode.
func ids(t testing.TB, records []events.Record) []string {
	t.Helper()
	var s []string
	for _, e := range decodeAll(t, records) {
		s = append(s, e.ID)
	}
	return s
}

func decodeAll(t testing.TB, records []events.Record) []events.Event {
	t.Helper()
	var evs []events.Event
	for _, r := range records {
		e, err := events.Decode(r.Payload)
		if err != nil {
			t.Fatalf("record %s: %v", r.Position, err)
		}
		evs = append(evs, e)
	}
	return evs
}

// stored returns the ids of all events, by partition.
func stored(t testing.TB, q events.Querier) [partitions][]string {
	t.Helper()
	var all [partitions][]string
	for p := range partitions {
		all[p] = ids(t, readAll(t, q, p, events.Position{}))
	}
	return all
}
