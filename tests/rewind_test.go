package tests

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/pg/embedpg"
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
			t.Log(err) // no failure: some tests kill the server
		}
	})
	return s
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
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	args = append([]string{
		"--pgdata", pgdata, "--host", cfg.Host, "--port", fmt.Sprint(cfg.Port), "--username", cfg.User, "--checkpoint=fast", "--no-manifest", "--no-sync",
	}, args...)
	if out, err := exec.CommandContext(t.Context(), s.Program("pg_basebackup"), args...).CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v\n%s", err, out)
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
func value[T any](t *testing.T, url, sql string, args ...any) T {
	t.Helper()
	conn := pgtest.Connect(t, url)
	defer conn.Close(context.WithoutCancel(t.Context()))
	return valueIn[T](t, conn, sql, args...)
}

// valueIn returns the single value of a query.
func valueIn[T any](t *testing.T, conn *pgx.Conn, sql string, args ...any) (v T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// until polls a query that returns a boolean until it is true, on one connection: Postgres
// takes more processor time to open one than for most queries.
func until(t *testing.T, url, sql string, args ...any) {
	t.Helper()
	conn := pgtest.Connect(t, url)
	defer conn.Close(context.WithoutCancel(t.Context()))
	await(t, sql, func() bool { return valueIn[bool](t, conn, sql, args...) })
}

const epochs = `SELECT string_agg(epoch, ' ' ORDER BY partition_id) FROM badged.partitions`

// insist publishes an event until it is accepted, and returns its position.
func insist(t *testing.T, p *process, event string) (position string) {
	t.Helper()
	for {
		status, header, answer := request(t, http.MethodPost, p.url+"/v1/events", "application/cloudevents+json", event)
		switch status {
		case http.StatusAccepted:
			return header.Get("Badged-Position")
		case http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusInternalServerError:
		default:
			t.Fatalf("publish: %d %s", status, answer)
		}
	}
}

// rewound checks clients after the database has gone back: it has three delivered messages, and the
// clients had six. rewound publishes four messages of another conversation, so that the version
// exceeds the clients' versions and the total is seven.
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
	// The epochs of partitions without traffic change too, once they have an owner again.
	until(t, url, `SELECT NOT EXISTS (SELECT FROM badged.partitions WHERE epoch = ANY (string_to_array($1, ' ')))`, before)
}

// tellUpTo publishes the messages first to last of the conversation c, and waits until the clients
// have them.
func tellUpTo(t *testing.T, p *process, clients []*client, first, last int) {
	t.Helper()
	for seq := first; seq <= last; seq++ {
		insist(t, p, delivered("c", seq, `"ann"`))
	}
	for _, c := range clients {
		c.awaitTotal(int64(last))
	}
}

// pair is a primary and a standby that follows it asynchronously.
type pair struct {
	t                *testing.T
	primary, standby *embedpg.Server
}

func startPair(t *testing.T) *pair {
	t.Helper()
	dir := pgtest.OpenDir(t)
	primary := postgresIn(t, filepath.Join(dir, "primary"))
	must(t, "migrate", "up", "--database-url="+primary.URL())
	baseBackup(t, primary, filepath.Join(dir, "standby"), "--write-recovery-conf")
	return &pair{t, primary, postgresIn(t, filepath.Join(dir, "standby"))}
}

// hosts returns a URL that names both servers.
func (p *pair) hosts() string {
	one, two := parseURL(p.t, p.primary.URL()), parseURL(p.t, p.standby.URL())
	return fmt.Sprintf("host=%s,%s port=%d,%d user=%s dbname=%s target_session_attrs=read-write",
		one.Host, two.Host, one.Port, two.Port, one.User, one.Database)
}

// part disconnects the standby: what the primary commits from now on is lost in a failover.
func (p *pair) part() {
	p.t.Helper()
	p.catchUp()
	for _, sql := range []string{`ALTER SYSTEM SET primary_conninfo = ''`, `SELECT pg_reload_conf()`} {
		one(p.t, p.standby.URL(), sql)
	}
	until(p.t, p.standby.URL(), `SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)`)
}

// catchUp waits until the standby has all commits of the primary.
func (p *pair) catchUp() {
	p.t.Helper()
	until(p.t, p.standby.URL(), `SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn`, value[string](p.t, p.primary.URL(), `SELECT pg_current_wal_lsn()::text`))
}

// failOver kills the primary and promotes the standby.
func (p *pair) failOver() {
	p.t.Helper()
	p.primary.Kill()
	if !value[bool](p.t, p.standby.URL(), `SELECT pg_promote()`) {
		p.t.Fatal("the standby is not promoted")
	}
}

// An old primary still runs after another server was promoted. Once a process has connected to the new
// primary, it opens no more sessions to the old one.
func TestOldPrimaryGoesOn(t *testing.T) {
	t.Parallel()
	pg := startPair(t)
	one, two := parseURL(t, pg.standby.URL()), parseURL(t, pg.primary.URL())
	p := serve(t, fmt.Sprintf("host=%s,%s port=%d,%d user=%s dbname=%s", one.Host, two.Host, one.Port, two.Port, one.User, one.Database))
	wantTotal(t, p, "ann", insist(t, p, delivered("c", 1, `"ann"`)), 1)
	pg.catchUp()
	if !value[bool](t, pg.standby.URL(), `SELECT pg_promote()`) {
		t.Fatal("the standby is not promoted")
	}
	const theirs = `application_name LIKE 'badged%'`
	value[bool](t, pg.primary.URL(), `SELECT bool_or(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity WHERE `+theirs+` ORDER BY pid OFFSET 1) AS most`)
	until(t, pg.primary.URL(), `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE `+theirs+`)`)
	wantTotal(t, p, "ann", insist(t, p, delivered("c", 2, `"ann"`)), 2)
	if n := value[int](t, pg.primary.URL(), `SELECT sum(folded)::int FROM (`+foldedEverywhere()+`) AS p`); n != 1 {
		t.Errorf("the old primary has folded %d events", n)
	}
}

