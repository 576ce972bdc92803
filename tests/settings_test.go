package tests

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// hostileSettings returns settings of a database that change how values are written, the order of
// rows, times, the visibility of rows in a transaction, or plans.
func hostileSettings() map[string]string {
	all := map[string]string{
		"bytea_output": "escape", "DateStyle": "German, DMY", "IntervalStyle": "sql_standard", "TimeZone": "Asia/Kathmandu",
		"extra_float_digits": "-15", "client_encoding": "LATIN1", "standard_conforming_strings": "off", "escape_string_warning": "on",
		"backslash_quote": "on", "array_nulls": "off", "transform_null_equals": "on", "quote_all_identifiers": "on", "xmloption": "document",
		"search_path": "evil, pg_catalog", "default_text_search_config": "pg_catalog.german", "timezone_abbreviations": "India",
		"default_transaction_isolation": "serializable", "default_transaction_deferrable": "on", "statement_timeout": "400ms", "lock_timeout": "1ms",
		"idle_in_transaction_session_timeout": "20ms", "idle_session_timeout": "500ms", "row_security": "off", "exit_on_error": "on",
		"client_min_messages": "debug5", "plan_cache_mode": "force_custom_plan", "jit": "on", "jit_above_cost": "0",
		"jit_inline_above_cost": "0", "jit_optimize_above_cost": "0", "geqo_threshold": "2", "geqo_seed": "0.9", "geqo_effort": "1",
		"join_collapse_limit": "1", "from_collapse_limit": "1", "constraint_exclusion": "off", "cursor_tuple_fraction": "1",
		"force_parallel_mode": "on", "parallel_setup_cost": "0", "parallel_tuple_cost": "0", "min_parallel_table_scan_size": "0",
		"random_page_cost": "10000", "cpu_tuple_cost": "10000", "work_mem": "64kB", "temp_buffers": "800kB", "hash_mem_multiplier": "1",
		"synchronize_seqscans": "on", "check_function_bodies": "off", "stats_fetch_consistency": "snapshot", "synchronous_commit": "local",
		"restrict_nonsystem_relation_kind": "view", "gin_fuzzy_search_limit": "1", "default_toast_compression": "lz4",
	}
	for _, method := range strings.Fields("bitmapscan gathermerge hashagg hashjoin incremental_sort indexonlyscan indexscan material " +
		"memoize mergejoin nestloop partition_pruning sort tidscan") {
		all["enable_"+method] = "off"
	}
	return all
}

// ofBadged reports whether only badged's sessions get a setting. For publishers it would end their
// sessions, refuse their statements, or delay statements by JIT compilation.
func ofBadged(setting string) bool {
	return strings.Contains(setting, "timeout") || strings.HasPrefix(setting, "jit") ||
		setting == "exit_on_error" || setting == "restrict_nonsystem_relation_kind"
}

// hostileDatabase creates a database with an English collation, hostile settings, and functions that
// hide built-in functions. It returns the URLs for badged and for publishers.
func hostileDatabase(t *testing.T) (badged, publishers string) {
	t.Helper()
	server := pgtest.NewServer(t)
	conn, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	exec := func(conn *pgx.Conn, statement string) {
		t.Helper()
		pgtest.Exec(t, conn, statement)
	}
	defer conn.Close(t.Context())
	exec(conn, `CREATE DATABASE hostile TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US-u-kf-upper'`)
	exec(conn, `CREATE ROLE hostile SUPERUSER LOGIN`)
	at, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	at.Path = "/hostile"
	own := pgtest.Connect(t, at.String())
	exec(own, `CREATE SCHEMA evil;
CREATE FUNCTION evil.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT '1970-01-01 00:00:00+00'::timestamptz $$;
CREATE FUNCTION evil.count(bigint) RETURNS bigint LANGUAGE sql AS $$ SELECT 7::bigint $$;
CREATE FUNCTION evil.least(bigint, bigint) RETURNS bigint LANGUAGE sql AS $$ SELECT 7::bigint $$;
CREATE FUNCTION evil.int8eq(bigint, bigint) RETURNS boolean LANGUAGE sql AS $$ SELECT false $$;
CREATE OPERATOR evil.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.int8eq)`)
	for setting, value := range hostileSettings() {
		object := "DATABASE hostile"
		if ofBadged(setting) {
			object = "ROLE hostile"
		}
		if setting != "search_path" {
			value = "'" + value + "'"
		}
		exec(conn, fmt.Sprintf(`ALTER %s SET %s = %s`, object, setting, value))
	}
	publishers = at.String()
	query := at.Query()
	query.Set("user", "hostile")
	at.RawQuery = query.Encode()
	return at.String(), publishers
}

