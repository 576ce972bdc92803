package events_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/log/eventbatch"
	"github.com/badged/badged/migrations"
)

// Calls of the SQL functions, as clients in any language make them.
const (
	publishSQL      = `SELECT badged.publish($1)`
	publishBatchSQL = `SELECT badged.publish_batch($1)`
)

// queryRower is a connection, a pool or a transaction.
type queryRower interface {
	QueryRow(ctx context.Context, query string, args ...any) pgx.Row
}

// call calls one of the functions and returns the position.
func call(ctx context.Context, q queryRower, function, argument string) (position int64, err error) {
	err = q.QueryRow(ctx, function, argument).Scan(&position)
	return position, err
}

// refusal returns the message and the detail of a refusal by an SQL function.
func refusal(err error) (message, detail string) {
	const invalidParameterValue = "22023"
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != invalidParameterValue {
		return fmt.Sprintf("no refusal: %v", err), ""
	}
	return pg.Message, pg.Detail
}

func encode(t anyT, e any) string {
	b, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// anyT is a test, or one run of a property.
type anyT interface {
	Context() context.Context
	Fatal(args ...any)
}

// row is a row of the log, with metadata as jsonb shows it.
type row struct {
	Partition int
	// Key is empty if the row has several events.
	Key, Metadata string
	Events        int
	Payload       []byte
}

// rowsOf returns the rows of a transaction, ordered by partition.
func rowsOf(t anyT, pool *pgxpool.Pool, position int64) []row {
	var all []row
	for p := range partitions {
		rows, err := pool.Query(t.Context(), `
SELECT $2::integer AS partition, CASE events WHEN 1 THEN uuid::text ELSE '' END AS key, coalesce(metadata::jsonb::text, '') AS metadata, events, payload
FROM badged.`+events.Topic(p)+`
WHERE transaction_id = $1::text::xid8
ORDER BY "offset"`, fmt.Sprint(position), p)
		if err != nil {
			t.Fatal(err)
		}
		some, err := pgx.CollectRows(rows, pgx.RowToStructByName[row])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, some...)
	}
	return all
}

// eventsIn returns the events of a row. Their lists of users are sorted: publishing
// in SQL does not keep their order.
func eventsIn(t anyT, r row) []events.Event {
	payloads, err := eventbatch.Unpack(r.Payload)
	if err != nil {
		t.Fatal(err)
	}
	var all []events.Event
	for _, payload := range payloads {
		e, err := events.Decode(payload)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(e.Data.UserIDs)
		slices.Sort(e.Data.MentionedUserIDs)
		all = append(all, e)
	}
	return all
}

// rowsDiffer compares rows by the events that they hold. Only Go compresses them.
func rowsDiffer(t anyT, want, got []row) string {
	return cmp.Diff(want, got, cmpopts.EquateEmpty(), cmp.FilterPath(
		func(p cmp.Path) bool { return p.Last().String() == ".Payload" }, cmp.Ignore()),
	) + cmp.Diff(allEvents(t, want), allEvents(t, got), cmpopts.EquateEmpty())
}

// allEvents returns the events of rows, by row.
func allEvents(t anyT, rows []row) (all [][]events.Event) {
	for _, r := range rows {
		all = append(all, eventsIn(t, r))
	}
	return all
}

// publishable draws an event with users that a backend may publish.
var publishable = rapid.Map(
	anyEvent.Filter(func(e events.Event) bool {
		return e.Type != events.ConversationExpired && e.Type != events.ConversationLevelEnded && len(e.Data.UserIDs) > 0
	}),
	func(e events.Event) events.Event { e.PublishedBy = ""; return e },
)

