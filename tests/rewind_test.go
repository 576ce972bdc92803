package tests

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/embedpg"
)

// postgresIn starts a Postgres with a data directory below dir. It ends with
// the test.
func postgresIn(t *testing.T, dir string) *embedpg.Server {
	t.Helper()
	s, err := embedpg.Start(t.Context(), embedpg.Config{DataDir: dir, Settings: pgtest.Settings()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Log(err) // some tests kill it
		}
	})
	return s
}

// openDir returns a directory that the user of Postgres may enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "badged-rewind-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// copyTree copies a directory tree with owners and modes.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v\n%s", from, err, out)
	}
}

// baseBackup makes a base backup of a server in the directory pgdata of dir.
func baseBackup(t *testing.T, s *embedpg.Server, dir string, args ...string) {
	t.Helper()
	cfg := parseURL(t, s.URL())
	pgdata := filepath.Join(dir, "pgdata")
	args = append([]string{
		"--pgdata", pgdata, "--host", cfg.Host, "--port", fmt.Sprint(cfg.Port), "--username", cfg.User, "--checkpoint=fast",
	}, args...)
	if out, err := exec.CommandContext(t.Context(), s.Program("pg_basebackup"), args...).CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v\n%s", err, out)
	}
	// The files are ours; as root, Postgres runs as another user.
	owner, err := os.Stat(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	id, _ := owner.Sys().(*syscall.Stat_t)
	own := func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(id.Uid), int(id.Gid))
	}
	if err := filepath.WalkDir(dir, own); err != nil {
		t.Fatal(err)
	}
}

