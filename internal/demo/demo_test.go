package demo

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ask sends a request to a demo.
func ask(t *testing.T, f *fixture, method, target, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	f.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body)))
	return w
}

func TestUsers(t *testing.T) {
	f := newFixture(t)
	w := ask(t, f, http.MethodGet, "/demo/users", "")
	var got struct {
		Users []struct {
			UserID string `json:"user_id"`
			Name   string
			Color  string
			Token  string
		}
		Conversations []struct {
			ConversationID string `json:"conversation_id"`
			Name           string
			Kind           string
			Members        []string
			Category       string
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK {
		t.Fatalf("answer is %d %s", w.Code, w.Body)
	}
	if cache := w.Header().Get("Cache-Control"); cache != "no-store" {
		t.Errorf("Cache-Control = %q: tokens end", cache)
	}
	if len(got.Users) != len(people()) || len(got.Conversations) != len(conversations()) {
		t.Errorf("%d users in %d conversations, want %d in %d", len(got.Users), len(got.Conversations), len(people()), len(conversations()))
	}
	known := map[string]bool{}
	for _, u := range got.Users {
		known[u.UserID] = true
		if id, err := f.tokens.Authenticate(t.Context(), u.Token); err != nil || id.UserID != u.UserID {
			t.Errorf("the token of %s is for %+v, %v", u.UserID, id, err)
		}
		if u.Name == "" || u.Color == "" {
			t.Errorf("%s is %+v", u.UserID, u)
		}
	}
	for _, c := range got.Conversations {
		for _, id := range c.Members {
			if !known[id] {
				t.Errorf("%s in %s is not a person", id, c.ConversationID)
			}
		}
		if c.Name == "" || c.Kind == "" || c.Category == "" || len(c.Members) < 2 {
			t.Errorf("conversation is %+v", c)
		}
	}
}

func TestPostMessage(t *testing.T) {
	f := newFixture(t)
	const body = `{"conversation_id":"lunch","sender_id":"ada","text":`
	longest := strings.Repeat("é", maxTextBytes/2)
	for _, test := range []struct {
		name, body string
		status     int
		want       string // the answer
	}{
		{"a message", body + `"Lunch?"}`, 200, `{"seq":1}`},
		{"the next, trimmed", body + `" \u0000 Yes \n"}`, 200, `{"seq":2}`},
		{"the longest allowed", body + `"` + longest + `"}`, 200, `{"seq":3}`},
		{"a byte longer", body + `"` + longest + `x"}`, 400, `{"detail":"a message has 1 to 500 bytes"}`},
		{"no text", body + `""}`, 400, `{"detail":"a message has 1 to 500 bytes"}`},
		{"white space", body + `" \n\u0000"}`, 400, `{"detail":"a message has 1 to 500 bytes"}`},
		{"an unknown conversation", `{"conversation_id":"dinner","sender_id":"ada","text":"x"}`, 400, `{"detail":"there is no such conversation"}`},
		{"a sender who is not a member", `{"conversation_id":"lunch","sender_id":"dev","text":"x"}`, 400, `{"detail":"the sender is not in this conversation"}`},
		{"the bot", `{"conversation_id":"releases","sender_id":"release-bot","text":"x"}`, 400, `{"detail":"the sender is not in this conversation"}`},
		{"no JSON", `hello`, 400, `{"detail":"the message cannot be read"}`},
		{"nothing", ``, 400, `{"detail":"the message cannot be read"}`},
		{"text that is a number", body + `7}`, 400, `{"detail":"the message cannot be read"}`},
		{"more than 4 KiB", body + `"` + strings.Repeat("x", 4096) + `"}`, 400, `{"detail":"the message cannot be read"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := ask(t, f, http.MethodPost, "/demo/messages", test.body)
			if w.Code != test.status || w.Body.String() != test.want+"\n" {
				t.Errorf("answer is %d %s, want %d %s", w.Code, w.Body, test.status, test.want)
			}
		})
	}
	messages, err := f.store.recent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(messages) != 3 || messages[1].Text != "Yes" || messages[2].Text != longest {
		t.Errorf("stored are %+v, want the three that were accepted", messages)
	}
}

func TestPostedMessageIsShown(t *testing.T) {
	f := newFixture(t)
	p := openPage(t, serve(t, f))
	ask(t, f, http.MethodPost, "/demo/messages", `{"conversation_id":"lunch","sender_id":"ada","text":"@Ben lunch?"}`)
	m := p.nextMessage(t)
	if m.Text != "@Ben lunch?" || m.SenderID != "ada" || m.Seq != 1 || len(m.MentionedUserIDs) != 1 {
		t.Errorf("message is %+v", m)
	}
}

func TestSimulation(t *testing.T) {
	f := newFixture(t)
	expect := func(w *httptest.ResponseRecorder, status int, want string) {
		t.Helper()
		if w.Code != status || w.Body.String() != want+"\n" {
			t.Errorf("answer is %d %s, want %d %s", w.Code, w.Body, status, want)
		}
	}
	expect(ask(t, f, http.MethodGet, "/demo/simulation", ""), 200, `{"running":true}`)
	expect(ask(t, f, http.MethodPost, "/demo/simulation", `{"running":false}`), 200, `{"running":false}`)
	expect(ask(t, f, http.MethodPost, "/demo/simulation", `stop`), 400, `{"detail":"want {\"running\": true} or {\"running\": false}"}`)
	expect(ask(t, f, http.MethodGet, "/demo/simulation", ""), 200, `{"running":false}`)
	expect(ask(t, f, http.MethodPost, "/demo/simulation", `{"running":true}`), 200, `{"running":true}`)
	expect(ask(t, f, http.MethodGet, "/demo/simulation", ""), 200, `{"running":true}`)
}

func TestPageLoadsNothingFromElsewhere(t *testing.T) {
	f := newFixture(t)
	for target, want := range map[string]string{"/": "<html>the page", "/app.js": "the script"} {
		w := ask(t, f, http.MethodGet, target, "")
		if w.Code != http.StatusOK || w.Body.String() != want {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
		h := w.Header()
		policy := h.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; ") || !strings.Contains(policy, "frame-ancestors 'none'") {
			t.Errorf("%s: Content-Security-Policy = %q", target, policy)
		}
		for directive := range strings.SplitSeq(policy, "; ") {
			if name, from, _ := strings.Cut(directive, " "); !slices.Contains([]string{"'none'", "'self'", "'self' data:"}, from) {
				t.Errorf("%s: %s allows %s", target, name, from)
			}
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-cache" {
			t.Errorf("%s: headers are %v", target, h)
		}
	}
}

func TestNotFound(t *testing.T) {
	f := newFixture(t)
	for _, test := range []struct {
		method, target string
		want           int
	}{
		{http.MethodGet, "/nothing.js", http.StatusNotFound},
		{http.MethodGet, "/demo/nothing", http.StatusNotFound},
		{http.MethodPost, "/", http.StatusMethodNotAllowed},
		{http.MethodPost, "/demo/users", http.StatusMethodNotAllowed},
		{http.MethodDelete, "/demo/messages", http.StatusMethodNotAllowed},
	} {
		if w := ask(t, f, test.method, test.target, ""); w.Code != test.want {
			t.Errorf("%s %s: %d, want %d", test.method, test.target, w.Code, test.want)
		}
	}
}

func TestDatabaseThatIsAway(t *testing.T) {
	f := newFixture(t)
	f.pool.Close()
	for _, test := range []struct{ method, target, body string }{
		{http.MethodPost, "/demo/messages", `{"conversation_id":"lunch","sender_id":"ada","text":"x"}`},
		{http.MethodGet, "/demo/feed", ""},
	} {
		w := ask(t, f, test.method, test.target, test.body)
		if want := `{"detail":"the demo's database does not answer; try again"}` + "\n"; w.Code != http.StatusServiceUnavailable || w.Body.String() != want {
			t.Errorf("%s: %d %s", test.target, w.Code, w.Body)
		}
	}
	if f.feed.watched() {
		t.Error("a page that could not open is counted")
	}
}

func TestKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.json")
	made, err := LoadKeys(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(made.PublisherKey) < 16 || len(made.JWTSecret) < 32 || len(made.AdminKey) < 16 {
		t.Errorf("keys are short: %+v", made)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v; want it closed to others", info.Mode(), err)
	}
	if again, err := LoadKeys(file); err != nil || again != made {
		t.Errorf("the second time the keys are %+v, %v; want %+v", again, err, made)
	}
	if other, err := LoadKeys(file + "2"); err != nil || other == made {
		t.Errorf("another demo has %+v, %v", other, err)
	}
	for _, broken := range []string{"", "{}", "not JSON", `{"publisher_key":"x"}`, `{"jwt_secret":"x"}`, `{"publisher_key":"p","jwt_secret":"s"}`} {
		if err := os.WriteFile(file, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		want := file + " holds no keys; delete the file and new keys are created"
		if keys, err := LoadKeys(file); err == nil || err.Error() != want || keys != (Keys{}) {
			t.Errorf("of %q: %+v, %v", broken, keys, err)
		}
	}
	if _, err := LoadKeys(filepath.Join(file, "keys.json")); err == nil || !strings.HasPrefix(err.Error(), "read the demo's keys: ") {
		t.Errorf("in a directory that is a file: %v", err)
	}
	if _, err := LoadKeys(filepath.Join(t.TempDir(), "missing", "keys.json")); err == nil || !strings.HasPrefix(err.Error(), "store the demo's keys: ") {
		t.Errorf("in a directory that is not there: %v", err)
	}
}