// settingsStory publishes in every way, and returns the output of each command about the users.
func settingsStory(t *testing.T, database, publishers string) (said []string) {
	t.Helper()
	at := "--database-url=" + database
	must(t, "migrate", "up", "--partitions=2", at)
	p := serve(t, database, "--admin-keys=ops="+adminKey, "--reconcile-interval=1h") // reconciliation would show a client the wrong row
	say := func(args ...string) {
		t.Helper()
		said = append(said, normal(strings.Join(args, " ")+"\n"+must(t, append(args, at)...)))
	}
	both := `"ann","bob","Émile ☃"`
	p.mustPost(delivered("lunch", 1, both),
		event("mention", "message.delivered", `{"conversation_id":"Ärger","seq":9007199254740993,"user_ids":[`+both+`],"mentioned_user_ids":["ann"],"category":"über","notification":{"title":"a\\b","body":"☃","data":{"k":"\\x41"}}}`),
		event("join", "room.joined", `{"conversation_id":"room","user_ids":["ann","bob"]}`),
		event("post", "room.posted", `{"conversation_id":"room","seq":5,"sender_id":"bob"}`))
	sql(t, publishers, `SELECT badged.publish($1::jsonb)`, event("sql", "message.delivered", `{"conversation_id":"sql","seq":1,"user_ids":["ann","bob"]}`))
	sql(t, publishers, `SELECT badged.publish($1::jsonb)`, `{"specversion":"1.0","id":"timed","source":"test","type":"message.delivered","time":"2026-03-04T05:06:07.123456+05:45","datacontenttype":"application/json","data":{"conversation_id":"sql","seq":2,"user_ids":["ann"]}}`)
	sql(t, publishers, `SELECT badged.publish_batch($1::jsonb)`, "["+event("read", "conversation.read", `{"conversation_id":"lunch","user_ids":["bob"],"up_to_seq":1}`)+"]")
	position := p.mustPost(delivered("last", 1, `"ann"`), delivered("last", 1, `"bob","Émile ☃"`))
	for i, user := range []string{"ann", "bob", "%C3%89mile%20%E2%98%83"} {
		if n, want := total(t, p, user, position), []int64{6, 3, 3}[i]; n != want {
			t.Errorf("the total of %s is %d, want %d", user, n, want)
		}
		_, _, list := request(t, http.MethodGet, p.url+"/v1/users/"+user+"/conversations", "", "")
		said = append(said, normal(list))
	}
	client := connect(t, p.url, "ann")
	client.awaitTotal(6)
	for _, user := range []string{"ann", "bob", "Émile ☃"} {
		say("user", "show", user)
		say("user", "explain", user)
		say("user", "export", user)
	}
	say("log", "--conversation=sql")
	say("verify")
	sql(t, publishers, `UPDATE badged.users SET total = total + 7 WHERE user_id = 'ann'`)
	if out, stderr, code := command(t, "verify", at); code != 1 || strings.Count(out, `user "`) != 1 || !strings.Contains(out, `user "ann"`) {
		t.Errorf("verify of a wrong row: exit %d\n%s%s", code, out, stderr)
	}
	say("rebuild", "--quiet", "--user=ann")
	say("verify")
	say("rebuild", "--quiet")
	say("verify")
	cutLog(t, publishers)
	archive := filepath.Join(t.TempDir(), "archive")
	must(t, archiving(database, archive)...)
	say("verify", "--archive="+archive)
	must(t, "user", "erase", "bob", "--archive="+archive, at)
	say("verify", "--archive="+archive)
	say("user", "show", "ann")
	out, _, code := command(t, "user", "show", "bob", at)
	if said = append(said, normal(out)); code != 3 {
		t.Errorf("showing an erased user exits with %d", code)
	}
	say("deadletters", "list")
	p.mustPost(delivered("after", 1, `"ann"`))
	client.awaitTotal(7)
	p.saysNoError()
	if out := p.out.String(); strings.Contains(out, "level=WARN msg=\"the ownership session ended") || strings.Contains(out, "differs from the log") {
		t.Errorf("the server says\n%s", out)
	}
	return said
}

var (
	variable = regexp.MustCompile(`[0-9]+/[0-9]+(/[0-9]+)?|20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|\+00:00)|epoch +[0-9a-f]{12}|"epoch":"[0-9a-f]+"|"(uuid|hash)":"[^"]+"|"version":[0-9]+|"delivered_hour":[0-9]+|=/.*/archive`)
	kept     = regexp.MustCompile(`^2026-03-0`)
	blanks   = regexp.MustCompile(` {2,}`)
)

// normal returns output without the parts that differ from run to run.
func normal(out string) string {
	out = variable.ReplaceAllStringFunc(out, func(found string) string {
		if kept.MatchString(found) {
			return found
		}
		return "…"
	})
	return blanks.ReplaceAllString(out, "  ")
}

