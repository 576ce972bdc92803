package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Conversations that are unread for too long expire when --expire is set, and
// not otherwise. Connected apps get the change, and nothing else changes.
func TestExpire(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database)
	publish(t, p, delivered("old", 1, `"ann","bob"`))
	publish(t, p, event("likes/1", "message.delivered", `{"conversation_id":"likes","seq":1,"user_ids":["ann"],"category":"likes"}`))
	position := publish(t, p, delivered("young", 1, `"ann"`))
	for user, want := range map[string]int64{"ann": 3, "bob": 1} { // fold all before time passes
		if n := total(t, p, user, position); n != want {
			t.Errorf("the total of %s is %d, want %d", user, n, want)
		}
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}

	// Ten days pass for all conversations but one.
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `UPDATE badged.conversations SET delivered_hour = delivered_hour - 240 WHERE conversation_id <> 'young'`); err != nil {
		t.Fatal(err)
	}

	p = serve(t, database)
	if n := total(t, p, "ann", position); n != 3 {
		t.Errorf("without --expire the total is %d, want 3", n)
	}
	if _, _, metrics := request(t, http.MethodGet, p.url+"/metrics", "", ""); strings.Contains(metrics, "badged_expiry") {
		t.Error("without --expire a sweep runs")
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}

	p = serve(t, database, "--expire=chat=168h")
	ann, bob := connect(t, p.url, "ann"), connect(t, p.url, "bob")
	ann.awaitTotal(2)
	bob.awaitTotal(0)
	shown := must(t, "user", "show", "ann", "--database-url="+database)
	for _, want := range []string{"likes", "young"} {
		if !strings.Contains(shown, want) {
			t.Errorf("%s is gone:\n%s", want, shown)
		}
	}
	p.awaitSays(`msg="expiry sweep finished" expired=2`)
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{"chat", "chat=1m", "chat=7d", "chat=24h,chat=48h"} {
		_, stderr, code := command(t, "serve", "--database-url="+database, "--publisher-keys=a=b", "--expire="+wrong)
		if code != 2 || !strings.Contains(stderr, "--expire (BADGED_EXPIRE)") {
			t.Errorf("--expire=%s: exit code %d\n%s", wrong, code, stderr)
		}
	}
	refused := event("forged", "conversation.expired", `{"conversation_id":"young","up_to_seq":1,"user_ids":["ann"]}`)
	p = serve(t, database)
	if status, _, answer := request(t, http.MethodPost, p.url+"/v1/events", "application/json", refused); status != http.StatusBadRequest {
		t.Errorf("a publisher can write it over HTTP: %d %s", status, answer)
	}
	if _, err := conn.Exec(t.Context(), fmt.Sprintf(`SELECT badged.publish('%s')`, refused)); err == nil {
		t.Error("a publisher can write it in SQL")
	}
}