func parseURL(t *testing.T, url string) *pgx.ConnConfig {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// value returns the single value of a query, on a new connection.
func value[T any](t *testing.T, url, sql string, args ...any) (v T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// until polls a query that returns a boolean until it is true.
func until(t *testing.T, url, sql string, args ...any) {
	t.Helper()
	for range polls(t, sql) {
		if value[bool](t, url, sql, args...) {
			return
		}
	}
}

const epochs = `SELECT string_agg(epoch, ' ' ORDER BY partition_id) FROM badged.partitions`

// insist publishes an event until it is accepted.
func insist(t *testing.T, p *process, event string) {
	t.Helper()
	for {
		status, _, answer := request(t, http.MethodPost, p.url+"/v1/events", "application/cloudevents+json", event)
		switch status {
		case http.StatusAccepted:
			return
		case http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusInternalServerError:
		default:
			t.Fatalf("publish: %d %s", status, answer)
		}
	}
}

// rewound checks a database that has gone back to three delivered messages
// while clients had six. Four messages of another conversation take the
// version past the clients' and make seven.
func rewound(t *testing.T, url string, p *process, connected, away *client, before string) {
	t.Helper()
	for seq := 1; seq <= 4; seq++ {
		insist(t, p, delivered("d", seq, `"ann"`))
	}
	right := func(c *client) func() bool {
		return func() bool { return c.total == 7 && c.unread["c"] == 3 && c.unread["d"] == 4 }
	}
	connected.await("the numbers of the tables", right(connected))
	back := away.resume(p.url)
	back.await("the numbers of the tables, resumed", right(back))
	// Epochs of idle partitions change too, once they are owned again.
	until(t, url, `SELECT NOT EXISTS (SELECT FROM badged.partitions WHERE epoch = ANY (string_to_array($1, ' ')))`, before)
}

// tellUpTo publishes messages first to last of the conversation c, and waits
// until clients have them.
func tellUpTo(t *testing.T, p *process, clients []*client, first, last int) {
	t.Helper()
	for seq := first; seq <= last; seq++ {
		insist(t, p, delivered("c", seq, `"ann"`))
	}
	for _, c := range clients {
		c.awaitTotal(int64(last))
	}
}

// After a failover to an asynchronous standby that lacks the last commits, all
// clients get the standby's state without an operator.
func TestFailoverThatLosesTheTail(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	primary := postgresIn(t, filepath.Join(dir, "primary"))
	must(t, "migrate", "up", "--database-url="+primary.URL())
	baseBackup(t, primary, filepath.Join(dir, "standby"), "--write-recovery-conf")
	standby := postgresIn(t, filepath.Join(dir, "standby"))

	one, two := parseURL(t, primary.URL()), parseURL(t, standby.URL())
	hosts := fmt.Sprintf("host=%s,%s port=%d,%d user=%s dbname=%s target_session_attrs=read-write",
		one.Host, two.Host, one.Port, two.Port, one.User, one.Database)
	p := serve(t, hosts, "--reconcile-interval=1s")
	clients := []*client{connect(t, p.url, "ann"), connect(t, p.url, "ann")}
	for _, c := range clients {
		c.mayRewind()
	}
	tellUpTo(t, p, clients, 1, 3)
	before := value[string](t, primary.URL(), epochs)

	// The last message that the standby receives.
	until(t, standby.URL(), `SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn`, value[string](t, primary.URL(), `SELECT pg_current_wal_lsn()::text`))
	for _, sql := range []string{`ALTER SYSTEM SET primary_conninfo = ''`, `SELECT pg_reload_conf()`} {
		alter(t, standby.URL(), sql)
	}
	until(t, standby.URL(), `SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)`)
	tellUpTo(t, p, clients, 4, 6)
	clients[1].close()

	primary.Kill()
	if !value[bool](t, standby.URL(), `SELECT pg_promote()`) {
		t.Fatal("the standby is not promoted")
	}
	rewound(t, standby.URL(), p, clients[0], clients[1], before)
	awaitMetric(t, p, `badged_projector_epochs_begun_total{reason="rewind"}`, 1)
}

func alter(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// When a database is restored while servers run, or while none runs, all
// clients get its state without an operator.
func TestDatabaseIsRestored(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		running bool // whether servers run meanwhile
		// keep stores the present state in a directory.
		keep func(t *testing.T, s *embedpg.Server, pgdata, kept string)
	}{
		{"a base backup, on a timeline of its own", true, func(t *testing.T, s *embedpg.Server, _, kept string) {
			t.Helper()
			baseBackup(t, s, kept)
			recovery := "restore_command = 'false'\nrecovery_target = 'immediate'\nrecovery_target_action = 'promote'\n"
			conf, err := os.OpenFile(filepath.Join(kept, "pgdata", "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = conf.WriteString(recovery)
				_ = conf.Close()
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(kept, "pgdata", "recovery.signal"), nil, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}},
		{"a copy of its files, on the same timeline", false, func(t *testing.T, s *embedpg.Server, pgdata, kept string) {
			t.Helper()
			s.Kill()
			if err := os.Mkdir(kept, 0o755); err != nil {
				t.Fatal(err)
			}
			copyTree(t, pgdata, filepath.Join(kept, "pgdata"))
			if err := s.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := openDir(t)
			pgdata, kept := filepath.Join(dir, "live", "pgdata"), filepath.Join(dir, "kept")
			pg := postgresIn(t, filepath.Join(dir, "live"))
			p := serve(t, pg.URL(), "--reconcile-interval=1s")
			clients := []*client{connect(t, p.url, "ann"), connect(t, p.url, "ann")}
			for _, c := range clients {
				c.mayRewind()
			}
			tellUpTo(t, p, clients, 1, 3)
			tc.keep(t, pg, pgdata, kept)
			tellUpTo(t, p, clients, 4, 6)
			before := value[string](t, pg.URL(), epochs)

			if !tc.running {
				p.kill()
			}
			clients[1].close()
			pg.Kill()
			if err := os.RemoveAll(pgdata); err != nil {
				t.Fatal(err)
			}
			copyTree(t, filepath.Join(kept, "pgdata"), pgdata)
			if err := pg.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			until(t, pg.URL(), `SELECT NOT pg_is_in_recovery()`)
			if !tc.running {
				p = serve(t, pg.URL(), "--reconcile-interval=1s")
				clients[0] = clients[0].resume(p.url)
			}
			rewound(t, pg.URL(), p, clients[0], clients[1], before)
		})
	}
}
