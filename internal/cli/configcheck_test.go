package cli

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/privateredis"
	"github.com/badged/badged/internal/devtest/snippets"
)

// checkArgs returns `config check` with valid settings.
func checkArgs(databaseURL string, more ...string) []string {
	return append([]string{
		"config", "check", "--database-url=" + databaseURL, "--jwt-keys=" + jwtKeys,
		"--publisher-keys=chat=sha256:" + strings.Repeat("ab", 32), "--admin-keys=ops=sha256:" + strings.Repeat("cd", 32),
	}, more...)
}

func TestConfigCheck(t *testing.T) {
	r := badged(t, checkArgs("postgres://badged:hunter2@db.example/chat?sslmode=verify-full")...)
	if r.code != exitDone || r.err != "" {
		t.Errorf("good settings: exit code %d, stderr %s", r.code, r.err)
	}
	for _, want := range []string{
		"SETTING ", "\ndatabase-url            postgres://badged:***@db.example/chat?sslmode=verify-full ", "\ndrain-timeout           5s ", " default\n", " flag\n",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("it does not print %q:\n%s", want, r.out)
		}
	}
	if strings.Contains(r.out, "hunter2") || strings.Contains(r.out, "Warnings") {
		t.Errorf("it tells a secret, or warns:\n%s", r.out)
	}

	file := filepath.Join(t.TempDir(), "badged.yaml")
	if err := os.WriteFile(file, []byte("lissten: x\npublisher-keys: [hunter2]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"--config=" + file, "config", "check", "--jwt-keys=k=HS256:hunter2", "--redis-url=ftp://x", "--listen=nowhere"},
		{"config", "check", "--jwt-keys=k=HS256:hunter2", "--redis-url", "ftp://x", "--listen", "nowhere", "--config", file},
	} {
		r = badged(t, args...)
		if want := "badged: 6 mistakes in the settings: a server would not start, or not behave as intended\n"; r.code != exitUsage || r.err != want {
			t.Errorf("exit code %d, want %d; stderr %s", r.code, exitUsage, r.err)
		}
		for _, want := range []string{
			"\nMistakes:\n", "  " + file + `:1: "lissten" is not a setting; did you mean listen?` + "\n", "  --database-url (BADGED_DATABASE_URL) is required",
			"  --publisher-keys: key 1: want NAME=SECRET or NAME=sha256:HEX\n", "  --jwt-keys: JWT key k: the secret must have at least 32 bytes, has 7\n",
			"  --redis-url: ", "  --listen nowhere: want HOST:PORT, such as 127.0.0.1:8080\n", "\nWarnings:\n",
		} {
			if !strings.Contains(r.out, want) {
				t.Errorf("it does not print %q:\n%s", want, r.out)
			}
		}
		if strings.Contains(r.out+r.err, "hunter2") {
			t.Errorf("it tells a secret:\n%s", r.out)
		}
	}
}

// looked returns the findings of --connect, from its JSON, and the exit code.
func looked(t *testing.T, databaseURL string, more ...string) (states map[string]string, code int) {
	t.Helper()
	r := badged(t, checkArgs(databaseURL, append(more, "--connect", "--json")...)...)
	var report configReport
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		t.Fatalf("%v in %s%s", err, r.out, r.err)
	}
	states = map[string]string{}
	for _, f := range report.Found {
		states[f.Text] = f.State
	}
	return states, r.code
}

// expect fails unless a finding with a prefix has a state.
func expect(t *testing.T, found map[string]string, state, prefix string) {
	t.Helper()
	for text, s := range found {
		if strings.HasPrefix(text, prefix) && s == state {
			return
		}
	}
	t.Errorf("%s %q is not among %q", state, prefix, found)
}

