// Package projectortest runs a projector on a database, for tests of packages that work with the
// same tables, such as replay, rebuild and archiving.
package projectortest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/internal/log/eventbatch"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/projector"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// Migrated returns the template of databases with the schema of badged and
// [foldtest.Partitions] partitions.
func Migrated() pgtest.Template {
	return schematest.Migrated(foldtest.Partitions)
}

// Database is a migrated database, with a pool, a log, a reader and a bus.
type Database struct {
	URL    string
	Pool   *pgxpool.Pool
	Log    *events.Log
	Reader *badges.Reader
	Bus    *Bus
	// Folded, if set before the first call of Fold, is called with each batch that Fold folds.
	Folded func(projector.FoldedBatch)

	// folding is the projector that Fold uses, nil before the first call.
	folding *Running
}

// New returns a new database on the shared server of the tests.
func New(t testing.TB) *Database {
	t.Helper()
	return Open(t, pgtest.NewDB(t, Migrated()))
}

// Open returns a Database for the migrated database at url.
func Open(t testing.TB, url string) *Database {
	t.Helper()
	pool := NewPool(t, url, nil)
	log, err := events.Open(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return &Database{URL: url, Pool: pool, Log: log, Reader: badges.NewReader(pool, log), Bus: newBus(t)}
}

// NewPool returns a pool with the settings of a projector's pool. change may change the settings;
// it may be nil.
func NewPool(t testing.TB, url string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 4
	projector.ConfigurePool(cfg)
	pgtest.UsePublic(cfg.ConnConfig)
	if change != nil {
		change(cfg)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// Connect returns a connection that is not from the pool.
func (d *Database) Connect(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), d.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// AsRole creates a role that can log in, runs the statements with ROLE replaced by its name, and
// returns a pool with sessions of this role. Roles belong to all databases of a server, so the test
// needs a server of its own.
func (d *Database) AsRole(t testing.TB, statements ...string) *pgxpool.Pool {
	t.Helper()
	d.Exec(t, `CREATE ROLE "limited role" LOGIN`)
	for _, sql := range statements {
		d.Exec(t, strings.ReplaceAll(sql, "ROLE", `"limited role"`))
	}
	return NewPool(t, d.URL, func(cfg *pgxpool.Config) { cfg.ConnConfig.User = "limited role" })
}

// Append appends events in one transaction.
func (d *Database) Append(t testing.TB, evs ...events.Event) events.Receipt {
	t.Helper()
	receipt, err := d.Log.AppendOwn(t.Context(), evs...)
	if err != nil {
		t.Fatal(err)
	}
	return receipt
}

// AppendEach appends events, each in a transaction of its own.
func (d *Database) AppendEach(t testing.TB, evs ...events.Event) {
	t.Helper()
	for _, e := range evs {
		d.Append(t, e)
	}
}

// AppendAgo appends events whose time of appending is ago before [foldtest.Noon]. Nevertheless they
// are at the end of the log.
func (d *Database) AppendAgo(t testing.TB, ago time.Duration, evs ...events.Event) {
	t.Helper()
	d.AppendAt(t, foldtest.Noon.Add(-ago), evs...)
}

// AppendAt appends events and then sets the time at which they were appended. It stops the
// projector of Fold first, which could read the events before the time is set.
func (d *Database) AppendAt(t testing.TB, at time.Time, evs ...events.Event) {
	t.Helper()
	d.StopFolding()
	receipt := d.Append(t, evs...)
	for _, p := range receipt.Partitions {
		d.Exec(t, `UPDATE badged.`+events.Topic(p)+` SET created_at = $1 WHERE transaction_id = $2::bigint::text::xid8`, at, receipt.TransactionID)
	}
}

// InsertPayload inserts a payload into the log of partition 0 by plain SQL; an empty payload
// becomes NULL.
func (d *Database) InsertPayload(t testing.TB, payload string) {
	t.Helper()
	d.Exec(t, `INSERT INTO badged.events_p00 (transaction_id, uuid, payload)
VALUES (pg_current_xact_id(), gen_random_uuid(), convert_to(nullif($1::text, ''), 'UTF8'))`, payload)
}

// Records returns all events in the log of a partition.
func (d *Database) Records(t testing.TB, partition int) []events.Record {
	t.Helper()
	rows, _ := d.Pool.Query(t.Context(), `SELECT transaction_id::text::bigint, "offset", uuid, payload, own, created_at
FROM badged.`+events.Topic(partition)+` ORDER BY transaction_id, "offset"`)
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

// Begin begins a transaction, which is rolled back at the end of the test if it is still open. It
// has no idle timeout, unlike the projector's transactions.
func (d *Database) Begin(t testing.TB) pgx.Tx {
	t.Helper()
	tx, err := d.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }) // the transaction may have ended
	if _, err := tx.Exec(t.Context(), `SET LOCAL idle_in_transaction_session_timeout = 0`); err != nil {
		t.Fatal(err)
	}
	return tx
}

// Exec runs a statement.
func (d *Database) Exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := d.Pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%.200s: %v", sql, err)
	}
}

