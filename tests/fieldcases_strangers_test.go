package tests

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
)

// An app whose filter is not set sends an empty category.
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
	if status, answer := p.command("ann", `{"t":"read_all","id":1,"category":""}`); status != http.StatusBadRequest || !strings.Contains(answer, "category must not be empty: leave it out to read everything") {
		t.Errorf("as a command over HTTP: %d %s", status, answer)
	}
	readAll := event("all", "user.read_all", `{"user_ids":["ann"],"category":""}`)
	if status, _, answer := request(t, http.MethodPost, p.url+"/v1/events", "application/json", readAll); status != http.StatusBadRequest || !strings.Contains(answer, "must not be empty") {
		t.Errorf("as an event: %d %s", status, answer)
	}
	conn, err := pgx.Connect(t.Context(), shardOf(t, database, "ann"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), publishSQL, readAll); err == nil || !strings.Contains(err.Error(), "data.category: must not be empty") {
		t.Errorf("in SQL: %v", err)
	}
	unset := events.Event{ID: "all", Source: "chat", Type: events.UserReadAll, Data: events.Data{UserIDs: []string{"ann"}}}
	err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
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

// Apps in a web view have origins that are no address of a page.
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