// Settings of a database change no number, no check of events and no text of badged: its sessions set
// the settings that they depend on, and so do the functions that publishers call.
func settingsOfADatabase(t *testing.T) {
	ordinary := pgtest.NewDB(t, pgtest.Template{})
	want := settingsStory(t, ordinary, ordinary)
	badged, publishers := hostileDatabase(t)
	got := settingsStory(t, badged, publishers)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what badged says (-of an ordinary database +of a hostile one):\n%s", diff)
	}
	out, _, _ := command(t, "config", "check", "--connect", "--publisher-keys=a=sha256:"+strings.Repeat("ab", 32), "--database-url="+badged)
	for setting, value := range hostileSettings() {
		if odd := setting + "=" + value; strings.Contains(out, odd) == leftToOperators(setting) {
			t.Errorf("config check does not name %s, or names what badged leaves to operators:\n%s", odd, out)
		}
	}
}

// leftToOperators reports whether badged does not override a hostile setting.
func leftToOperators(setting string) bool {
	switch setting {
	case "escape_string_warning", "xmloption", "default_text_search_config", "row_security", "check_function_bodies",
		"stats_fetch_consistency", "synchronous_commit", "gin_fuzzy_search_limit", "default_toast_compression", "synchronize_seqscans",
		"random_page_cost", "work_mem", "temp_buffers", "hash_mem_multiplier":
		return true
	}
	return strings.HasPrefix(setting, "jit_") || strings.HasPrefix(setting, "geqo_") || strings.HasPrefix(setting, "cpu_") ||
		strings.HasPrefix(setting, "parallel_") || strings.HasPrefix(setting, "min_parallel_")
}

// With hostile settings too, a server with --self-heal heals a wrong row once, and changes no other
// row.
func TestSelfHealWithSettingsOfADatabase(t *testing.T) {
	t.Parallel()
	database, publishers := hostileDatabase(t)
	must(t, "migrate", "up", "--partitions=2", "--database-url="+database)
	p := serve(t, database, "--verify-interval=10ms", "--self-heal")
	p.mustPost(delivered("lunch", 1, `"ann","bob","Émile ☃"`), event("mention", "message.delivered", `{"conversation_id":"Ärger","seq":9007199254740993,"user_ids":["ann"],"category":"über"}`),
		event("join", "room.joined", `{"conversation_id":"room","user_ids":["ann"]}`), event("post", "room.posted", `{"conversation_id":"room","seq":5,"sender_id":"bob"}`))
	awaitTotalOf(t, p, "ann", 3)
	counts := func() (users, wrong, healed float64) {
		page := metricsOf(t, p)
		return metric(t, page, "badged_verify_users_total"), metric(t, page, "badged_verify_mismatches_total"), metric(t, page, "badged_verify_healed_total")
	}
	sql(t, publishers, `UPDATE badged.users SET total = total + 7 WHERE user_id = 'ann'`)
	await(t, "the row to be healed", func() bool {
		_, _, healed := counts()
		return healed > 0
	})
	first, _, _ := counts()
	for range polls(t, "the other users to be verified, and this one again") {
		users, wrong, healed := counts()
		if wrong != 1 || healed != 1 {
			t.Fatalf("one row was wrong; %v users differ from the log, and %v were healed:\n%s", wrong, healed, p.out)
		}
		if users > first+20 {
			break
		}
	}
	must(t, "verify", "--database-url="+database)
	wantTotal(t, p, "ann", "0", 3)
}