// Lines returns the rows of a query with one text column.
func (d *Database) Lines(t testing.TB, sql string, args ...any) []string {
	t.Helper()
	rows, err := d.Pool.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%.200s: %v", sql, err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%.200s: %v", sql, err)
	}
	return lines
}

// Dump returns all rows that projectors write, as text. It omits the columns that depend on the
// partition or on the time of the test.
func (d *Database) Dump(t testing.TB) string {
	t.Helper()
	return strings.Join(slices.Concat(
		d.Lines(t, `SELECT (to_jsonb(u) - 'partition_id')::text FROM badged.users AS u ORDER BY user_id`),
		d.Lines(t, `SELECT (to_jsonb(c) - '{partition_id,delivered_hour}'::text[])::text FROM badged.conversations AS c ORDER BY user_id, conversation_id`),
		d.Lines(t, `SELECT (to_jsonb(p) - 'partition_id')::text FROM badged.paths AS p ORDER BY user_id, category`),
		d.Lines(t, `SELECT (to_jsonb(r) - '{partition_id,delivered_hour}'::text[])::text FROM badged.rooms AS r ORDER BY conversation_id`),
		d.Lines(t, `SELECT (to_jsonb(c) - 'partition_id')::text FROM badged.room_chunks AS c ORDER BY conversation_id, bound`),
		d.Lines(t, `SELECT (to_jsonb(m) - 'partition_id')::text FROM badged.room_marks AS m ORDER BY conversation_id, seq, user_id`),
		d.Lines(t, `SELECT concat(convert_from(payload, 'UTF8'), ' because ', reason) FROM badged.dead_letters ORDER BY 1`),
	), "\n")
}

