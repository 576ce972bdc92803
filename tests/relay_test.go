package tests

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// relayKills is how often TestRelayOverKills kills the relay, the server or the backend's Postgres.
var relayKills = flag.Int("relay-kills", 3, "how often the test of the relay kills a process")

// newOutbox returns the URL of a database with an outbox.
func newOutbox(t *testing.T, s *pgtest.Server) string {
	t.Helper()
	url := s.NewDB(t, pgtest.Template{})
	prints(t, "applied 00002_outbox.sql", "relay", "install", "--outbox-url="+url)
	return url
}

// startRelay starts `badged relay` to a server without waiting.
func startRelay(t *testing.T, outbox string, p *process, args ...string) *process {
	t.Helper()
	return start(t, nil, append([]string{
		"relay", "--listen=127.0.0.1:0", "--outbox-url=" + outbox, "--url=" + p.url, "--publisher-key=" + publisherKey,
	}, args...)...)
}

// publishIn publishes an event in SQL.
func publishIn(t *testing.T, conn *pgx.Conn, event string) {
	t.Helper()
	pgtest.Exec(t, conn, `SELECT badged.publish($1)`, event)
}

// awaitTotalOf waits until a user has a total.
func awaitTotalOf(t *testing.T, p *process, user string, want int64) {
	t.Helper()
	await(t, fmt.Sprintf("%s to have %d", user, want), func() bool {
		return total(t, p, user, "0") == want
	})
}

// A backend publishes in its own database and transaction, with a role that may only publish. The
// relay carries the events to a server, with a role that may only relay.
func TestRelay(t *testing.T) {
	t.Parallel()
	backend := pgtest.NewServer(t) // roles belong to all databases of a server
	outbox := newOutbox(t, backend)
	owner := pgtest.Connect(t, outbox)
	pgtest.Exec(t, owner, `CREATE ROLE chat LOGIN; CREATE ROLE mover LOGIN; GRANT CREATE ON SCHEMA public TO chat`)
	fails(t, 1, "badged relay install --relay-role mover", "relay", "--outbox-url="+as(t, outbox, "mover"), "--url=http://127.0.0.1:1", "--publisher-key=k")
	must(t, "relay", "install", "--outbox-url="+outbox, "--publisher-role=chat", "--relay-role=mover")
	chat := pgtest.Connect(t, as(t, outbox, "chat"))
	mayNot(t, chat, `SELECT * FROM badged.outbox`)
	mayNot(t, chat, `INSERT INTO badged.outbox (transaction_id, payload) VALUES ('1', '')`)
	mover := pgtest.Connect(t, as(t, outbox, "mover"))
	mayNot(t, mover, `SELECT badged.publish('{}')`)
	mayNot(t, mover, `UPDATE badged.outbox SET payload = ''`)

	p := serve(t, oneDatabase(t))
	r := startRelay(t, as(t, outbox, "mover"), p)
	r.awaitReady()

	// The example programs work with an outbox without a change.
	said := regexp.MustCompile(`^message (\d+) is stored and published, position 0\n`)
	for i, program := range [][]string{{pythonWith(t, "psycopg"), "../docs/publishing/python/publish.py"}, {"node", "../docs/publishing/node/publish.mjs"}} {
		cmd := exec.CommandContext(t.Context(), program[0], program[1:]...)
		cmd.Env = environment("DATABASE_URL=" + outbox)
		if out, err := cmd.CombinedOutput(); err != nil || !said.Match(out) {
			t.Fatalf("%s: %v\n%s", program[0], err, out)
		}
		awaitTotalOf(t, p, "ada", int64(i+1))
	}

	// An event that badged refuses is moved to badged.outbox_refused, and the others are
	// carried.
	pgtest.Exec(t, owner, `INSERT INTO badged.outbox (transaction_id, payload) VALUES (pg_current_xact_id(), '{"type":"message.sent"}')`)
	publishIn(t, chat, delivered("c", 1, `"ann"`))
	awaitTotalOf(t, p, "ann", 1)
	awaitMetric(t, r, "badged_relay_refused", 1)
	await(t, "the backlog to be measured again", func() bool {
		return metric(t, metricsOf(t, r), "badged_relay_backlog") == 0
	})
	if out := must(t, "relay", "status", "--outbox-url="+as(t, outbox, "mover")); !strings.HasPrefix(out, "0 events wait, the oldest for 0.0 s; relay: badged relay ") || !strings.Contains(out, "specversion: is required") {
		t.Errorf("status:\n%s", out)
	}
	pgtest.Exec(t, owner, `UPDATE badged.outbox_refused SET payload = $1`, delivered("c", 2, `"ann"`))
	if out := must(t, "relay", "retry", "--outbox-url="+as(t, outbox, "mover")); out != "1 events were moved back to the end of the outbox\n" {
		t.Errorf("retry says %q", out)
	}
	awaitTotalOf(t, p, "ann", 2)
	r.mustStop()
}

// A relay that starts before the database of its outbox, as after a boot, waits for the database.
func TestRelayStartsBeforeTheDatabaseOfItsOutbox(t *testing.T) {
	t.Parallel()
	backend := pgtest.NewServer(t)
	outbox := newOutbox(t, backend)
	publishIn(t, pgtest.Connect(t, outbox), delivered("c", 1, `"ann"`))
	p := serve(t, oneDatabase(t))
	backend.Kill()
	r := startRelay(t, outbox, p)
	r.awaitReady()
	r.awaitSays("the database of the outbox cannot be reached")
	ready := func(want int) {
		t.Helper()
		await(t, fmt.Sprintf("%d of /readyz", want), func() bool {
			status, _, body := request(t, http.MethodGet, r.url+"/readyz", "", "")
			return status == want && strings.Contains(body, `"outbox":"the database of the outbox cannot be reached"`) == (want != http.StatusOK)
		})
	}
	ready(http.StatusServiceUnavailable)
	restart(t, backend)
	awaitTotalOf(t, p, "ann", 1)
	ready(http.StatusOK)
	r.mustStop()
}

