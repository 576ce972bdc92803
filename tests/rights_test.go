package tests

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/devtest/vendors"
)

// heldBack is a request whose body has been sent only in part.
type heldBack struct {
	*rawClient
	rest string
}

// holdBack sends a request without the end of its body, and returns once the server has admitted the
// request.
func holdBack(t *testing.T, p *process, secret, method, path, contentType, body string) *heldBack {
	t.Helper()
	c := dialRaw(t, p)
	c.send(fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
		method, path, secret, contentType, len(body)))
	goOn := c.answer()
	_ = goOn.Body.Close()
	if goOn.StatusCode != http.StatusContinue {
		t.Fatalf("%s %s is answered with %d before its body", method, path, goOn.StatusCode)
	}
	c.send([]byte(body[:len(body)/2]))
	return &heldBack{c, body[len(body)/2:]}
}

// finish sends the end of the body and returns the answer.
func (h *heldBack) finish() (status int, answer string) {
	h.t.Helper()
	h.send([]byte(h.rest))
	res := h.answer()
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

const (
	aPhone  = `{"platform":"apns","app":"ios","token":"6170706c65"}`
	readAll = `{"t":"read_all","id":1}`
)

// servePushes starts a server that registers phones.
func servePushes(t *testing.T, database string, args ...string) *process {
	t.Helper()
	apps := vendors.WriteConfig(t, map[string]map[string]any{"ios": vendors.NewAPNs(t).Entry()})
	return serve(t, database, append([]string{"--push-config=" + apps, "--admin-keys=ops=" + adminKey}, args...)...)
}

// A request writes nothing if its token is revoked, or its user erased, while its body is still
// arriving. Here another process revokes the token, and there is no bus.
func TestTokensThatEndWhileABodyIsHeldBack(t *testing.T) {
	t.Parallel()
	database := oneDatabase(t)
	p, other := servePushes(t, database), servePushes(t, database)
	for name, end := range map[string]func(user string) (after func()){
		"revoked": func(user string) func() {
			disconnect(t, other, user, `{"revoke":true}`)
			return func() {}
		},
		// A body may take 10 s, and an erasure longer. The test need not wait for the
		// erasure, since it revokes tokens first.
		"erased": func(user string) func() {
			erase := start(t, nil, "user", "erase", user, "--database-url="+database)
			until(t, database, `SELECT EXISTS (SELECT FROM badged.erased_revocations)`)
			return func() {
				if <-erase.done; erase.err != nil {
					t.Error(erase.err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			user := "ann-" + name
			jwt := issued(t, user, time.Now().Add(-time.Minute))
			device := holdBack(t, p, jwt, http.MethodPut, "/v1/users/"+user+"/devices/phone", "application/json", aPhone)
			command := holdBack(t, p, jwt, http.MethodPost, "/v1/commands", "application/json", readAll)
			after := end(user)
			for what, held := range map[string]*heldBack{"device": device, "command": command} {
				if status, answer := held.finish(); status != http.StatusUnauthorized || !strings.Contains(answer, "revoked") {
					t.Errorf("the %s is answered with %d %s", what, status, answer)
				}
			}
			after()
			if n := value[int](t, database, `SELECT count(*) FROM badged.devices WHERE user_id = $1`, user); n != 0 {
				t.Errorf("%d devices are registered", n)
			}
			if n := value[int](t, database, `SELECT count(*) FROM badged.users WHERE user_id = $1`, user); n != 0 {
				t.Error("the user is there")
			}
		})
	}
}

// Whether a token is revoked is decided in the database when a transaction commits, and not by what
// the process knew before. A process is frozen while another process revokes a token: it then writes
// nothing for this token.
func TestRevocationsCountWhenATransactionCommits(t *testing.T) {
	t.Parallel()
	database := oneDatabase(t)
	p, other := servePushes(t, database), servePushes(t, database)
	jwt := issued(t, "ann", time.Now().Add(-time.Minute))
	socket := connectWith(t, p.url, jwt)
	socket.awaitTotal(0)

	ctx := t.Context()
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, `DO $$ DECLARE p text; BEGIN
		FOR p IN SELECT relname FROM pg_class WHERE relnamespace = 'badged'::regnamespace AND relkind IN ('r', 'p') AND relname ~ '^(events|devices)_p[0-9]+$' LOOP
			EXECUTE format('LOCK TABLE badged.%I IN SHARE MODE', p);
		END LOOP;
	END $$`); err != nil {
		t.Fatal(err)
	}
	socket.say(readAll)
	type answer struct {
		status int
		text   string
	}
	answers := map[string]chan answer{"command": make(chan answer, 1), "device": make(chan answer, 1)}
	for what, r := range map[string][3]string{
		"command": {http.MethodPost, "/v1/commands", readAll},
		"device":  {http.MethodPut, "/v1/users/ann/devices/phone", aPhone},
	} {
		go func() {
			status, _, text := requestAs(t, jwt, r[0], p.url+r[1], "application/json", r[2])
			answers[what] <- answer{status, text}
		}()
	}
	until(t, database, `SELECT count(*) >= 2 FROM pg_locks JOIN pg_class ON relation = pg_class.oid WHERE NOT granted AND relname ~ '^(events|devices)_p'`)
	p.signal(syscall.SIGSTOP)
	disconnect(t, other, "ann", `{"revoke":true}`)
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	until(t, database, `SELECT count(*) = 0 FROM pg_locks JOIN pg_class ON relation = pg_class.oid WHERE relname ~ '^(events|devices)_p[0-9]+$' AND mode = 'RowExclusiveLock'`)
	p.signal(syscall.SIGCONT)
	for what, c := range answers {
		if a := <-c; a.status != http.StatusUnauthorized || !strings.Contains(a.text, "revoked") {
			t.Errorf("the %s is answered with %d %s", what, a.status, a.text)
		}
	}
	if code := socket.awaitEnd(); code != 4001 {
		t.Errorf("the socket ends with %d", code)
	}
	if n := value[int](t, database, `SELECT count(*) FROM badged.devices`); n != 0 {
		t.Errorf("%d devices are registered", n)
	}
	if status, _, log := request(t, http.MethodGet, other.url+"/v1/users/ann/badge", "", ""); status != http.StatusOK || !strings.Contains(log, `"version":0`) {
		t.Errorf("the badge is %d %s", status, log)
	}
}

// A request does nothing, on any route, if its key is removed while its body is still arriving.
func TestKeysThatEndWhileABodyIsHeldBack(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.yaml")
	stays := keyEntry("stays", "publisher", ", read: yes")
	writeKeys(t, file, stays, keyEntry("leaked", "publisher", ", read: yes, disconnect: yes"), keyEntry("boss", "admin", ""))
	database := oneDatabase(t)
	p := servePushes(t, database, "--keys-file="+file)
	unread := delivered("lunch", 1, `"ann"`)
	held := map[string]*heldBack{}
	for _, r := range []struct{ key, method, path, body string }{
		{"leaked", http.MethodPost, "/v1/events", unread},
		{"leaked", http.MethodPost, "/v1/badges/query", `{"user_ids":["ann"]}`},
		{"leaked", http.MethodPost, "/v1/users/ann/disconnect", `{"revoke":true}`},
		{"leaked", http.MethodPut, "/v1/users/ann/devices/phone", aPhone},
		{"boss", http.MethodPost, "/admin/v1/users/ann/merge", `{"into":"ben"}`},
		{"boss", http.MethodPut, "/admin/v1/webhooks/hook", `{"url":"https://example.com/hook","events":["badge.changed"],"state":"paused"}`},
		{"boss", http.MethodPost, "/admin/v1/verifications", `{"sample":1}`},
	} {
		held[r.path] = holdBack(t, p, r.key, r.method, r.path, "application/json", r.body)
	}
	late := holdBack(t, p, "stays", http.MethodPost, "/v1/events", "application/json", delivered("tea", 1, `"ben"`))
	writeKeys(t, file, stays)
	p.awaitSays("keys=1")
	for path, h := range held {
		if status, answer := h.finish(); status != http.StatusUnauthorized || !strings.Contains(answer, "was removed") {
			t.Errorf("%s is answered with %d %s", path, status, answer)
		}
	}
	if status, answer := late.finish(); status != http.StatusAccepted {
		t.Errorf("a key that stays is answered with %d %s", status, answer)
	}
	for table, want := range map[string]int{"devices": 0, "webhooks": 0, "revocations": 0, "jobs": 0} {
		if n := value[int](t, database, "SELECT count(*) FROM badged."+table); n != want {
			t.Errorf("%s has %d rows", table, n)
		}
	}
	if status, _, badge := requestAs(t, "stays", http.MethodGet, p.url+"/v1/users/ann/badge", "", ""); status != http.StatusOK || !strings.Contains(badge, `"total":0`) {
		t.Errorf("the badge is %d %s", status, badge)
	}
}

// A read waits for events to be folded. If its token is revoked meanwhile, it is refused.
func TestTokensThatEndWhileAReadWaits(t *testing.T) {
	t.Parallel()
	database, redis := newDatabase(t), newRedis(t)
	p := serve(t, database, "--redis-url="+redis.URL(), "--roles=api,gateway")
	jwt := issued(t, "ann", time.Now().Add(-time.Minute))
	position := publish(t, p, delivered("lunch", 1, `"ann"`))
	read := dialRaw(t, p)
	read.send(fmt.Appendf(nil, "GET /v1/users/ann/badge?at_least=%s&timeout=30s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", position, jwt))
	p.awaitAnswer(http.MethodGet, "/metrics", "", http.StatusOK, `badged_auth_tokens_total{result="ok"} 1`)
	disconnect(t, p, "ann", `{"revoke":true}`)
	serve(t, database, "--redis-url="+redis.URL(), "--roles=projector")
	res := read.answer()
	defer res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized {
		t.Errorf("the read is answered with %d", res.StatusCode)
	}
}
