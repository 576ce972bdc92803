package tests

import (
	"net/http"
	"strings"
	"testing"

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