// foldedEverywhere returns a query for the number of folded events of each partition.
func foldedEverywhere() string {
	var all []string
	for p := range 4 {
		all = append(all, fmt.Sprintf(`SELECT folded FROM badged.events_p%02d_offsets WHERE consumer_group = 'projector'`, p))
	}
	return strings.Join(all, " UNION ALL ")
}

// readAt reads the badge of ann at a position, and repeats that until Postgres is back.
func readAt(t *testing.T, p *process, position string) (status int, answer string) {
	t.Helper()
	for range polls(t, "an answer to a position") {
		status, _, answer = request(t, http.MethodGet, p.url+"/v1/users/ann/badge?timeout=30s&at_least="+position, "", "")
		switch status {
		case http.StatusInternalServerError, http.StatusServiceUnavailable:
		default:
			return status, answer
		}
	}
	return status, answer
}

// After a failover to an asynchronous standby without the last commits, all clients get the state of
// the standby without an operator.
func TestFailoverThatLosesTheTail(t *testing.T) {
	t.Parallel()
	pg := startPair(t)
	p := serve(t, pg.hosts(), "--reconcile-interval=1s")
	clients := []*client{connect(t, p.url, "ann"), connect(t, p.url, "ann")}
	for _, c := range clients {
		c.mayRewind()
	}
	tellUpTo(t, p, clients, 1, 3)
	before := value[string](t, pg.primary.URL(), epochs)

	pg.part()
	tellUpTo(t, p, clients, 4, 6)
	clients[1].close()
	pg.failOver()
	rewound(t, pg.standby.URL(), p, clients[0], clients[1], before)
	awaitMetric(t, p, `badged_projector_epochs_begun_total{reason="rewind"}`, 1)
}

// A read at a position whose events are lost gets an error, and not a badge without them, also after
// Postgres has assigned the same transaction id again. A read at a position whose events survived is
// answered as before. The lost events count when they are published again.
func TestPositionsOfALostTail(t *testing.T) {
	t.Parallel()
	pg := startPair(t)
	p := serve(t, pg.hosts())
	kept := insist(t, p, delivered("c", 1, `"ann"`))
	wantTotal(t, p, "ann", kept, 1)
	pg.part()
	var lost []string
	for seq := 2; seq <= 4; seq++ {
		lost = append(lost, insist(t, p, delivered("c", seq, `"ann"`)))
	}
	pg.failOver()
	for i := range 40 { // until the ids of the lost transactions are used again
		insist(t, p, delivered("other", i+1, `"bob"`))
	}
	for _, position := range lost {
		if status, answer := readAt(t, p, position); status != http.StatusConflict || !strings.Contains(answer, "publish the events again") {
			t.Errorf("position %s of the lost tail: %d %s", position, status, answer)
		}
	}
	if status, answer := readAt(t, p, kept); status != http.StatusOK || !strings.Contains(answer, `"total":1,`) {
		t.Errorf("position %s, which has survived: %d %s", kept, status, answer)
	}
	var again string
	for seq := 2; seq <= 4; seq++ {
		again = insist(t, p, delivered("c", seq, `"ann"`))
	}
	wantTotal(t, p, "ann", again, 4)
	must(t, "verify", "--database-url="+pg.standby.URL())
}

// A failover loses the events by which a room got its first members in further partitions. Publishers
// do not assume any more that the room has members there.
func TestRoomsOfALostTail(t *testing.T) {
	t.Parallel()
	pg := startPair(t)
	p := serve(t, pg.hosts())
	ids, _ := users(32)
	joined := func(i int) string {
		return event(fmt.Sprint("join ", i), "room.joined", fmt.Sprintf(`{"conversation_id":"hall","user_ids":[%q]}`, ids[i]))
	}
	insist(t, p, joined(0))
	insist(t, p, event("post 1", "room.posted", `{"conversation_id":"hall","seq":1}`))
	pg.part()
	for i := range ids[1:] { // to all partitions
		insist(t, p, joined(i+1))
	}
	insist(t, p, event("post 2", "room.posted", `{"conversation_id":"hall","seq":2}`))
	pg.failOver()
	for i := range ids {
		insist(t, p, joined(i))
	}
	insist(t, p, event("post 3", "room.posted", `{"conversation_id":"hall","seq":3}`))
	conn := pgtest.Connect(t, pg.standby.URL())
	// Publishers in SQL read the directory of rooms in the tables.
	pgtest.Exec(t, conn, `SELECT badged.publish($1::text::jsonb)`, event("post 4", "room.posted", `{"conversation_id":"hall","seq":4}`))
	position := insist(t, p, event("post 5", "room.posted", `{"conversation_id":"hall","seq":5}`))
	total(t, p, ids[0], position)
	until(t, pg.standby.URL(), `SELECT count(*) = $1 AND bool_and(unread = 3 OR user_id = $2) FROM badged.unread`, len(ids), ids[0])
}

// A database is restored while servers run, or while none runs. All clients get its state without an
// operator.
func TestDatabaseIsRestored(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		running bool // whether servers run during the restore
		// keep stores the current state of the database in a directory.
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
			restart(t, s)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := pgtest.OpenDir(t)
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
			restart(t, pg)
			until(t, pg.URL(), `SELECT NOT pg_is_in_recovery()`)
			if !tc.running {
				p = serve(t, pg.URL(), "--reconcile-interval=1s")
				clients[0] = clients[0].resume(p.url)
			}
			rewound(t, pg.URL(), p, clients[0], clients[1], before)
		})
	}
}
