package tests

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/snippets"
)

// pgBouncer runs a PgBouncer in front of a database and returns the URL through it. settings are
// additional lines of its configuration.
func pgBouncer(t *testing.T, database string, settings ...string) (throughIt string) {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			t.Fatal("there is no pgbouncer: install it (Debian: apt-get install pgbouncer)")
		}
	}
	at, err := pgx.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	address := freePort(t)
	_, port, _ := net.SplitHostPort(address)
	dir := pgtest.OpenDir(t)
	file := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\n* = host=%s port=%d user=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %s\nauth_type = any\nunix_socket_dir =\n%s\n",
		at.Host, at.Port, at.User, port, strings.Join(settings, "\n"))
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"-q", file}
	if os.Geteuid() == 0 { // PgBouncer refuses to run as root, so it runs as the user of Postgres
		args = append([]string{"-u", "postgres"}, args...)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, args...)
	said := &output{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("PgBouncer said:\n%s", said)
		}
	})
	u := url.URL{Scheme: "postgres", User: url.User(at.User), Host: address, Path: "/" + at.Database, RawQuery: "sslmode=disable"}
	for range polls(t, "PgBouncer") {
		if conn, err := pgx.Connect(t.Context(), u.String()); err == nil {
			_ = conn.Close(t.Context())
			break
		}
	}
	return u.String()
}

// checkConnect runs `config check --connect` with valid settings.
func checkConnect(t *testing.T, args ...string) (stdout string, code int) {
	t.Helper()
	stdout, stderr, code := command(t, append([]string{
		"config", "check", "--connect", "--publisher-keys=a=sha256:" + strings.Repeat("ab", 32),
	}, args...)...)
	return stdout + stderr, code
}

// With the settings of docs/postgres.md, everything works.
func TestPgBouncerInSessionMode(t *testing.T) {
	t.Parallel()
	database := pgtest.NewDB(t, pgtest.Template{})
	at, err := pgx.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	page := snippets.With(t, "docs/postgres.md", "[databases]", "ini").Text
	here := strings.Replace(page, "chat = host=db1", fmt.Sprintf("%s = host=%s port=%d user=%s", at.Database, at.Host, at.Port, at.User), 1)
	if here == page {
		t.Fatalf("the page does not name the host db1: %s", page)
	}
	through := pgBouncer(t, database, here)
	must(t, "migrate", "up", fmt.Sprintf("--partitions=%d", partitions), "--database-url="+through)
	if said, code := checkConnect(t, "--database-url="+through); code != 0 || !strings.Contains(said, "behind a session pooler") {
		t.Errorf("config check exits with %d and prints\n%s", code, said)
	}
	p := serve(t, through)
	throughEverything(t, through, p, p)
	second := serve(t, through, "--redis-url="+newRedis(t).URL(), "--roles=projector") // owns its share of the partitions, and later all of them
	second.awaitSays("owning partitions")
	p.kill()
	p = serve(t, through)
	position := publish(t, p, delivered("after", 1, `"eve"`))
	wantTotal(t, p, "eve", position, 1)
}

// If PgBouncer shares sessions between clients, commands and servers fail with an error that says what
// to do.
func TestPgBouncerInTransactionMode(t *testing.T) {
	t.Parallel()
	for _, settings := range [][]string{
		{"pool_mode = transaction"},
		{"pool_mode = statement", "default_pool_size = 2"},
		{"pool_mode = transaction", "server_round_robin = 1", "min_pool_size = 5"},
		{"pool_mode = transaction", "default_pool_size = 1", "ignore_startup_parameters = enable_seqscan, enable_hashjoin, enable_mergejoin, plan_cache_mode, idle_session_timeout"},
	} {
		database := oneDatabase(t)
		through := pgBouncer(t, database, settings...)
		const want = "gives each transaction another session of Postgres"
		if said, code := checkConnect(t, "--database-url="+through); code != 1 || !strings.Contains(said, "failure  Postgres: ") || !strings.Contains(said, want) {
			t.Errorf("%q: config check exits with %d and prints\n%s", settings, code, said)
		}
		for _, args := range [][]string{
			{"serve", "--listen=127.0.0.1:0", "--publisher-keys=a=" + publisherKey}, {"migrate", "up"}, {"lag"}, {"verify"},
		} {
			_, said, code := command(t, append(args, "--database-url="+through)...)
			if code != 1 || !strings.Contains(said, want) || !strings.Contains(said, "pool_mode = session") {
				t.Errorf("%q: %s exits with %d and prints\n%s", settings, args[0], code, said)
			}
		}
	}
}

// If the pooler has only one session for badged, commands fail with an error that says what to do.
func TestPgBouncerWithOneSession(t *testing.T) {
	t.Parallel()
	database := oneDatabase(t)
	through := pgBouncer(t, database, "pool_mode = session", "default_pool_size = 1")
	if said, code := checkConnect(t, "--database-url="+through); code != 1 || !strings.Contains(said, "no second session of Postgres free for badged") {
		t.Errorf("config check exits with %d and prints\n%s", code, said)
	}
}