// The page shows what the command reports about a file with several mistakes.
func TestConfigCheckOfThePage(t *testing.T) {
	shown := snippets.Output(t, "docs/cli.md", "BADGED_JWT_KEY=x badged config check --config badged.yaml --lisen=x")
	t.Chdir(t.TempDir())
	const file = "databse-url: postgres://db.internal/chat\nreconcile-interval: 30\nlisten: 0.0.0.0:8080\nroles: [folder]\npublisher-keys: [chat=0123456789abcdef]\n"
	if err := os.WriteFile("badged.yaml", []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BADGED_JWT_KEY", "x")
	r := badged(t, "config", "check", "--config", "badged.yaml", "--lisen=x")
	snippets.ExpectShape(t, shown, r.out)
}

func TestConfigCheckConnects(t *testing.T) {
	redis, err := privateredis.Start(t.Context(), privateredis.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Stop()
	db := pgtest.NewDB(t, migrated())
	found, code := looked(t, db, "--redis-url="+redis.URL())
	if code != exitDone {
		t.Errorf("exit code %d, want %d: %q", code, exitDone, found)
	}
	for _, want := range []string{"Postgres ", "the server permits ", "schema: version ", "log: 2 partitions", "Postgres: the server meets 8 needs", "privileges: the role has all", "Redis delivers messages"} {
		expect(t, found, isOK, want)
	}
	expect(t, found, isRisk, "shared_buffers is 64 MB")
	expect(t, found, isRisk, "privileges: the role badged has the rights of the schema's owner")

	// The text output.
	r := badged(t, checkArgs(db, "--connect")...)
	if r.code != exitDone || !strings.Contains(r.out, "\nok       log: 2 partitions\n") {
		t.Errorf("exit code %d, printed:\n%s", r.code, r.out)
	}
	// More connections than max_connections: the pools would be smaller.
	found, code = looked(t, withParameter(t, db, "pool_max_conns", "500"))
	expect(t, found, isRisk, "the server permits ")
	if code != exitDone {
		t.Errorf("exit code %d, want %d", code, exitDone)
	}
}

func TestConfigCheckFindsMissingPrivileges(t *testing.T) {
	found, code := looked(t, pgtest.NewDB(t, pgtest.Template{}), "--redis-url=redis://127.0.0.1:1")
	expect(t, found, isFailure, "schema: ")
	expect(t, found, isFailure, "Redis: read the version of Redis: ")
	if code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
	found, _ = looked(t, "postgres://badged:hunter2@127.0.0.1:1/chat")
	expect(t, found, isFailure, "Postgres: connect to the database: failed to connect to ")

	// A role without privileges, and one that may only read.
	server := pgtest.NewServer(t)
	db := server.NewDB(t, migrated())
	conn := pgtest.Connect(t, db)
	pgtest.Exec(t, conn, `CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA badged TO reader; GRANT SELECT ON ALL TABLES IN SCHEMA badged TO reader`)
	found, _ = looked(t, withParameter(t, db, "user", "reader"))
	expect(t, found, isFailure, "privileges: 50 privileges missing, such as INSERT on badged.audit: run `badged migrate grant server reader`")
	pgtest.Exec(t, conn, `INSERT INTO badged.granted_roles VALUES ('reader', 'reader', '')`)
	pgtest.Exec(t, conn, `ALTER ROLE reader SET synchronous_commit = off`)
	found, _ = looked(t, withParameter(t, db, "user", "reader"))
	expect(t, found, isRisk, "synchronous_commit is off")
	expect(t, found, isFailure, "privileges: reader is a role of kind reader; serve as a role of kind server")
	found, _ = looked(t, withParameter(t, server.NewDB(t, pgtest.Template{}), "user", "reader"))
	expect(t, found, isRisk, "schema: reader may not create it")

	// A newer build has migrated the database.
	pgtest.Exec(t, conn, `INSERT INTO badged.schema_migrations (version_id, is_applied) VALUES (99999, true)`)
	found, _ = looked(t, db)
	expect(t, found, isRisk, "schema: migration 99999 of a newer release is applied")
}

// Maintenance creates ranges of the log long after roles got their rights.
func TestConfigCheckAcceptsRangesOfTheLog(t *testing.T) {
	db := pgtest.NewServer(t).NewDB(t, migrated())
	conn := pgtest.Connect(t, db)
	pgtest.Exec(t, conn, `CREATE ROLE chat LOGIN`)
	if r := badged(t, "migrate", "grant", "server", "chat", "--database-url="+db); r.code != exitDone {
		t.Fatalf("exit code %d, stderr %s", r.code, r.err)
	}
	for extended := 0; extended < 2; {
		var more bool
		err := conn.QueryRow(t.Context(), `SELECT badged.extend_log(0, '0', 1)`).Scan(&more)
		if err == nil && !more {
			extended++
			_, err = conn.Exec(t.Context(), `SELECT pg_current_xact_id()`)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var ranges int
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM badged.log_ranges WHERE partition_id = 0`).Scan(&ranges); err != nil || ranges < 2 {
		t.Fatalf("%d ranges, %v", ranges, err)
	}
	redis, err := privateredis.Start(t.Context(), privateredis.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Stop()
	r := badged(t, checkArgs(withParameter(t, db, "user", "chat"), "--connect", "--redis-url="+redis.URL())...)
	ofThePage := regexp.MustCompile(`( \(.*\))?, database \w+, role chat;`).ReplaceAllString(r.out, ", database chat, role badged_server;")
	snippets.ExpectShape(t, snippets.Output(t, "docs/cli.md", "badged config check --connect"), ofThePage)
}

// withParameter sets one parameter of a connection string.
func withParameter(t *testing.T, databaseURL, name, value string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	if u.Scheme == "" { // pairs
		return databaseURL + " " + name + "=" + value
	}
	if name == "user" {
		u.User = nil // which the parameter goes before
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

func TestVersion(t *testing.T) {
	out := mustDo(t, "version")
	ofThePage := strings.NewReplacer(runtime.GOOS+"/"+runtime.GOARCH, "linux/amd64", strings.Fields(out)[1], "v1.2.3").Replace(out)
	snippets.ExpectShape(t, snippets.Output(t, "docs/cli.md", "badged version"), ofThePage)
	if !strings.HasPrefix(out, "badged ") || !strings.Contains(out, "(go1.") || strings.Count(out, "\n") != 1 {
		t.Errorf("it prints %q", out)
	}
	if flag := mustDo(t, "--version"); flag != out {
		t.Errorf("--version prints %q, and version %q", flag, out)
	}
}

func TestHelpOfACommand(t *testing.T) {
	for _, args := range [][]string{{}, {"user"}, {"user", "show"}} {
		if got, want := mustDo(t, append([]string{"help"}, args...)...), mustDo(t, append(args, "--help")...); got != want {
			t.Errorf("help %q prints %q", args, got)
		}
	}
}