// The relay refuses settings that cannot work, and the error says what to do.
func TestRelayRefusals(t *testing.T) {
	t.Parallel()
	s := pgtest.Borrow(t)
	outbox, old, database := newOutbox(t, s), newOutbox(t, s), oneDatabase(t)
	pgtest.Exec(t, pgtest.Connect(t, old), `DELETE FROM badged.outbox_migrations WHERE version_id = 2`)
	p := serve(t, database)
	to := []string{"--url=" + p.url, "--publisher-key=" + publisherKey}
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--outbox-url=" + s.NewDB(t, pgtest.Template{}), to[0], to[1]}, 1, "the database has no outbox; run `badged relay install`"},
		{[]string{"--outbox-url=" + old, to[0], to[1]}, 1, "the outbox has version 1, and this program needs 2; run `badged relay install`"},
		{[]string{"--outbox-url=" + database, to[0], to[1]}, 1, "it needs no outbox and no relay"},
		{[]string{"--outbox-url=" + as(t, outbox, "stranger"), to[0], to[1]}, 1, `role "stranger" does not exist`},
		{[]string{"--outbox-url=" + s.DatabaseURL("nowhere"), to[0], to[1]}, 1, `database "nowhere" does not exist`},
		{[]string{"--outbox-url=" + outbox, to[0], "--publisher-key=wrong"}, 1, "401"},
		{[]string{"--outbox-url=" + outbox, "--url=kafka://x", to[1]}, 1, `server URL "kafka://x": want one such as http://127.0.0.1:8080`},
		{[]string{"--outbox-url=" + outbox, "--database-url=" + outbox}, 1, "run `badged migrate up`"},
		{[]string{"--outbox-url=" + outbox, to[0], to[1], "--database-url=" + database}, 2, "are two targets; give one"},
		{[]string{"--outbox-url=" + outbox}, 2, "a target is required"},
		{[]string{"--outbox-url=" + outbox, to[0]}, 2, "--url requires --publisher-key"},
		{to, 2, "--outbox-url (BADGED_OUTBOX_URL) is required"},
	} {
		_, stderr, code := command(t, append([]string{"relay", "run", "--listen=127.0.0.1:0"}, tc.args...)...)
		if code != tc.code || !strings.Contains(stderr, tc.want) {
			t.Errorf("relay %v: %d, want %d and %q:\n%s", tc.args, code, tc.code, tc.want, stderr)
		}
	}
	fails(t, 1, "it needs no outbox and no relay", "relay", "install", "--outbox-url="+database)
	fails(t, 1, "the database has an outbox", "migrate", "up", "--database-url="+outbox)
}

// Relays, the server and the backend's Postgres are killed in turn while the backend publishes. Every
// event whose transaction was committed counts once.
func TestRelayOverKills(t *testing.T) {
	t.Parallel()
	backend := pgtest.NewServer(t)
	outbox, database := newOutbox(t, backend), oneDatabase(t)
	p := serve(t, database)
	listen := "--listen=" + strings.TrimPrefix(p.url, "http://")
	relays := []*process{startRelay(t, outbox, p), startRelay(t, outbox, p)}
	for _, r := range relays {
		r.awaitReady()
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	published := make(chan int, 1)
	go func() { published <- publishToOutbox(ctx, outbox) }()
	badged := pgtest.Connect(t, database)
	for kill := range *relayKills {
		before := inLog(t, badged)
		await(t, "progress after a kill", func() bool { return inLog(t, badged) > before+100 })
		time.Sleep(rand.N(20 * time.Millisecond)) //nolint:forbidigo // the moment of the kill is random
		switch kill % 3 {
		case 0:
			i := kill / 3 % 2
			relays[i].kill()
			relays[i] = startRelay(t, outbox, p)
		case 1:
			p.kill()
			p = serve(t, database, listen)
		case 2:
			backend.Kill()
			restart(t, backend)
		}
	}
	stop()
	n := <-published
	awaitTotalOf(t, p, "ann", int64(n))
	// The outbox is empty, so no event can count later.
	left := pgtest.Connect(t, outbox)
	await(t, "an empty outbox", func() bool {
		return valueIn[int](t, left, `SELECT count(*)::int FROM badged.outbox`) == 0
	})
	wantTotal(t, p, "ann", "0", int64(n))
	if refused := valueIn[int](t, left, `SELECT count(*)::int FROM badged.outbox_refused`); refused > 0 {
		t.Errorf("%d events were refused", refused)
	}
}

// publishToOutbox publishes messages to ann, some in a transaction, until ctx is done, and
// returns how many were committed. A transaction whose outcome is unknown is published
// again: its events have the same ids.
func publishToOutbox(ctx context.Context, url string) (n int) {
	const perTransaction = 5
	background := context.WithoutCancel(ctx)
	var conn *pgx.Conn
	for ctx.Err() == nil {
		if conn == nil {
			var err error
			if conn, err = pgx.Connect(background, url); err != nil {
				conn = nil
				continue
			}
		}
		err := pgx.BeginFunc(background, conn, func(tx pgx.Tx) error {
			for i := range perTransaction {
				if _, err := tx.Exec(background, `SELECT badged.publish($1)`, delivered("c", n+i+1, `"ann"`)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			_ = conn.Close(background)
			conn = nil
			continue
		}
		n += perTransaction
	}
	if conn != nil {
		_ = conn.Close(background)
	}
	return n
}
