package tests

import (
	"bytes"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/vendors"
)

var eventTime = regexp.MustCompile(`"time": ?"([^"]+)"`)

// clockStack is two servers of one database, one of them with a wrong clock, and the services
// that they call.
type clockStack struct {
	t            *testing.T
	database     string
	conn         *pgx.Conn
	clock        *wrongClock
	wrong, right *process
	e            *endpoint
	fcm          *vendors.FCM
}

// Counts and stored times are right even if the clock of one server is wrong or jumps while the
// server runs. The other server and the database have the right time.
func TestWrongClocks(t *testing.T) {
	t.Parallel()
	s := &clockStack{t: t, database: oneDatabase(t), e: newEndpoint(t), fcm: vendors.NewFCM(t), clock: newServerClock(t)}
	s.conn = pgtest.Connect(t, s.database)
	entry := s.fcm.Entry()
	entry["silent_interval"] = "0s"
	args := []string{
		"serve", "--listen=127.0.0.1:0", "--database-url=" + s.database, "--redis-url=" + newRedis(t).URL(), "--webhooks-allow-private",
		"--push-config=" + vendors.WriteConfig(t, map[string]map[string]any{"android": entry}), "--expire=*=24h", "--remind-after=*=24h",
	}
	trust := trusting(t, s.e)
	with := func(cmd *exec.Cmd) {
		trust(cmd)
		cmd.Env = append(cmd.Env, "BADGED_ADMIN_KEYS=ops="+adminKey)
	}
	s.clock.is(30 * 24 * time.Hour) // the server starts with this clock, and without the other server
	s.wrong = launch(t, func(cmd *exec.Cmd) { with(cmd); s.clock.on(cmd) }, args...)
	s.wrong.awaitSays("this instance expires nothing")
	s.right = launch(t, with, args...)
	s.right.awaitSays("this instance runs the expiry sweep")
	operator(t, s.right, http.MethodPut, "crm", hookSettings(s.e, `"badge.changed","unread.reminder"`), http.StatusCreated)
	for i, ahead := range []time.Duration{30 * 24 * time.Hour, -time.Hour, time.Hour, -30 * 24 * time.Hour} {
		s.clock.is(ahead)
		s.awaitAgree(false)
		t.Run(fmt.Sprint(ahead), func(t *testing.T) {
			on := *s
			on.t = t
			on.counts(i)
			on.revokes(fmt.Sprint("eve", i))
			on.timesAreRight()
			on.keepsRecords()
		})
	}
	s.clock.is(0)
	s.awaitAgree(true)
	publish(t, s.wrong, delivered("last", 1, `"ada"`))
	for s.e.next(t).event.Subject != "ada" {
	}
	must(t, "archive", "-q", "--database-url="+s.database, "--to="+t.TempDir(), "--older-than=24h")
	must(t, "verify", "-q", "--database-url="+s.database)
}

// awaitAgree waits until the server with the wrong clock reports that the clocks agree, or that
// they do not.
func (s *clockStack) awaitAgree(want bool) {
	s.t.Helper()
	await(s.t, "readiness to compare the clocks", func() bool {
		_, _, answer := requestAs(s.t, "", http.MethodGet, s.wrong.url+"/readyz", "", "")
		return strings.Contains(answer, `"clocks":"ok"`) == want
	})
}

// counts delivers, reads (also ahead of delivery) and marks messages through both servers. Both
// servers, a phone and the calls of a webhook show the same numbers.
func (s *clockStack) counts(round int) {
	s.t.Helper()
	user := fmt.Sprint("ada", round)
	phone, device := s.fcm.Phone("token-of-"+user), fmt.Sprintf(`{"platform":"fcm","app":"android","token":"token-of-%s"}`, user)
	if status, _, answer := requestAs(s.t, token(s.t, user), http.MethodPut, s.wrong.url+"/v1/users/"+user+"/devices/phone", "application/json", device); status != http.StatusCreated {
		s.t.Fatalf("register a phone: %d %s", status, answer)
	}
	chat, quiet := fmt.Sprint("chat", round), fmt.Sprint("quiet", round)
	users := fmt.Sprintf("%q", user)
	publish(s.t, s.wrong, delivered(chat, 1, users))
	publish(s.t, s.right, delivered(chat, 2, users))
	publish(s.t, s.wrong, delivered(quiet, 1, users))
	s.wrong.mustCommand(user, fmt.Sprintf(`{"t":"read","conversation_id":%q,"up_to_seq":1}`, quiet))
	s.right.mustCommand(user, fmt.Sprintf(`{"t":"mark_unread","conversation_id":%q}`, quiet))
	// A read ahead of the delivered messages.
	s.wrong.mustCommand(user, fmt.Sprintf(`{"t":"read","conversation_id":%q,"up_to_seq":3}`, chat))
	publish(s.t, s.wrong, delivered(chat, 3, users))
	position := publish(s.t, s.right, delivered(chat, 4, users))
	for _, p := range []*process{s.wrong, s.right} {
		if n := total(s.t, p, user, position); n != 2 { // a message and a mark
			s.t.Errorf("the total is %d, want 2", n)
		}
		c := connect(s.t, p.url, user)
		c.awaitTotal(2)
		c.close()
	}
	await(s.t, "the phone to show the total", func() bool {
		n, ok := phone.Number()
		return ok && n == 2
	})
	for {
		switch c := s.e.next(s.t); {
		case c.event.Type != "badge.changed":
			s.t.Errorf("a %s of %s, who has waited for seconds", c.event.Type, c.event.Subject)
		case c.event.Subject == user && c.event.Data.Total == 2:
			return
		}
	}
}

