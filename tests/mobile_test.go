package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// The Java client, in the app of docs/clients-mobile.md, has the right state in its store: while it is
// connected, after pushes, and after restarts of the server and of the app.
func TestMobileClient(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	p := serve(t, db)
	address := strings.TrimPrefix(p.url, "http://")
	folder := t.TempDir()
	app := func(t *testing.T) *script {
		t.Helper()
		return newScript(t, java(t, "Main", folder, "http://"+address)...)
	}
	deliver := func(seq int) {
		t.Helper()
		publish(t, p, event(fmt.Sprintf("tea/%d", seq), "message.delivered",
			fmt.Sprintf(`{"conversation_id":"tea","seq":%d,"user_ids":["ada"]}`, 1<<60+seq)))
	}
	expect := func(c *script, event, text string, code int) {
		t.Helper()
		if e := next(t, c); e.Event != event || e.Text != text || e.Code != code {
			t.Fatalf("awaiting %s %q %d: %+v", event, text, code, e)
		}
	}
	// awaitTotal waits until the app shows a total.
	awaitTotal := func(c *script, total int) {
		t.Helper()
		for {
			if e := next(t, c); e.Event == "total" && e.Code == total {
				return
			}
		}
	}
	type held struct {
		Epoch   string
		Version int64
	}
	resumesFrom := func(c *script) (h held) {
		t.Helper()
		c.do(map[string]any{"do": "state"})
		for {
			e := next(t, c)
			if e.Event == "total" { // an earlier state may be printed first
				continue
			}
			if err := json.Unmarshal([]byte(e.Text), &h); e.Event != "state" || err != nil {
				t.Fatalf("the state: %+v", e)
			}
			return h
		}
	}

	c := app(t)
	expect(c, "total", "", 0)
	c.do(map[string]any{"do": "start", "token": "no token"})
	expect(c, "token", "", 1)
	if e := next(t, c); e.Event != "refused" || e.Code != 4001 {
		t.Fatalf("with a bad token: %+v", e)
	}
	deliver(1)
	c.do(map[string]any{"do": "start", "token": token(t, "ada")})
	expect(c, "token", "", 2)
	awaitTotal(c, 1)
	deliver(2)
	awaitTotal(c, 2)

	// The app shows the number of a push if it is newer. The push does not change the state
	// with which the client resumes.
	before := resumesFrom(c)
	push := func(epoch string, version int64, total int) map[string]any {
		return map[string]any{"do": "push", "epoch": epoch, "version": strconv.FormatInt(version, 10), "total": strconv.Itoa(total)}
	}
	c.do(push(before.Epoch, before.Version, 99)) // a late push, which is ignored
	expect(c, "pushed", "", 0)
	c.do(push(before.Epoch, before.Version+1, 7))
	expect(c, "total", "", 7)
	expect(c, "pushed", "", 0)
	c.do(push(before.Epoch, before.Version+1, 8)) // a late push, which is ignored
	expect(c, "pushed", "", 0)
	c.do(push("another", 1, 9))
	expect(c, "total", "", 9)
	expect(c, "pushed", "", 0)
	if after := resumesFrom(c); after != before {
		t.Fatalf("pushes changed the state to resume from, %+v, to %+v", before, after)
	}

	// The number of a push of another epoch is corrected by the next connection, although
	// there is no new event.
	c.do(map[string]any{"do": "stop"})
	c.do(map[string]any{"do": "start", "token": token(t, "ada")})
	awaitTotal(c, 2)

	// The server closes the connection. The client sends the user's commands after it has
	// reconnected.
	p.mustStop()
	c.do(map[string]any{"do": "read", "conversation": "tea", "seq": 1<<60 + 1})
	c.do(map[string]any{"do": "read", "conversation": "tea", "seq": 1<<60 + 2})
	p = serve(t, db, "--listen="+address)
	deliver(3)
	awaitTotal(c, 1)
	c.do(map[string]any{"do": "conversation", "conversation": "tea"})
	var e foreignEvent
	for e.Event != "conversation" { // a total may come first
		e = next(t, c)
	}
	var conversation struct {
		Unread  int
		ReadSeq int64 `json:"read_seq"`
	}
	if err := json.Unmarshal([]byte(e.Text), &conversation); err != nil || conversation.Unread != 1 || conversation.ReadSeq != 1<<60+2 {
		t.Fatalf("the conversation is %s", e.Text)
	}
	last := resumesFrom(c)

	// The app is restarted: it shows its last number and resumes.
	c.do(map[string]any{"do": "stop"})
	c = app(t)
	expect(c, "total", "", 1)
	if kept := resumesFrom(c); kept != last {
		t.Errorf("it resumes from %+v, not %+v", kept, last)
	}
	c.do(map[string]any{"do": "start", "token": token(t, "ada")})
	c.do(map[string]any{"do": "read", "conversation": "tea", "seq": 1<<60 + 3})
	awaitTotal(c, 0)
	c.do(map[string]any{"do": "mark", "conversation": "tea"})
	awaitTotal(c, 1)
	c.do(map[string]any{"do": "forget"})
	awaitTotal(c, 0)
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("the store was not removed: %v, %v", left, err)
	}
}