// outboxStory publishes through an outbox to a server. It returns the stored events and their effects.
func outboxStory(t *testing.T, p *process, outbox, publishers string) (said []string) {
	t.Helper()
	must(t, "relay", "install", "--outbox-url="+outbox)
	publish := func(function, events string) {
		t.Helper()
		sql(t, publishers, `SELECT badged.`+function+`($1::jsonb)`, events)
	}
	named := `{"specversion":"1.0","id":"%s","source":"outbox","type":"message.delivered","time":"%s","subject":"","data":{"conversation_id":"\u2603","seq":%d,"user_ids":["ann","b\u00f6b"]%s}}`
	publish("publish", fmt.Sprintf(named, "1", "2026-03-04T05:06:07.123456+05:45", 1, ""))
	publish("publish", fmt.Sprintf(named, "2", "2026-03-04T05:06:07Z", 9007199254740993, `,"notification":{"title":"a\\b","body":"\u2603"}`))
	publish("publish", event("3", "message.delivered", `{"conversation_id":"now","seq":1,"user_ids":["ann"]}`))
	publish("publish_batch", "["+fmt.Sprintf(named, "4", "0001-01-01T00:00:00Z", 2, "")+","+event("5", "conversation.read", `{"conversation_id":"now","user_ids":["ann"],"up_to_seq":1}`)+"]")
	conn := pgtest.Connect(t, publishers)
	for _, bad := range []string{`SELECT badged.publish('{"id":"6"}')`, `SELECT badged.publish_batch('{}')`, `SELECT badged.publish_batch('[null]')`} {
		_, err := conn.Exec(t.Context(), bad)
		said = append(said, fmt.Sprint(err))
	}
	utf8 := pgtest.Connect(t, publishers+"&client_encoding=UTF8")
	list := func(query string) {
		t.Helper()
		rows, _ := utf8.Query(t.Context(), query)
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			said = append(said, normal(text))
		}
	}
	list(`SELECT payload FROM badged.outbox ORDER BY "offset"`)
	sql(t, publishers, `INSERT INTO badged.outbox (transaction_id, payload) VALUES (pg_current_xact_id(), '{"type":"message.sent"}')`)
	startRelay(t, outbox, p)
	awaitTotalOf(t, p, "ann", 3)
	until(t, publishers, `SELECT NOT EXISTS (SELECT FROM badged.outbox)`)
	if status := must(t, "relay", "status", "--outbox-url="+outbox); !strings.HasPrefix(status, "0 events wait") {
		t.Errorf("the status is %s", status)
	}
	list(`SELECT reason FROM badged.outbox_refused`)
	for _, user := range []string{"ann", "b%C3%B6b"} {
		_, _, list := request(t, http.MethodGet, p.url+"/v1/users/"+user+"/conversations", "", "")
		said = append(said, normal(list))
	}
	return said
}

// Settings of an outbox's database do not change which events the outbox stores or refuses, and the
// relay carries the events.
func TestSettingsOfAnOutbox(t *testing.T) {
	t.Parallel()
	ordinary := pgtest.NewDB(t, pgtest.Template{})
	want := outboxStory(t, serve(t, oneDatabase(t)), ordinary, ordinary)
	badged, publishers := hostileDatabase(t)
	got := outboxStory(t, serve(t, oneDatabase(t)), badged, publishers)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what becomes of events (-in an ordinary database +in a hostile one):\n%s", diff)
	}
}

// If sessions cannot begin or cannot write because of a setting of the role, the error names the
// setting and says what to do.
func TestSettingsOfARoleThatCannotWork(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t)
	database := server.NewDB(t, migrated())
	sql(t, database, `CREATE ROLE app LOGIN SUPERUSER`)
	for setting, want := range map[string]string{
		"session_preload_libraries = 'nowhere'": "session_preload_libraries or local_preload_libraries",
		"local_preload_libraries = 'nowhere'":   "session_preload_libraries or local_preload_libraries",
		"default_transaction_read_only = on":    "default_transaction_read_only",
		"session_replication_role = replica":    "session_replication_role",
	} {
		sql(t, database, `ALTER ROLE app RESET ALL`)
		sql(t, database, `ALTER ROLE app SET `+setting)
		url := "--database-url=" + as(t, database, "app")
		_, stderr, code := command(t, "user", "erase", "zoe", url)
		if code != 1 || !strings.Contains(stderr, want) || !strings.Contains(stderr, "ALTER ROLE … RESET") || strings.Contains(stderr, "Is Postgres running") {
			t.Errorf("with %s a command exits with %d: %s", setting, code, stderr)
		}
		out, stderr, code := command(t, "config", "check", "--connect", "--publisher-keys=a=sha256:"+strings.Repeat("ab", 32), url)
		if name, _, _ := strings.Cut(setting, " "); code != 1 || !strings.Contains(out, name) {
			t.Errorf("with %s the check exits with %d: %s%s", setting, code, out, stderr)
		}
	}
}

// A server at the address of Redis announces an answer larger than Redis sends. No process crashes,
// and `config check` shows the announced size.
func TestAServerThatIsNotRedis(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	answers := []string{"*2147483646\r\n", "%2147483646\r\n"}
	says := []string{"announces more than Redis sends", "is not one of RESP2: is it Redis?"}
	var served atomic.Int64
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = io.WriteString(conn, answers[served.Load()])
			_, _ = conn.Read(make([]byte, 4096)) // waits until the client closes the connection
			_ = conn.Close()
		}
	}()
	database := newDatabase(t)
	for i, answer := range answers {
		served.Store(int64(i))
		out, stderr, code := command(t, "config", "check", "--connect", "--publisher-keys=a=sha256:"+strings.Repeat("ab", 32),
			"--database-url="+database, "--redis-url=redis://"+listener.Addr().String(), "--bus-key=0123456789abcdef0123456789abcdef")
		if code != 1 || !strings.Contains(out, says[i]) {
			t.Errorf("%q: exit %d\n%s%s", answer, code, out, stderr)
		}
	}
}
