package tests

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// The Java client holds the numbers of a whole server: its commands take effect, and it
// comes back after the server was killed and after its token expired, although all
// callbacks of the app throw.
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
			var refused struct { // its code is a text
				Failed int
				Code   string
			}
			line, said := strings.CutPrefix(e.Event, "said ")
			if said && json.Unmarshal([]byte(line), &refused) == nil && refused.Failed == n {
				return refused.Code
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
		{"conversation_id": "tea", "up_to_seq": "0"}, {"conversation_id": "", "up_to_seq": "1"},
	} {
		do(10+n, "read", bad)
		if code := awaitEnd(10 + n); code == "" {
			t.Errorf("%v is accepted", bad)
		}
	}
	do(12, "mark_unread", map[string]any{"conversation_id": "tea", "seqs": []string{}})
	if code := awaitEnd(12); !strings.Contains(code, "not 1 to 150 seqs") {
		t.Errorf("a mark of nothing ends with %q", code)
	}
	// A kill with a command in flight: it takes effect once.
	do(13, "read", map[string]any{"conversation_id": "hall", "up_to_seq": "30"})
	p.kill()
	p = serve(t, database, "--listen="+address)
	if code := awaitEnd(13); code != "" {
		t.Errorf("the read ends with %q", code)
	}
	// It is durable; the new process may yet have to fold it.
	for range polls(t, "a total of 0") {
		if _, _, answer := request(t, http.MethodGet, p.url+"/v1/users/ada/badge", "", ""); strings.Contains(answer, `"total":0`) {
			break
		}
	}
}