// SQL writes rows with the same events as Go.
func TestPublishSQLWritesTheSameRows(t *testing.T) {
	log, pool := newLog(t)
	rapid.Check(t, func(t *rapid.T) {
		evs := rapid.SliceOfN(publishable, 1, 5).Draw(t, "events")
		argument := encode(t, evs)
		// Attributes that Decode ignores are not stored. Of duplicates jsonb
		// keeps the last.
		if none := rapid.SampledFrom([]string{`null`, `""`, ``}).Draw(t, "none"); none != "" {
			argument = strings.ReplaceAll(argument, `{"specversion"`, `{"subject":"c","dataschema":null,"datacontenttype":"application/json","traceparent":`+none+`,"tracestate":`+none+`,"specversion"`)
		}

		before := time.Now().Truncate(time.Microsecond)
		position, err := call(t.Context(), pool, publishBatchSQL, argument)
		if err != nil {
			t.Fatal(err)
		}
		got := rowsOf(t, pool, position)

		for i := range evs {
			if evs[i].Time.IsZero() {
				evs[i].Time = timeOf(t, got, evs[i].Key())
				if now := evs[i].Time; now.Before(before) || now.After(time.Now()) {
					t.Fatalf("an event without a time has got %v", now)
				}
			}
		}
		receipt, err := log.Append(t.Context(), evs...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := rowsDiffer(t, rowsOf(t, pool, receipt.TransactionID), got); diff != "" {
			t.Fatalf("rows (-Go +SQL):\n%s", diff)
		}
		// A single event takes another way.
		position, err = call(t.Context(), pool, publishSQL, encode(t, evs[0]))
		if err != nil {
			t.Fatal(err)
		}
		if receipt, err = log.Append(t.Context(), evs[0]); err != nil {
			t.Fatal(err)
		}
		if diff := rowsDiffer(t, rowsOf(t, pool, receipt.TransactionID), rowsOf(t, pool, position)); diff != "" {
			t.Fatalf("rows of a single event (-Go +SQL):\n%s", diff)
		}
	})
}

// timeOf returns the time of the event with a key.
func timeOf(t *rapid.T, rows []row, key uuid.UUID) time.Time {
	for _, r := range rows {
		for _, e := range eventsIn(t, r) {
			if e.Key() == key {
				return e.Time
			}
		}
	}
	t.Fatalf("there is no event with the key %s", key)
	return time.Time{}
}

// A row has at most 1,000 events and a mebibyte, and rows keep the order of the
// events.
func TestPublishSQLFillsRows(t *testing.T) {
	_, pool := newLog(t)
	user := userIn(0, 0)
	large := delivered("")
	for i := range events.MaxUsers {
		large.Data.UserIDs = append(large.Data.UserIDs, fmt.Sprintf("%s-%d", strings.Repeat("x", 100), i))
	}
	for _, tc := range []struct {
		name string
		ids  []string // of large events those with an exclamation mark
		want []int    // events of each row of the user's partition
	}{
		{"as many events as two rows hold, and one", strings.Fields(strings.Repeat("a ", 2*eventbatch.MaxEvents+1)), []int{1000, 1000, 1}},
		{"more bytes than a row holds", strings.Fields("a b c! d! e! f! g! h i!"), []int{5, 4}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var evs []events.Event
			for _, id := range tc.ids {
				e := delivered(id, user)
				if strings.HasSuffix(id, "!") {
					e = large
					e.ID = id
				}
				evs = append(evs, e)
			}
			position, err := call(t.Context(), pool, publishBatchSQL, encode(t, evs))
			if err != nil {
				t.Fatal(err)
			}
			var got []int
			var ids []string
			for _, r := range rowsOf(t, pool, position) {
				if r.Partition > 0 {
					continue
				}
				all := eventsIn(t, r)
				if len(all) != r.Events {
					t.Errorf("a row with %d events says %d", len(all), r.Events)
				}
				got = append(got, len(all))
				for _, e := range all {
					ids = append(ids, e.ID)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("events of each row (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.ids, ids); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPublishSQLTheLargestGroup(t *testing.T) {
	log, pool := newLog(t)
	e := delivered("1")
	for i := range events.MaxUsers {
		e.Data.UserIDs = append(e.Data.UserIDs, fmt.Sprintf("user-%d", i))
	}
	e.Data.MentionedUserIDs = e.Data.UserIDs
	e.Time = time.Unix(1, 0)
	position, err := call(t.Context(), pool, publishSQL, encode(t, e))
	if err != nil {
		t.Fatal(err)
	}
	want := rowsOf(t, pool, mustAppend(t, log, e).TransactionID)
	if diff := rowsDiffer(t, want, rowsOf(t, pool, position)); diff != "" {
		t.Errorf("rows (-Go +SQL):\n%s", diff)
	}
}

// SQL handles times as text: it must store the same as Go, in the form of RFC 3339.
func TestPublishSQLTimes(t *testing.T) {
	_, pool := newLog(t)
	for _, given := range []string{
		"2026-01-31T23:59:59Z", "2026-01-31T23:59:59.120Z", "2026-01-31T23:59:59.000Z", "2026-01-31T23:59:59,5Z",
		"2026-01-31T23:59:59.123456789Z", "2026-01-31T23:59:59.1234567899Z", "2026-01-31T3:59:59Z",
		"2026-03-01T00:30:00+01:00", "2024-03-01T00:30:00+01:00", "2025-12-31T23:30:00-00:30",
		"2026-01-31T00:00:00+24:00", "2026-01-31T00:00:00-00:60", "2024-02-29T12:00:00Z", "2000-02-29T12:00:00Z",
		"0000-12-31T23:30:00-01:00", "0001-01-01T00:00:00.000000001Z", "9999-12-31T23:59:59.999999999Z", "10000-01-01T00:00:00+01:00",
		"0004-02-29T00:00:00Z", "1582-10-10T00:00:00Z", "1900-01-01T00:00:00+00:17",
	} {
		event := attribute(fmt.Sprintf(`"time":%q`, given))
		want, err := events.Decode([]byte(event))
		if err != nil {
			if _, got := call(t.Context(), pool, publishSQL, event); got == nil {
				t.Errorf("%s is a time in SQL, but %v", given, err)
			}
			continue
		}
		position, err := call(t.Context(), pool, publishSQL, event)
		if err != nil {
			t.Errorf("%s: %v", given, err)
			continue
		}
		stored := rowsOf(t, pool, position)[0]
		if diff := cmp.Diff(want, eventsIn(t, stored)[0]); diff != "" {
			t.Errorf("%s (-Go +SQL):\n%s", given, diff)
		}
		var e struct{ Time strictTime }
		if err := json.Unmarshal(stored.Payload, &e); err != nil {
			t.Errorf("%s is stored as %s: %v", given, stored.Payload, err)
		}
	}
}

// strictTime is a time that must have the form of RFC 3339. [time.Parse] takes more.
type strictTime struct{ time.Time }

func (t *strictTime) UnmarshalText(text []byte) error { return t.Time.UnmarshalText(text) }

// The year 1 begins with Go's zero time, which means no time.
func TestPublishSQLTheZeroTime(t *testing.T) {
	_, pool := newLog(t)
	position, err := call(t.Context(), pool, publishSQL, attribute(`"time":"0001-01-01T01:00:00+01:00"`))
	if err != nil {
		t.Fatal(err)
	}
	if e := eventsIn(t, rowsOf(t, pool, position)[0])[0]; e.Time.IsZero() {
		t.Error("the event has no time")
	}
}

// A transaction stores a message and publishes its event, or neither.
func TestPublishSQLInATransaction(t *testing.T) {
	for _, tc := range []struct {
		how  string
		end  func(pgx.Tx) error
		want int
	}{
		{"commit", func(tx pgx.Tx) error { return tx.Commit(context.Background()) }, 1},
		{"rollback", func(tx pgx.Tx) error { return tx.Rollback(context.Background()) }, 0},
	} {
		t.Run(tc.how, func(t *testing.T) {
			_, pool := newLog(t)
			tx := begin(t, pool)
			if _, err := tx.Exec(t.Context(), `CREATE TABLE message (seq bigint); INSERT INTO message VALUES (1)`); err != nil {
				t.Fatal(err)
			}
			var xid int64
			if err := tx.QueryRow(t.Context(), `SELECT pg_current_xact_id()::text::bigint`).Scan(&xid); err != nil {
				t.Fatal(err)
			}
			position, err := call(t.Context(), tx, publishSQL, read)
			if err != nil {
				t.Fatal(err)
			}
			if position != xid {
				t.Errorf("the position is %d, want the transaction's id %d", position, xid)
			}
			if err := tc.end(tx); err != nil {
				t.Fatal(err)
			}
			if n := len(rowsOf(t, pool, position)); n != tc.want {
				t.Errorf("%d events are in the log, want %d", n, tc.want)
			}
		})
	}
}

// Many ids, of any characters but U+0000, for all numbers of partitions.
func TestPartitionOfInSQLAndInGo(t *testing.T) {
	_, pool := newLog(t)
	const count = 200_000
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	in, out := io.Pipe()
	copied := make(chan error, 1)
	go func() {
		// One write per row would dominate the run time.
		buffered := bufio.NewWriterSize(out, 1<<16)
		_, err := conn.Conn().PgConn().CopyTo(t.Context(), buffered, fmt.Sprintf(`
COPY (
    SELECT encode(convert_to(id, 'UTF8'), 'hex'), n, badged.partition_of(id, n)
    FROM generate_series(1, %d) AS i,
        LATERAL (SELECT 1 + i %% 256, i || chr(1 + (i * 7919::bigint %% 55295)::integer) || repeat(chr(57344 + (i * 104729::bigint %% 1056767)::integer), i %% 4)) AS x (n, id)
) TO STDOUT (DELIMITER ' ')`, count))
		out.CloseWithError(errors.Join(err, buffered.Flush()))
		copied <- err
	}()
	defer in.Close()
	lines := 0
	for scanner := bufio.NewScanner(in); scanner.Scan(); lines++ {
		field := bytes.Fields(scanner.Bytes())
		id, err := hex.DecodeString(string(field[0]))
		if err != nil {
			t.Fatal(err)
		}
		n, errN := strconv.Atoi(string(field[1]))
		got, errGot := strconv.Atoi(string(field[2]))
		if err := errors.Join(errN, errGot); err != nil {
			t.Fatal(err)
		}
		if want := events.PartitionOf(string(id), n); got != want {
			t.Fatalf("partition of %q among %d is %d in SQL, %d in Go", id, n, got, want)
		}
	}
	if err := <-copied; err != nil {
		t.Fatal(err)
	}
	if lines != count {
		t.Errorf("compared %d ids, want %d", lines, count)
	}
}

// The name of a topic has at least two digits.
func TestPublishSQLToEachPartition(t *testing.T) {
	const many = 101
	url := pgtest.NewDB(t, pgtest.Template{})
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrations.Up(t.Context(), migrations.Config{Conn: cfg, Partitions: many}); err != nil {
		t.Fatal(err)
	}
	pool := newPool(t, url)
	for _, want := range []int{0, 9, 10, 99, 100} {
		var user string
		for i := 0; user == "" || events.PartitionOf(user, many) != want; i++ {
			user = fmt.Sprintf("user-%d", i)
		}
		e := delivered(fmt.Sprint("to ", want), user)
		if _, err := call(t.Context(), pool, publishSQL, encode(t, e)); err != nil {
			t.Fatal(err)
		}
		var got, inLog int
		err := pool.QueryRow(t.Context(), `
SELECT badged.partition_of($1), count(*) FROM badged.`+events.Topic(want)+` WHERE uuid = $2`, user, e.Key()).Scan(&got, &inLog)
		if err != nil {
			t.Fatal(err)
		}
		if got != want || inLog != 1 {
			t.Fatalf("%s is in partition %d, want %d; its log has the event %d times", user, got, want, inLog)
		}
	}
}

// as connects to a database with a role.
func as(t *testing.T, url, role string) *pgx.Conn {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.User = role
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func mustExec(t *testing.T, conn *pgx.Conn, query string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// grants are all the rights that a chat backend's role needs to publish.
const grants = `
GRANT USAGE ON SCHEMA badged TO backend;
GRANT EXECUTE ON FUNCTION badged.publish(jsonb), badged.publish_batch(jsonb) TO backend`

// A valid event in the usual form does not need the slow check.
func TestPublishSQLTakesUsualEventsForPlain(t *testing.T) {
	_, pool := newLog(t)
	for _, info := range events.Types() {
		e := info.Example
		e.Time, e.TraceParent = time.Unix(1, 0), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		if len(e.Data.UserIDs) > 0 {
			e.Data.UserIDs = append(slices.Clone(e.Data.UserIDs), "用户-1")
		}
		var plain bool
		if err := pool.QueryRow(t.Context(), `SELECT badged.is_plain($1::jsonb, $1::jsonb -> 'data')`, encode(t, e)).Scan(&plain); err != nil || plain == info.Reserved {
			t.Errorf("%s: %v, %v", info.Type, plain, err)
		}
	}
}

// A role that may publish can do nothing else, and other roles cannot publish.
func TestPublishSQLNeedsAGrant(t *testing.T) {
	server := pgtest.NewServer(t) // roles belong to all databases of a server
	url := server.NewDB(t, migrated)
	owner := as(t, url, "badged")
	mustExec(t, owner, `CREATE ROLE backend LOGIN; CREATE ROLE guest LOGIN; CREATE ROLE stranger LOGIN;
GRANT USAGE ON SCHEMA badged TO guest`)
	mustExec(t, owner, grants)

	for _, tc := range []struct{ role, query, want string }{
		{"backend", publishSQL, ""},
		{"backend", `SELECT badged.publish_batch(jsonb_build_array($1::jsonb))`, ""},
		{"backend", `SELECT badged.append_events(jsonb_build_array($1::jsonb))`, "permission denied for function append_events"},
		{"backend", `SELECT badged.partition_of($1::jsonb ->> 'id')`, "permission denied for function partition_of"},
		{"backend", `SELECT count(*) FROM badged.events_p00 WHERE $1::jsonb IS NOT NULL`, "permission denied for table events_p00"},
		{"guest", publishSQL, "permission denied for function publish"},
		{"guest", `SELECT badged.publish_batch(jsonb_build_array($1::jsonb))`, "permission denied for function publish_batch"},
		{"stranger", publishSQL, "permission denied for schema badged"},
	} {
		const insufficientPrivilege = "42501"
		_, err := call(t.Context(), as(t, url, tc.role), tc.query, read)
		var pg *pgconn.PgError
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s may not %s: %v", tc.role, tc.query, err)
		case tc.want != "" && (!errors.As(err, &pg) || pg.Code != insufficientPrivilege || pg.Message != tc.want):
			t.Errorf("%s: %s: %v, want %s", tc.role, tc.query, err, tc.want)
		}
	}
}

// The functions run as their owner, so they must ignore objects that a
// caller's search_path puts before Postgres's own.
func TestPublishSQLIgnoresTheSearchPath(t *testing.T) {
	server := pgtest.NewServer(t)
	url := server.NewDB(t, migrated)
	owner := as(t, url, "badged")
	mustExec(t, owner, `CREATE ROLE backend LOGIN; CREATE SCHEMA shadow AUTHORIZATION backend`)
	mustExec(t, owner, grants)
	backend := as(t, url, "backend")
	mustExec(t, backend, `
CREATE FUNCTION shadow.caught() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'caught: running as %', current_user;
END $$;
CREATE FUNCTION shadow.jsonb_typeof(jsonb) RETURNS text LANGUAGE sql AS 'SELECT shadow.caught()';
CREATE FUNCTION shadow.jsonb_array_length(jsonb) RETURNS integer LANGUAGE sql AS 'SELECT shadow.caught()::integer';
CREATE FUNCTION shadow.sha256(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT shadow.caught()::bytea';
CREATE FUNCTION shadow.get(jsonb, text) RETURNS text LANGUAGE sql AS 'SELECT shadow.caught()';
CREATE OPERATOR shadow.->> (LEFTARG = jsonb, RIGHTARG = text, FUNCTION = shadow.get);
CREATE TEMPORARY TABLE settings AS SELECT 1 AS partitions;
SET search_path = shadow, pg_temp, pg_catalog`)

	if err := backend.QueryRow(t.Context(), `SELECT jsonb_typeof('1')`).Scan(new(string)); err == nil || !strings.Contains(err.Error(), "caught: running as backend") {
		t.Fatalf("the trap does not work: %v", err)
	}
	for _, query := range []string{publishSQL, `SELECT badged.publish_batch(jsonb_build_array($1::jsonb))`} {
		if _, err := call(t.Context(), backend, query, read); err != nil {
			t.Errorf("%s: %v", query, err)
		}
	}
}
