package tests

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/badged/badged/events"
	"github.com/badged/badged/events/topics"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/snippets"
	"github.com/badged/badged/internal/partition/archive"
)

// as returns the URL of a database with another role.
func as(t *testing.T, database, role string) string {
	t.Helper()
	url := strings.Replace(database, "user=badged", "user="+role, 1)
	if url == database {
		t.Fatalf("no user in %s", database)
	}
	return url
}

// granted returns a migrated database on a new server, with the roles of docs/postgres.md: the
// owner and the server as docs/howto/production.md creates them, and publisher, consumer and reader.
func granted(t *testing.T) (database string) {
	t.Helper()
	server := pgtest.NewServer(t)
	page := snippets.With(t, "docs/howto/production.md", "CREATE ROLE badged_owner", "sql")
	for statement := range strings.SplitSeq(page.Text, ";") { // CREATE DATABASE must be alone
		sql(t, server.URL(), statement)
	}
	database = server.DatabaseURL("chat")
	owner := "--database-url=" + as(t, database, "badged_owner")
	must(t, "migrate", "up", fmt.Sprintf("--partitions=%d", partitions), owner)
	must(t, "migrate", "grant", "server", "badged_server", owner)
	sql(t, database, `CREATE ROLE publisher LOGIN; CREATE ROLE consumer LOGIN; CREATE ROLE reader LOGIN`)
	for _, role := range []string{"publisher", "consumer", "reader"} {
		must(t, "migrate", "grant", role, role, owner)
	}
	return database
}

// mayNot checks that a role lacks the right for a statement.
func mayNot(t *testing.T, conn *pgx.Conn, statement string) {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), statement)
	const insufficientPrivilege, checkViolation = "42501", "23514"
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != insufficientPrivilege && pgErr.Code != checkViolation {
		t.Errorf("%s may %.200s: %v", conn.Config().User, statement, err)
	}
}

