package tests

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// An app with an unset filter sends an empty category, which is refused.
func emptyFilter(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database)
	position := p.mustPost(delivered("chat", 1, `"ann"`), event("likes/1", "message.delivered", `{"conversation_id":"likes","seq":1,"user_ids":["ann"],"category":"likes"}`))
	ann := connect(t, p.url, "ann")
	ann.awaitTotal(2)

	ann.say(`{"t":"read_all","id":1,"category":""}`)
	ann.await("the answer", func() bool { return ann.answers[1] != "" })
	if got := ann.answers[1]; got != "invalid" {
		t.Errorf("over WebSocket: %s", got)
	}
	if status, answer := p.command("ann", `{"t":"read_all","id":1,"category":""}`); status != http.StatusBadRequest || !strings.Contains(answer, "category must not be empty: leave it out to name everything") {
		t.Errorf("as a command over HTTP: %d %s", status, answer)
	}
	readAll := event("all", "user.read_all", `{"user_ids":["ann"],"category":""}`)
	if status, _, answer := request(t, http.MethodPost, p.url+"/v1/events", "application/json", readAll); status != http.StatusBadRequest || !strings.Contains(answer, "must not be empty") {
		t.Errorf("as an event: %d %s", status, answer)
	}
	conn := pgtest.Connect(t, shardOf(t, database, "ann"))
	if _, err := conn.Exec(t.Context(), publishSQL, readAll); err == nil || !strings.Contains(err.Error(), "data.category: must not be empty") {
		t.Errorf("in SQL: %v", err)
	}
	unset := events.Event{ID: "all", Source: "chat", Type: events.UserReadAll, Data: events.Data{UserIDs: []string{"ann"}}}
	err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		_, err := events.Publish(t.Context(), tx, unset)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "data.category: must not be empty") {
		t.Errorf("in Go: %v", err)
	}
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"chat": 1, "likes": 1})

	p.mustCommand("ann", `{"t":"read_all","id":2}`)
	ann.awaitTotal(0)
}

// Apps in a web view have origins that are not URLs of pages, such as capacitor://localhost.
func hybridOrigins(t *testing.T) {
	p := serve(t, newDatabase(t), "--allowed-origins=capacitor://localhost,file://,null,https://chat.example:443")
	jwt := token(t, "ann")
	for origin, allowed := range map[string]bool{
		"capacitor://localhost": true, "file://": true, "null": true, "https://chat.example": true,
		"ionic://localhost": false, "https://evil.example": false, "http://localhost": false,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		conn, res, err := websocket.Dial(ctx, strings.Replace(p.url, "http", "ws", 1)+"/v1/ws", &websocket.DialOptions{
			HTTPHeader: http.Header{"Authorization": {"Bearer " + jwt}, "Origin": {origin}}, Subprotocols: []string{"badge.v1"},
		})
		switch {
		case allowed && err != nil:
			t.Errorf("a WebSocket of %s: %v", origin, err)
		case allowed:
			_ = conn.CloseNow()
		case err == nil || res == nil || res.StatusCode != http.StatusForbidden:
			t.Errorf("a WebSocket of %s is not refused: %v", origin, err)
		}
		command, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/commands", strings.NewReader(`{"t":"read_all"}`))
		if err != nil {
			t.Fatal(err)
		}
		command.Header.Set("Authorization", "Bearer "+jwt)
		command.Header.Set("Origin", origin)
		answer, err := http.DefaultClient.Do(command)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if got := answer.Header.Get("Access-Control-Allow-Origin"); (got == origin) != allowed {
			t.Errorf("a page of %s may read answers for %q", origin, got)
		}
	}
	if out, _, code := command(t, "config", "check", "--allowed-origins=https://*.chat.example"); code != 2 || !strings.Contains(out, `"https://*.chat.example" has an asterisk: list each origin`) {
		t.Errorf("config check of an origin that no page has: exit code %d\n%s", code, out)
	}
}

// A token may have 16 KiB, since some login services store many claims about the user in it.
func longTokens(t *testing.T) {
	p := serve(t, newDatabase(t))
	now := time.Now()
	sized := func(size int) string {
		token := ""
		for more := size/2 - 300; len(token) < size-8; more += max(1, (size-len(token))/2) {
			token = issuedWith(t, "ann", now, map[string]any{"groups": strings.Repeat("x", more)})
		}
		return token
	}
	long, tooLong := sized(16<<10), sized(16<<10+16)
	if len(long) > 16<<10 || len(tooLong) <= 16<<10 || len(tooLong) > 18<<10 {
		t.Fatalf("the tokens have %d and %d bytes", len(long), len(tooLong))
	}
	const reason = "; at most 16384 are allowed: leave out claims that badged does not use"
	publish(t, p, delivered("c", 1, `"ann"`))

	for name, jwt := range map[string]string{"short": token(t, "ann"), "long": long} { // in the header, and in a frame auth
		ann := connectWith(t, p.url, jwt)
		ann.awaitTotal(1)
		ann.say(`{"t":"auth","id":1,"token":"` + long + `"}`)
		ann.say(`{"t":"read","id":2,"conversation_id":"` + strings.Repeat("x", 5000) + `","up_to_seq":1}`)
		ann.say(`{"t":"mark_unread","id":3,"conversation_id":"c"}`)
		ann.await("the answers", func() bool { return len(ann.answers) == 3 })
		if ann.answers[1] != "ok" || ann.answers[2] != "invalid" || ann.answers[3] != "ok" {
			t.Errorf("after a %s token auth, a read that is too long, and a mark are answered with %v", name, ann.answers)
		}
		ann.say(`{"t":"auth","id":4,"token":"` + tooLong + `"}`)
		if code := ann.awaitEnd(); code != 4001 || !strings.Contains(ann.err.Error(), "bad token: it has ") {
			t.Errorf("auth with a token that is too long ends the connection with %v", ann.err)
		}
	}
	hello := func(jwt string) *client {
		t.Helper()
		c, err := open(t, p.url, "", http.DefaultClient)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.close)
		if err := c.write(`{"t":"hello","token":"` + jwt + `"}`); err != nil {
			t.Fatal(err)
		}
		c.listen()
		return c
	}
	hello(long).awaitTotal(1)
	if c := hello(tooLong); c.awaitEnd() != 4001 || !strings.Contains(c.err.Error(), "bad token: it has ") {
		t.Errorf("a hello with a token that is too long ends the connection with %v", c.err)
	}
	if c := hello(strings.Repeat("x", 30<<10)); c.awaitEnd() != 1009 || !strings.Contains(c.err.Error(), "a frame may have at most 4096 bytes, a hello or auth at most 20480") {
		t.Errorf("a hello that is too long ends the connection with %v", c.err)
	}

	for _, route := range []struct{ method, path, body string }{
		{http.MethodGet, "/v1/users/ann/badge", ""},
		{http.MethodGet, "/v1/sse", ""},
		{http.MethodPost, "/v1/commands", `{"t":"mark_unread","conversation_id":"c"}`},
	} {
		r := describedRoute{method: route.method, path: route.path}
		if status, answer := r.statusOf(t, p.url, long, "", "", route.body); status != http.StatusOK {
			t.Errorf("%s with a long token: %d %s", route.path, status, answer)
		}
		if status, answer := r.statusOf(t, p.url, tooLong, "", "", route.body); status != http.StatusUnauthorized || !strings.Contains(answer, reason) {
			t.Errorf("%s with a token that is too long: %d %s", route.path, status, answer)
		}
	}
}