// revokes revokes the tokens of a user: both servers refuse an old token and admit a new one.
func (s *clockStack) revokes(user string) {
	s.t.Helper()
	stolen := issued(s.t, user, time.Now().Add(-10*time.Second))
	disconnect(s.t, s.wrong, user, `{"revoke":true}`)
	fresh := issued(s.t, user, time.Now().Add(2*time.Second))
	for name, p := range map[string]*process{"wrong": s.wrong, "right": s.right} {
		await(s.t, "the stolen token to be refused", func() bool {
			status, _, answer := requestAs(s.t, stolen, http.MethodGet, p.url+"/v1/users/"+user+"/badge", "", "")
			return status == http.StatusUnauthorized && strings.Contains(answer, "it was revoked")
		})
		if status, _, answer := requestAs(s.t, fresh, http.MethodGet, p.url+"/v1/users/"+user+"/badge", "", ""); status != http.StatusOK {
			s.t.Errorf("a new token on the server with the %s clock: %d %s", name, status, answer)
		}
	}
}

// timesAreRight fails unless stored times are times of the database, and no due time is further
// ahead than the longest wait that badged uses.
func (s *clockStack) timesAreRight() {
	s.t.Helper()
	for p := range partitions {
		s.none("rows of the log with a wrong time", `SELECT count(*) FROM badged.`+events.Topic(p)+` WHERE abs(extract(epoch FROM clock_timestamp() - created_at)) > 600`)
	}
	s.none("revocations with a wrong time", `SELECT count(*) FROM badged.revocations WHERE abs(extract(epoch FROM clock_timestamp() - revoked_before)) > 600`)
	s.none("devices that wait for hours", `SELECT count(*) FROM badged.devices WHERE greatest(due, quiet_until, held_until) > clock_timestamp() + interval '2 hours'`)
	s.none("webhooks that wait for hours", `SELECT count(*) FROM badged.webhooks WHERE due > clock_timestamp() + interval '2 hours'`)
}

// none fails unless a query returns the count 0.
func (s *clockStack) none(what, query string) {
	s.t.Helper()
	var n int
	if err := s.conn.QueryRow(s.t.Context(), query).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	if n > 0 {
		s.t.Errorf("%d %s", n, what)
	}
}

// keepsRecords fails unless commands on a machine with the wrong clock refuse to cut the log and
// to prune the audit trail, and events of publishers have the right time.
func (s *clockStack) keepsRecords() {
	s.t.Helper()
	before := logged(s.t, s.database)
	for _, args := range [][]string{
		{"archive", "-q", "--to=" + filepath.Join(s.t.TempDir(), "archive"), "--older-than=24h"},
		{"audit", "prune", "--before=" + time.Now().Add(-25*time.Hour).UTC().Format(time.RFC3339)},
	} {
		if code, said := s.command(append(args, "--database-url="+s.database)...); code != 1 || !strings.Contains(said, "it is not known which is right") {
			s.t.Errorf("badged %s exited with %d: %s", args[0], code, said)
		}
	}
	if after := logged(s.t, s.database); after != before {
		s.t.Errorf("the log has %d rows after an archiving by a wrong clock, and had %d", after, before)
	}
	code, said := s.command("user", "explain", "ada0", "--history", "--json", "--database-url="+s.database)
	times := eventTime.FindAllStringSubmatch(said, -1)
	if code != 0 || len(times) == 0 {
		s.t.Errorf("explaining exited with %d: %s", code, said)
	}
	for _, m := range times {
		if at, err := time.Parse(time.RFC3339, m[1]); err != nil || time.Since(at).Abs() > 10*time.Minute {
			s.t.Errorf("an event has the time %s", m[1])
		}
	}
}

// command runs the program on a machine with the wrong clock.
func (s *clockStack) command(args ...string) (code int, said string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), binary, args...)
	cmd.Env = environment("BADGED_JWT_KEYS=" + jwtKeys)
	s.clock.on(cmd)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // its status says how it ended
	return cmd.ProcessState.ExitCode(), out.String()
}