// Badge returns the badge of a user.
func (d *Database) Badge(t testing.TB, user string) pubsub.Badge {
	t.Helper()
	b, err := d.Reader.Badge(t.Context(), user)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Changes returns the changes for a client of a user that has the version since in the current
// epoch.
func (d *Database) Changes(t testing.TB, user string, since int64) pubsub.Snapshot {
	t.Helper()
	held := pubsub.Held{UserID: user, Epoch: d.Badge(t, user).Epoch, Version: since}
	states, err := d.Reader.States(t.Context(), events.PartitionOf(user, foldtest.Partitions), []pubsub.Held{held})
	if err != nil {
		t.Fatal(err)
	}
	if states[0].Whole {
		t.Errorf("a client with version %d of %s gets the whole state", since, user)
	}
	return states[0]
}

// Position returns the position up to which a partition is folded.
func (d *Database) Position(t testing.TB, partition int) events.Position {
	t.Helper()
	p, err := events.PositionOf(t.Context(), d.Pool, partition, events.ProjectorGroup)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// SetPosition sets the position up to which a partition counts as folded.
func (d *Database) SetPosition(t testing.TB, partition int, p events.Position) {
	t.Helper()
	d.Exec(t, `UPDATE badged.`+events.Topic(partition)+`_offsets
SET last_processed_transaction_id = $1::bigint::text::xid8, offset_acked = $2 WHERE consumer_group = $3`, p.TransactionID, p.Offset, events.ProjectorGroup)
}

// KillAt creates a trigger that kills the session which fires it. trigger is its definition, such
// as `AFTER INSERT ON badged.baselines`; if it is deferrable, the session is killed at its commit.
// If trigger is empty, no session is killed. The returned function drops the trigger and waits
// until the sessions of an application have ended.
func (d *Database) KillAt(t testing.TB, trigger, application string) (end func()) {
	t.Helper()
	if trigger != "" {
		d.Exec(t, `CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_terminate_backend(pg_backend_pid()); RAISE 'it outlived its end';
END $$`)
		if strings.Contains(trigger, "DEFERRABLE") {
			d.Exec(t, `CREATE CONSTRAINT TRIGGER fault `+trigger+` INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fault()`)
		} else {
			d.Exec(t, `CREATE TRIGGER fault `+trigger+` FOR EACH STATEMENT EXECUTE FUNCTION fault()`)
		}
	}
	return func() {
		t.Helper()
		d.Exec(t, `DROP FUNCTION IF EXISTS fault CASCADE`)
		d.awaitNoSession(t, application)
	}
}

// awaitNoSession waits until an application has no session: a session that was killed or closed
// still exists for an instant.
func (d *Database) awaitNoSession(t testing.TB, application string) {
	t.Helper()
	Until(t, "the end of "+application, func() bool {
		return len(d.Lines(t, `SELECT 'runs' FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1`, application)) == 0
	})
}

// Keep copies the rows of users, conversations and rooms. The returned function restores these
// rows.
func (d *Database) Keep(t testing.TB) (restore func()) {
	t.Helper()
	tables := []string{"users", "conversations", "paths", "rooms", "room_chunks", "room_marks"}
	for _, table := range tables {
		d.Exec(t, fmt.Sprintf(`CREATE TABLE kept_%[1]s AS TABLE badged.%[1]s`, table))
	}
	return func() {
		t.Helper()
		for _, table := range tables {
			d.Exec(t, fmt.Sprintf(`TRUNCATE badged.%[1]s; INSERT INTO badged.%[1]s TABLE kept_%[1]s; DROP TABLE kept_%[1]s`, table))
		}
	}
}

// EndRange ends the last range of a partition's log after all events that were appended so far, so
// that the range can be archived.
func (d *Database) EndRange(t testing.TB, partition int) {
	t.Helper()
	d.addRange(t, partition, 4)
	d.PassRange(t, partition)
}

// AddRange adds ranges to a partition's log until the last range begins at a transaction id in the
// future. This id is so far ahead that other activity, such as autovacuum or another test, does not
// reach it during the test.
func (d *Database) AddRange(t testing.TB, partition int) {
	t.Helper()
	d.addRange(t, partition, 500)
}

func (d *Database) addRange(t testing.TB, partition, ahead int) {
	t.Helper()
	for more := true; more; {
		err := d.Pool.QueryRow(t.Context(), `SELECT badged.extend_log($1, interval '0', $2)`, partition, ahead).Scan(&more)
		if err != nil && !pgsession.IsLocked(err) { // a reader may hold its lock on the log for longer than the function waits
			t.Fatal(err)
		}
	}
}

// IndexLog builds the indexes of a partition's ranges that are complete and folded. It fails the
// test if no such range lacks its index.
func (d *Database) IndexLog(t testing.TB, partition int) {
	t.Helper()
	if d.Lines(t, `SELECT badged.index_log($1)::text`, partition)[0] != "true" {
		t.Fatal("no range is complete and folded, and lacks the index")
	}
	for d.Lines(t, `SELECT badged.index_log($1)::text`, partition)[0] == "true" {
	}
}

// PassRange uses transaction ids until the last range of a partition has begun, and no session can
// still write into the range before.
func (d *Database) PassRange(t testing.TB, partition int) {
	t.Helper()
	for d.Lines(t, `SELECT (pg_current_xact_id() >= starts AND pg_snapshot_xmin(pg_current_snapshot()) >= starts)::text
FROM badged.log_ranges WHERE partition_id = $1 AND ends IS NULL`, partition)[0] != "true" {
	}
}

// Same fails the test if want and got differ, and shows the differences.
func Same[T any](t testing.TB, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
