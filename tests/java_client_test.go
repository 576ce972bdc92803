package tests

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// Runs the Java client against a server: it shows the server's numbers, its commands take effect,
// and it reconnects after the server was killed and after its token expired, although all callbacks
// of the app throw exceptions.
func TestJavaClient(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	p := serve(t, database)
	address := strings.TrimPrefix(p.url, "http://")
	c := newScript(t, append([]string{
		"env", "BADGED_URL=" + p.url, "BADGED_AUTH=header", "BADGED_BACKOFF_MS=20", "STUMBLES=1",
		"BADGED_TOKEN=" + expiredToken(t, "ada"), "BADGED_FRESH_TOKEN=" + token(t, "ada"),
	}, java(t, "Conformance")...)...)
	awaitTotal := func(want int64) {
		t.Helper()
		for {
			if e := next(t, c); e.Total != nil && *e.Total == want {
				return
			}
		}
	}
	// awaitEnd waits until a command has ended, with a code if it failed.
	awaitEnd := func(n int) string {
		t.Helper()
		for {
			e := next(t, c)
			if e.Done == n {
				return ""
			}
			var refused struct { // here the code is a text
				Failed        int
				Code, Message string
			}
			line, said := strings.CutPrefix(e.Event, "said ")
			if said && json.Unmarshal([]byte(line), &refused) == nil && refused.Failed == n {
				return strings.TrimSpace(refused.Code + " " + refused.Message)
			}
		}
	}
	do := func(n int, what string, more map[string]any) {
		t.Helper()
		command := map[string]any{"do": what, "n": n}
		for name, value := range more {
			command[name] = value
		}
		c.do(command)
	}
	room := func(id, typ, data string) string {
		return `{"specversion":"1.0","id":"` + id + `","source":"chat","type":"` + typ + `","data":{"conversation_id":"hall",` + data + `}}`
	}
	awaitTotal(0)
	p.mustPost(delivered("tea", 1, `"ada"`), delivered("tea", 2, `"ada"`), delivered("tea", 3, `"ada"`))
	awaitTotal(3)
	do(1, "read", map[string]any{"conversation_id": "tea", "up_to_seq": "3"})
	awaitTotal(0)
	do(2, "mark_unread", map[string]any{"conversation_id": "tea", "seqs": []string{"2", "3"}})
	awaitTotal(2)

	p.kill()
	do(3, "read_all", nil)
	do(4, "mark_unread", map[string]any{"conversation_id": "nowhere"})
	p = serve(t, database, "--listen="+address)
	if code := awaitEnd(4); code != "not_found" {
		t.Errorf("marking what was never delivered ends with %q", code)
	}
	p.mustPost(room("1", "room.joined", `"user_ids":["ada"]`), room("2", "room.posted", `"seq":10`),
		room("3", "room.posted", `"seq":20,"sender_id":"ada"`), room("4", "room.posted", `"seq":30`))
	awaitTotal(2)
	do(5, "read", map[string]any{"conversation_id": "hall", "up_to_seq": "30"})
	awaitTotal(0)
	do(6, "mark_unread", map[string]any{"conversation_id": "hall", "from_seq": "20"})
	awaitTotal(1)

	for n, bad := range []map[string]any{
		{"conversation_id": "tea", "up_to_seq": "0"},
		{"conversation_id": "", "up_to_seq": "1"},
		{"conversation_id": strings.Repeat("é", 65), "up_to_seq": "1"},
		{"conversation_id": "a\u0000b", "up_to_seq": "1"},
	} {
		do(20+n, "read", bad)
		if code := awaitEnd(20 + n); !strings.HasPrefix(code, "invalid ") {
			t.Errorf("%v ends with %q", bad, code)
		}
	}
	do(12, "mark_unread", map[string]any{"conversation_id": "tea", "seqs": []string{}})
	if code := awaitEnd(12); !strings.Contains(code, "not 1 to 150 seqs") {
		t.Errorf("a mark of nothing ends with %q", code)
	}
	// The server is killed while a command is in flight: the command takes effect once.
	do(13, "read", map[string]any{"conversation_id": "hall", "up_to_seq": "30"})
	p.kill()
	p = serve(t, database, "--listen="+address)
	if code := awaitEnd(13); code != "" {
		t.Errorf("the read ends with %q", code)
	}
	// The command is durable, but the new process may not have folded it yet.
	p.awaitAnswer(http.MethodGet, "/v1/users/ada/badge", "", http.StatusOK, `"total":0`)
}

// A damaged store, or a store of a newer release, has commands that every server refuses. The Java
// client drops and reports these commands once, and sends the others.
func TestJavaClientDropsBadCommands(t *testing.T) {
	t.Parallel()
	p := serve(t, newDatabase(t))
	p.mustPost(delivered("tea", 1, `"ada"`), delivered("tea", 2, `"ada"`))
	folder := t.TempDir()
	const named = `"id":"5e1f0f6e-6f2b-4f0a-8a35-2f9f6f1d9b77","conversation_id":"tea"`
	stored := `{"user":"ada","commands":[7,{"t":"pin",` + named + `},{"t":"read",` + named + `,"up_to_seq":"2"},{"t":"mark_unread",` + named +
		`,"seqs":[0]},{"t":"read","id":"2","conversation_id":"tea","up_to_seq":2},{"t":"mark_unread","id":"c4b8e2d7-0a6f-4d39-9e15-7b3f2c1d8e64","conversation_id":"` +
		strings.Repeat("x", 5000) + `"},{"t":"read",` + named + `,"up_to_seq":1}]}`
	writeFile(t, filepath.Join(folder, "badge.json"), stored)
	begin := func() *script {
		return newScript(t, append([]string{
			"env", "BADGED_URL=" + p.url, "BADGED_AUTH=header", "BADGED_BACKOFF_MS=20", "BADGED_TOKEN=" + token(t, "ada"),
			"BADGED_STORE=" + folder, "BADGED_USER=ada",
		}, java(t, "Conformance")...)...)
	}
	c := begin()
	reasons := []string{"id must", "t must", "up_to_seq must", "seqs[0] must", "id must", "conversation_id must"}
	for len(reasons) > 0 {
		if e := next(t, c); e.Event == "dropped" {
			if !strings.HasPrefix(e.Text, reasons[0]) {
				t.Errorf("dropped because %s, want %s", e.Text, reasons[0])
			}
			reasons = reasons[1:]
		}
	}
	for {
		if e := next(t, c); e.Total != nil && *e.Total == 1 {
			break
		}
	}
	again := begin()
	for {
		e := next(t, again)
		if e.Event == "dropped" {
			t.Errorf("dropped once more: %s", e.Text)
		}
		if e.Total != nil && *e.Total == 1 {
			break
		}
	}
}
