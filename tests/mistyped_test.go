package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// A request with a mistyped field must not do more than intended, such as read all conversations
// because a filter is ignored. Every interface refuses it and names the field, and nothing is read.
func TestMistypedFieldsWidenNothing(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	p := serve(t, database)
	p.mustPost(delivered("tea", 1, `"ann"`))
	conn := pgtest.Connect(t, shardOf(t, database, "ann"))
	commands, jwt := connectWith(t, p.url, token(t, "ann")), token(t, "ann")
	for i, field := range []string{"categorie", "Category", "CATEGORY", "conversation_id"} {
		frame := fmt.Sprintf(`{"t":"read_all","id":%d,%q:"updates"}`, i+1, field)
		commands.say(frame)
		commands.await("an error for "+frame, func() bool { return commands.answers[i+1] == "invalid" })
		status, _, answer := requestAs(t, jwt, http.MethodPost, p.url+"/v1/commands", "", frame)
		refusedFor(t, frame, field, status, answer)

		all := event("all "+field, "user.read_all", fmt.Sprintf(`{"user_ids":["ann"],%q:"updates"}`, field))
		status, _, answer = request(t, http.MethodPost, p.url+"/v1/events", "application/json", all)
		refusedFor(t, all, field, status, answer)
		if _, err := conn.Exec(t.Context(), `SELECT badged.publish($1::text::jsonb)`, all); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("badged.publish of %s: %v, want an error about %s", all, err, field)
		}
	}
	for _, test := range []struct{ method, path, body, field string }{
		{http.MethodPost, "/v1/badges/query", `{"user_ids":["ann"],"at_leest":"1"}`, "at_leest"},
		{http.MethodGet, "/v1/users/ann/conversations?unred=true", "", "unred"},
		{http.MethodGet, "/v1/users/ann/conversations?unread=", "", "unread"},
		{http.MethodGet, "/v1/users/ann/conversations?unread=true&unread=false", "", "unread"},
		{http.MethodGet, "/v1/users/ann/badge?at_least=", "", "at_least"},
	} {
		status, _, answer := request(t, test.method, p.url+test.path, "application/json", test.body)
		refusedFor(t, test.path+" "+test.body, test.field, status, answer)
	}
	commands.awaitTotal(1)
	if n := total(t, p, "ann", p.mustPost(delivered("tea", 2, `"ann"`))); n != 2 {
		t.Errorf("the total is %d, want 2: something was read", n)
	}
}

func refusedFor(t *testing.T, what, field string, status int, answer string) {
	t.Helper()
	if status != http.StatusBadRequest || !strings.Contains(answer, field) {
		t.Errorf("%s is answered with %d %s, want 400 and the name %s", what, status, answer, field)
	}
}
