package app

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// events opens a stream of a user and returns a function for its next frame.
func (s *server) events(t *testing.T, userID string, header http.Header) (next func() frame, answered http.Header) {
	t.Helper()
	r := newRequest(t, http.MethodGet, s.url+"/v1/sse", "")
	r.Header = header.Clone()
	r.Header.Set("Authorization", "Bearer "+s.token(t, userID))
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	lines := bufio.NewScanner(res.Body)
	return func() (f frame) {
		t.Helper()
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if err := json.Unmarshal([]byte(data), &f); err != nil {
					t.Fatal(err)
				}
				return f
			}
		}
		t.Fatalf("the stream has ended: %v", lines.Err())
		return f
	}, res.Header
}

func TestEventStreamFollowsPublishedAndRead(t *testing.T) {
	s := run(t, open(t, settings(pgtest.NewDB(t, migrated()))))
	s.badge(t, "ada", s.publish(t, message("lunch", 1, "ada")))
	next, _ := s.events(t, "ada", http.Header{})
	if f := next(); f.T != "snapshot" || f.Total != 1 {
		t.Errorf("the first event is %+v, want one unread", f)
	}
	s.publish(t, message("lunch", 2, "ada"))
	if f := next(); f.T != "changes" || f.Total != 2 || f.Conversations[0].Unread != 2 {
		t.Errorf("then %+v, want two unread", f)
	}
	r := newRequest(t, http.MethodPost, s.url+"/v1/commands", `{"t":"read","id":7,"conversation_id":"lunch","up_to_seq":2}`)
	r.Header.Set("Authorization", "Bearer "+s.token(t, "ada"))
	if a := s.send(t, r); a.status != http.StatusOK || a.body != `{"t":"ok","id":7}`+"\n" {
		t.Errorf("the command is answered with %d %s", a.status, a.body)
	}
	if f := next(); f.T != "changes" || f.Total != 0 {
		t.Errorf("then %+v, want nothing unread", f)
	}
	go s.halt()
	if f := next(); f.T != "bye" {
		t.Errorf("the last event is %+v", f)
	}
}

// Pages of allowed origins can use the routes; browsers get no permission for
// others.
func TestOriginsOfEventStreams(t *testing.T) {
	cfg := settings(pgtest.NewDB(t, migrated()))
	cfg.AllowedOrigins = []string{"https://chat.example"}
	s := run(t, open(t, cfg))
	for origin, want := range map[string]string{"https://chat.example": "https://chat.example", "https://evil.example": ""} {
		for path, method := range map[string]string{"/v1/sse": http.MethodGet, "/v1/commands": http.MethodPost} {
			r := newRequest(t, http.MethodOptions, s.url+path, "")
			r.Header.Set("Origin", origin)
			r.Header.Set("Access-Control-Request-Method", method)
			r.Header.Set("Access-Control-Request-Headers", "authorization,content-type,last-event-id")
			a := s.send(t, r)
			if got := a.header.Get("Access-Control-Allow-Origin"); got != want {
				t.Errorf("%s may ask for %s: %q, want %q", origin, path, got, want)
			}
			if got := a.header.Get("Access-Control-Allow-Headers"); (got != "") != (want != "") {
				t.Errorf("%s may send %q to %s", origin, got, path)
			}
		}
		next, answered := s.events(t, "ada", http.Header{"Origin": {origin}})
		if got := answered.Get("Access-Control-Allow-Origin"); got != want {
			t.Errorf("%s may read the stream: %q, want %q", origin, got, want)
		}
		next()
		socket, status, err := upgrade(t, s, http.Header{"Origin": {origin}})
		if err == nil {
			_ = socket.Close() // the server may have
		}
		if (err == nil) != (want != "") {
			t.Errorf("%s may open a WebSocket: %d", origin, status)
		}
	}
	// The other routes never allow pages of other origins.
	r := newRequest(t, http.MethodGet, s.url+"/v1/users/ada/badge", "")
	r.Header.Set("Origin", "https://chat.example")
	if got := s.send(t, r).header.Get("Access-Control-Allow-Origin"); got != "" {
		t.Errorf("badges are open to %q", got)
	}
}

// While the key set cannot be fetched, readiness and metrics show it, and
// tokens with known keys are accepted.
func TestKeySetThatCannotBeFetched(t *testing.T) {
	cfg := settings(pgtest.NewDB(t, migrated()))
	cfg.JWKSURL = "http://127.0.0.1:1" // where no server listens
	s := run(t, open(t, cfg))
	const want = `"jwks":"never fetched: cannot be reached"`
	eventually(t, want, func() bool {
		a := s.get(t, "/readyz")
		return a.status == http.StatusOK && strings.Contains(a.body, want)
	})
	if a := s.get(t, "/metrics"); !strings.Contains(a.body, "badged_jwks_last_success_timestamp_seconds 0\n") {
		t.Error("the metrics do not say that there was no success")
	}
	next, _ := s.events(t, "ada", http.Header{})
	if f := next(); f.T != "snapshot" {
		t.Errorf("with a known key: %+v", f)
	}
	s.impatient = true
	// {"alg":"HS256","kid":"unknown"}: the key set may have this key.
	const unknown = "eyJhbGciOiJIUzI1NiIsImtpZCI6InVua25vd24ifQ.e30.AA"
	for path, method := range map[string]string{"/v1/users/ada/badge": http.MethodGet, "/v1/sse": http.MethodGet, "/v1/commands": http.MethodPost} {
		if a := s.ask(t, unknown, method, path, "", ""); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
			t.Errorf("%s: with an unknown key: %d %s", path, a.status, a.body)
		}
	}
}