// The role server suffices for everything that a server does, including operations on the admin page
// and the command line. It cannot change existing rows of the log or of the audit trail.
func TestServerRole(t *testing.T) {
	t.Parallel()
	database := granted(t)
	server, reader := as(t, database, "badged_server"), as(t, database, "reader")
	p := launch(t, nil, "serve", "--listen=127.0.0.1:0", "--database-url="+server, "--admin-keys=ops="+adminKey,
		"--expire=chat=1000h", "--verify-interval=1s", "--self-heal", "--dedup-window=1h")
	ann := connect(t, p.url, "ann")
	publish(t, p, delivered("team", 1, `"ann","bob"`))
	position := publish(t, p, delivered("team", 2, `"ann","bob"`))
	wantTotal(t, p, "bob", position, 2)
	ann.awaitTotal(2)
	ann.say(`{"t":"read","id":1,"conversation_id":"team","up_to_seq":2}`)
	ann.awaitTotal(0)

	sql(t, database, `INSERT INTO badged.events_p00 (uuid, payload) SELECT gen_random_uuid(), '{}' FROM generate_series(1, 2)`)
	awaitMetric(t, p, "badged_projector_dead_letters_total", 2)
	if out := must(t, "deadletters", "list", "--database-url="+reader); strings.Count(out, "specversion: is required") != 2 {
		t.Errorf("the dead letters are\n%s", out)
	}
	must(t, "deadletters", "discard", "1", "--database-url="+server)
	if status, answer := asAdmin(t, p, http.MethodDelete, "v1/deadletters/2", ""); status/100 != 2 {
		t.Errorf("discarding: %d %s", status, answer)
	}
	for _, kind := range []string{"verifications", "rebuilds"} {
		j := startJob(t, p, kind, `{}`)
		if j = awaitJob(t, p, kind, j.ID, ended); j.State != "done" {
			t.Errorf("%s: %+v", kind, j)
		}
	}
	for _, args := range [][]string{{"rebuild", "-q"}, {"rebuild", "-q", "--user=ann"}, {"config", "check", "--connect", "--publisher-keys=backend=" + publisherKey}, {"migrate", "status"}} {
		must(t, append(args, "--database-url="+server)...)
	}
	states := filepath.Join(t.TempDir(), "states.csv")
	writeFile(t, states, "user_id,conversation_id,last_seq,read_seq\ncal,tea,12,7\n")
	must(t, "import", states, "--database-url="+server)
	prints(t, "--count=", "audit", "verify", "--database-url="+server)
	for _, args := range [][]string{{"verify"}, {"lag"}, {"log"}, {"user", "show", "bob"}, {"user", "explain", "bob"}} {
		must(t, append(args, "--database-url="+reader)...)
	}
	wantTotal(t, p, "bob", publish(t, p, delivered("team", 3, `"ann","bob"`)), 3)
	if said := p.out.String(); strings.Contains(said, "permission denied") {
		t.Errorf("the server lacks a right:\n%s", said)
	}

	conn := pgtest.Connect(t, server)
	// The statements of the projector's periodic work and of the expiry sweep.
	for _, statement := range []string{
		`INSERT INTO badged.dedup_runs VALUES (0, 1, 1, 1, 'dropped')`, `UPDATE badged.dedup_runs SET state = 'dropped'`,
		`INSERT INTO badged.dedup_filters VALUES (0, 1, 1, 1, '')`, `INSERT INTO badged.dedup_pages_p00 VALUES (1, 1, '')`,
		`DELETE FROM badged.dedup_pages_p00`, `DELETE FROM badged.dedup_filters`, `DELETE FROM badged.dedup_runs`, `DELETE FROM badged.dedup_blocks_p00`,
		`SELECT badged.extend_log(0, '7 days', 1048576)`, `SELECT badged.index_log(0)`,
		`SELECT badged.bury_unissued(0)`, `INSERT INTO badged.events_p00 (uuid, payload, own) VALUES (gen_random_uuid(), '{}', true)`,
	} {
		pgtest.Exec(t, conn, statement)
	}
	for _, statement := range []string{
		`UPDATE badged.audit SET who = 'another'`, `DELETE FROM badged.audit`, `TRUNCATE badged.audit CASCADE`,
		`UPDATE badged.audit_ends SET error = 'none'`, `DELETE FROM badged.audit_ends`, `TRUNCATE badged.audit_ends`,
		`INSERT INTO badged.audit (at, who, via, action, arguments) VALUES ('2000-01-01', 'ops', 'api', 'x', '{}')`,
		`INSERT INTO badged.audit_ends (audit_id, ended_at) VALUES (1, '2000-01-01')`,
		`UPDATE badged.audit_chain SET records = 0`, `DELETE FROM badged.audit_chain`, `INSERT INTO badged.audit (number, hash, who, via, action, arguments) VALUES (9, '', 'ops', 'api', 'x', '{}')`,
		`SELECT badged.chain_audit('{}', '{}')`,
		`DELETE FROM badged.events_p00`, `UPDATE badged.events_p00 SET payload = '{}'`, `TRUNCATE badged.events_p00`, `TRUNCATE badged.events_p00_r1`,
		`INSERT INTO badged.events_p00 (uuid, payload, transaction_id) VALUES (gen_random_uuid(), '{}', '99999999999')`,
		`INSERT INTO badged.events_p00 (uuid, payload, era) VALUES (gen_random_uuid(), '{}', 1)`,
		`DELETE FROM badged.events_p00_offsets`, `UPDATE badged.settings SET partitions = 1`, `UPDATE badged.settings SET settled_era = 0`,
		`DELETE FROM badged.log_home`, `DELETE FROM badged.baselines`, `SELECT badged.drop_log_ranges(0)`, `SELECT badged.settle_log_ranges(0)`,
		`CREATE TABLE badged.x ()`, `DROP TABLE badged.audit`, `INSERT INTO badged.granted_roles VALUES ('x', 'server')`,
	} {
		mayNot(t, conn, statement)
	}
	archiving := []string{"archive", "-q", "--to=" + t.TempDir(), "--before=" + time.Now().UTC().Format(time.RFC3339)}
	must(t, append(archiving, "--database-url="+database)...) // so that a second run would have nothing to do
	const owners = "only the owner of the schema badged may; connect as "
	for _, tc := range []struct {
		args []string
		says string
	}{
		{archiving, owners},
		{[]string{"restore", "-q", "--from=" + emptyArchive(t)}, owners},
		{[]string{"audit", "prune", "--before=2026-01-01T00:00:00Z"}, owners},
		{[]string{"repair-log"}, owners},
		{[]string{"user", "erase", "ann", "--yes"}, owners},
		{[]string{"migrate", "grant", "reader", "publisher"}, owners},
	} {
		fails(t, 1, tc.says, append(tc.args, "--database-url="+server)...)
	}
	fails(t, 1, "the role reader may not write badges: connect as a role of kind server", "serve", "--listen=127.0.0.1:0", "--jwt-keys="+jwtKeys, "--publisher-keys=backend="+publisherKey, "--database-url="+reader)
	conn = pgtest.Connect(t, reader)
	for _, statement := range []string{
		`SELECT FROM badged.audit`, `SELECT FROM badged.jobs`, `UPDATE badged.users_p00 SET total = 0`,
		`INSERT INTO badged.events_p00 (uuid, payload) VALUES (gen_random_uuid(), '{}')`, `SELECT badged.publish('{}')`,
		`UPDATE badged.events_p00_offsets SET offset_acked = 0`, `SELECT badged.drop_staging_tables(0)`,
	} {
		mayNot(t, conn, statement)
	}
}

// emptyArchive returns the directory of an archive without files.
func emptyArchive(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	a, err := archive.Create(t.Context(), archive.Folder(dir), uuid.New(), partitions)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The role publisher suffices for every way to publish.
func TestPublisherRole(t *testing.T) {
	t.Parallel()
	database := granted(t)
	p := launch(t, nil, "serve", "--listen=127.0.0.1:0", "--database-url="+as(t, database, "badged_server"))
	pool, err := pgxpool.New(t.Context(), as(t, database, "publisher"))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	log, err := events.Open(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	message1 := func(seq int64) events.Event {
		return events.Event{
			ID: fmt.Sprint(seq), Source: "backend", Type: events.MessageDelivered, TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			Time: time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC),
			Data: events.Data{ConversationID: "c", Seq: seq, UserIDs: []string{"ann"}},
		}
	}
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := events.Publish(t.Context(), tx, message1(1)); err != nil {
			return err
		}
		_, err := log.Publish(t.Context(), tx, message1(2))
		return err
	}); err != nil {
		t.Error("in a pgx.Tx:", err)
	}
	if _, err := log.Append(t.Context(), message1(3)); err != nil {
		t.Error("Log.Append:", err)
	}
	inRoom := func(typ events.Type, id string, d events.Data) events.Event {
		d.ConversationID = "room"
		return events.Event{ID: id, Source: "backend", Type: typ, Data: d}
	}
	join, post := inRoom(events.RoomJoined, "join", events.Data{UserIDs: []string{"bob"}}), inRoom(events.RoomPosted, "post", events.Data{Seq: 1})
	if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := events.Publish(t.Context(), tx, join, post)
		return err
	}); err != nil {
		t.Error("to a room in a pgx.Tx:", err)
	}
	join.ID, join.Data.UserIDs, post.ID, post.Data.Seq = "join too", []string{"cem"}, "post too", 2
	if _, err := log.Append(t.Context(), join, post); err != nil {
		t.Error("to a room with Log.Append:", err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := events.Publish(t.Context(), tx, message1(4)); err != nil {
		t.Error("in a sql.Tx:", err)
	}
	if err := tx.Commit(); err != nil {
		t.Error("in a sql.Tx:", err)
	}
	stock, err := watermillsql.NewPublisher(db, watermillsql.PublisherConfig{SchemaAdapter: topics.NewSchema(0)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := message1(5)
	payload, err := e.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	msg := message.NewMessage(e.Key().String(), payload)
	msg.Metadata.Set("correlation_id", "1")
	if err := stock.Publish(events.Topic(log.PartitionOf("ann")), msg); err != nil {
		t.Error("by the stock publisher:", err)
	}
	var last int64
	for seq, query := range map[int64]string{6: `SELECT badged.publish($1)`, 7: `SELECT badged.publish_batch(jsonb_build_array($1::jsonb))`} {
		e := message1(seq)
		payload, err := e.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if err := pool.QueryRow(t.Context(), query, payload).Scan(&last); err != nil {
			t.Errorf("%s: %v", query, err)
		}
	}
	wantTotal(t, p, "ann", fmt.Sprint(last), 7)
}

// The role consumer suffices for subscribers, with badged's package and with watermill's, and for
// nothing else.
func TestConsumerRole(t *testing.T) {
	t.Parallel()
	database := granted(t)
	p := launch(t, nil, "serve", "--listen=127.0.0.1:0", "--database-url="+as(t, database, "badged_server"))
	total(t, p, "ann", publish(t, p, delivered("team", 1, `"ann"`)))
	pool, err := pgxpool.New(t.Context(), as(t, database, "consumer"))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	log, err := events.Open(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	subscriber, err := topics.NewSubscriber(topics.SubscriberConfig{Pool: pool, Log: log, ConsumerGroup: "push"})
	if err != nil {
		t.Fatal(err)
	}
	defer subscriber.Close()
	stock, err := watermillsql.NewSubscriber(stdlib.OpenDBFromPool(pool), watermillsql.SubscriberConfig{
		ConsumerGroup: "audit", SchemaAdapter: topics.NewSchema(0), OffsetsAdapter: topics.NewOffsets(),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stock.Close()
	home := events.Topic(log.PartitionOf("ann"))
	for name, s := range map[string]message.Subscriber{"subscriber": subscriber, "stock subscriber": stock} {
		messages, err := s.Subscribe(t.Context(), home)
		if err != nil {
			t.Fatal(name, err)
		}
		select {
		case msg := <-messages:
			if !strings.Contains(string(msg.Payload), `"team"`) {
				t.Errorf("the %s gets %s", name, msg.Payload)
			}
			msg.Ack()
		case <-time.After(patience):
			t.Errorf("the %s gets nothing", name)
		}
	}

	conn := pgtest.Connect(t, as(t, database, "consumer"))
	for _, statement := range []string{
		`INSERT INTO badged.` + home + ` (uuid, payload) VALUES (gen_random_uuid(), '{}')`, `DELETE FROM badged.` + home, `UPDATE badged.` + home + ` SET payload = '{}'`,
		`DELETE FROM badged.` + home + `_offsets`, `UPDATE badged.` + home + `_offsets SET pending = '{}'`, `UPDATE badged.settings SET partitions = 1`,
		`SELECT FROM badged.users`, `SELECT FROM badged.conversations`, `SELECT FROM badged.audit`, `SELECT FROM badged.dead_letters`,
		`SELECT badged.publish('{}')`, `SELECT badged.extend_log(0, '7 days', 1048576)`, `SELECT badged.index_log(0)`,
	} {
		mayNot(t, conn, statement)
	}
}

// A stolen role publisher cannot stop a server or forge badged's own events. Anything invalid that it
// can store in the log becomes a dead letter.
func TestPublisherRoleAttacks(t *testing.T) {
	t.Parallel()
	database := granted(t)
	url := as(t, database, "publisher")
	server := as(t, database, "badged_server")
	p := launch(t, nil, "serve", "--listen=127.0.0.1:0", "--database-url="+server)
	wantTotal(t, p, "ann", publish(t, p, delivered("team", 1, `"ann"`)), 1)
	conn := pgtest.Connect(t, url)
	home := events.Topic(events.PartitionOf("ann", partitions))
	const row = `gen_random_uuid(), '{"stray": true}'`
	statements := []string{
		`INSERT INTO badged.` + home + ` (uuid, payload, transaction_id) VALUES (` + row + `, '99999999999')`,
		`INSERT INTO badged.` + home + ` (uuid, payload, "offset") VALUES (` + row + `, -1)`,
		`INSERT INTO badged.` + home + ` (uuid, payload, created_at) VALUES (` + row + `, 'infinity')`,
		`INSERT INTO badged.` + home + ` (uuid, payload, era) VALUES (` + row + `, 1)`,
		`INSERT INTO badged.` + home + ` (uuid, payload, own) VALUES (` + row + `, true)`,
		`INSERT INTO badged.` + home + ` (uuid, payload, events) VALUES (` + row + `, 0)`,
		`INSERT INTO badged.` + home + ` (uuid, payload, events) VALUES (` + row + `, 1001)`,
		`INSERT INTO badged.` + home + `_r1 (uuid, payload) VALUES (` + row + `)`,
		`INSERT INTO badged.` + home + ` (uuid, payload) VALUES (gen_random_uuid(), convert_to(repeat('x', 60000000), 'UTF8'))`,
		`INSERT INTO badged.` + home + ` (uuid, payload, metadata) VALUES (` + row + `, to_json(repeat('x', 60000000)))`,
		`INSERT INTO badged.` + home + ` (uuid, payload) VALUES (` + row + `) RETURNING transaction_id`,
		`COPY badged.` + home + ` (uuid, payload, transaction_id) FROM STDIN`,
		`COPY badged.` + home + ` TO STDOUT`,
		`UPDATE badged.` + home + ` SET payload = '{}'`, `DELETE FROM badged.` + home, `TRUNCATE badged.` + home, `LOCK TABLE badged.` + home + ` IN ACCESS EXCLUSIVE MODE`,
		`SELECT FROM badged.` + home, `SELECT FROM badged.users`, `SELECT FROM badged.conversations`, `SELECT FROM badged.audit`,
		`INSERT INTO badged.` + home + `_offsets (consumer_group, offset_acked, last_processed_transaction_id) VALUES ('x', 1, '1')`,
		`UPDATE badged.settings SET partitions = 1`, `UPDATE badged.` + home + `_offsets SET offset_acked = 1`,
		`INSERT INTO badged.dead_letters (partition_id, transaction_id, "offset", uuid, reason) VALUES (0, '1', 1, gen_random_uuid(), '')`,
		`CREATE FUNCTION badged.x() RETURNS int LANGUAGE sql AS 'SELECT 1'`, `CREATE TABLE badged.x ()`,
		`SELECT setval('badged.` + home + `_offset_seq1', 1)`,
	}
	for _, statement := range statements {
		if strings.HasPrefix(statement, "SELECT setval") && !relationExists(t, database, "badged."+home+"_offset_seq1") {
			statement = strings.Replace(statement, "_seq1", "_seq", 1)
		}
		mayNot(t, conn, statement)
	}

	// All functions that the role may call.
	if got := rowsOf(t, database, `SELECT proname::text FROM pg_proc
WHERE pronamespace = 'badged'::regnamespace AND has_function_privilege('publisher', oid, 'EXECUTE') ORDER BY 1`); !slices.Equal(got, []string{"above", "living_partitions", "log_era", "log_needs_repair", "pending_at", "position_of", "publish", "publish_batch", "rank", "refuse_batch", "refuse_missing"}) {
		t.Errorf("a publisher may call %q", got)
	}

	// Functions that run as the owner must ignore objects in the caller's
	// search_path.
	sql(t, database, `CREATE SCHEMA trap AUTHORIZATION publisher`)
	pgtest.Exec(t, conn, `
CREATE FUNCTION trap.caught() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'caught: running as %', current_user; END $$;
CREATE FUNCTION trap.pg_current_xact_id() RETURNS xid8 LANGUAGE sql AS 'SELECT trap.caught()::text::xid8';
CREATE FUNCTION trap.pg_column_size(bytea) RETURNS integer LANGUAGE sql AS 'SELECT trap.caught()::integer';
CREATE FUNCTION trap.format(text, text) RETURNS text LANGUAGE sql AS 'SELECT trap.caught()::text';
CREATE FUNCTION trap.floor(double precision) RETURNS double precision LANGUAGE sql AS 'SELECT trap.caught()';
CREATE TEMPORARY TABLE log_home AS SELECT true AS singleton, 1::bigint AS era;
CREATE TEMPORARY TABLE settings AS SELECT 1 AS partitions, 1::bigint AS settled_era;
SET search_path = trap, pg_temp, pg_catalog`)
	var needed bool
	if err := conn.QueryRow(t.Context(), `SELECT badged.log_needs_repair()`).Scan(&needed); err != nil || needed {
		t.Errorf("with traps in the search path the log needs renumbering: %t, %v", needed, err)
	}

	forged := fmt.Sprintf(`{"specversion":"1.0","id":"x","source":"badged/expiry","type":"conversation.%sexpired","data":{"conversation_id":"team","user_ids":["ann"],"up_to_seq":1}}`, "")
	named := strings.Replace(delivered("blamed", 1, `"ann"`), `"data"`, `"publishedby":"crm","data"`, 1)
	strays := []string{
		named, `{"erased":[{"type":"room.joined","conversation_id":"team","users":9}]}`, forged, strings.Replace(forged, "expired", `\u0065xpired`, 1), `{}`, `[]`, `"` + strings.Repeat("x", 8<<20-100) + `"`,
		strings.Replace(delivered("other", 1, `"ann"`), `"ann"`, `"`+usersIn((events.PartitionOf("ann", partitions)+1)%partitions, 1)[0]+`"`, 1),
	}
	for _, payload := range strays {
		pgtest.Exec(t, conn, `INSERT INTO badged.`+home+` (uuid, payload) VALUES (gen_random_uuid(), convert_to($1, 'UTF8'))`, payload)
	}
	pgtest.Exec(t, conn, `INSERT INTO badged.`+home+` (uuid, payload) VALUES (gen_random_uuid(), NULL), (gen_random_uuid(), '\\x28b52ffd00')`)
	if _, err := conn.PgConn().CopyFrom(t.Context(), strings.NewReader("00000000-0000-0000-0000-000000000001\t{\"copied\": true}\n"), `COPY badged.`+home+` (uuid, payload) FROM STDIN`); err == nil {
		t.Error("a publisher can copy into the log")
	}
	wantTotal(t, p, "ann", publish(t, p, delivered("team", 2, `"ann"`)), 2)
	p.mustStop()
	p = launch(t, nil, "serve", "--listen=127.0.0.1:0", "--database-url="+server)
	wantTotal(t, p, "ann", publish(t, p, delivered("team", 3, `"ann"`)), 3)
	must(t, "verify", "--database-url="+server)
	if n := len(rowsOf(t, database, `SELECT reason FROM badged.dead_letters`)); n != len(strays)+2 {
		t.Errorf("%d dead letters, want %d", n, len(strays)+2)
	}
	if got := rowsOf(t, database, `SELECT reason FROM badged.dead_letters WHERE reason LIKE '%itself%'`); len(got) != 4 {
		t.Errorf("%d dead letters name what was forged, want 4", len(got))
	}
	if blamed := must(t, "log", "--database-url="+server, "--published-by=crm"); blamed != "" {
		t.Errorf("a key is blamed for %s", blamed)
	}
	const group = "INSERT INTO badged.events_p00 (uuid, payload, transaction_id) VALUES (gen_random_uuid(), '{}', '99999999999')"
	sql(t, database, group) // as the owner
	launch(t, nil, "serve", "--listen=127.0.0.1:0", "--database-url="+server)
}

func relationExists(t *testing.T, database, name string) bool {
	t.Helper()
	return rowsOf(t, database, `SELECT (to_regclass('`+name+`') IS NOT NULL)::text`)[0] == "true"
}

// rowsOf returns the rows of a query with one text column.
func rowsOf(t *testing.T, database, query string) []string {
	t.Helper()
	rows, err := pgtest.Connect(t, database).Query(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return all
}
