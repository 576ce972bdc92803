package traffic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/pubsub"
)

const testKey = "s3cret"

// serve serves the two routes that a load uses, over a model, and returns a
// target for them. fault is called first for each request, with its number
// from 0, and reports whether it has answered.
func serve(t *testing.T, m *model, fault func(n int64, w http.ResponseWriter, r *http.Request) bool) *HTTPTarget {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/events", func(w http.ResponseWriter, r *http.Request) { answerEvents(t, m, w, r) })
	mux.HandleFunc("POST /v1/badges/query", func(w http.ResponseWriter, r *http.Request) { answerBadges(t, m, w, r) })
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer "+testKey {
			t.Errorf("%s: Authorization is %q", r.URL.Path, got)
		}
		n := requests.Add(1) - 1
		if fault != nil && fault(n, w, r) {
			return
		}
		mux.ServeHTTP(w, r)
	}))
	target, err := NewHTTPTarget(server.URL, testKey)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		target.Close()
		server.Close()
	})
	return target
}

func answerEvents(t *testing.T, m *model, w http.ResponseWriter, r *http.Request) {
	if got := r.Header.Get("Content-Type"); got != "application/x-ndjson" {
		t.Errorf("Content-Type is %q", got)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client disconnected
	}
	var evs []events.Event
	for line := range bytes.Lines(body) {
		e, err := events.Decode(line)
		if err != nil {
			t.Errorf("a bad event arrived: %v", err)
		}
		evs = append(evs, e)
	}
	position, _ := m.Append(r.Context(), evs)
	w.Header().Set("Badged-Position", strconv.FormatInt(position, 10))
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, `{"accepted":`+strconv.Itoa(len(evs))+`}`)
}

func answerBadges(t *testing.T, m *model, w http.ResponseWriter, r *http.Request) {
	var q struct {
		UserIDs []string `json:"user_ids"`
		AtLeast string   `json:"at_least"`
		Timeout string   `json:"timeout"`
	}
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&q); err != nil {
		t.Errorf("query: %v", err)
	}
	if _, err := time.ParseDuration(q.Timeout); err != nil {
		t.Errorf("timeout: %v", err)
	}
	position, err := strconv.ParseInt(q.AtLeast, 10, 64)
	if err != nil {
		t.Errorf("at_least: %v", err)
	}
	badges, err := m.Badges(r.Context(), q.UserIDs, position)
	if errors.Is(err, ErrNotFolded) {
		problem(w, http.StatusGatewayTimeout, `{"status":504,"detail":"not folded within 2s; ask again"}`)
		return
	}
	if err != nil {
		t.Error(err)
	}
	_ = json.NewEncoder(w).Encode(map[string][]pubsub.Badge{"badges": badges})
}

func problem(w http.ResponseWriter, status int, body string) {
	answering(status, "application/problem+json", body)(0, w, nil)
}

// answering is a fault of all requests.
func answering(status int, contentType, body string) func(n int64, w http.ResponseWriter, r *http.Request) bool {
	return func(_ int64, w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
		return true
	}
}

func TestLoadOverHTTPSurvivesAServerThatFailsInTheMiddle(t *testing.T) {
	content := chatter(2000)
	unread := expectedUnread(t, strings.NewReader(content))
	for _, tt := range []struct {
		name  string
		fault func(m *model) func(n int64, w http.ResponseWriter, r *http.Request) bool
	}{
		{"503 while it restarts", func(*model) func(int64, http.ResponseWriter, *http.Request) bool {
			return func(n int64, w http.ResponseWriter, _ *http.Request) bool {
				if n < 5 || n > 20 {
					return false
				}
				problem(w, http.StatusServiceUnavailable, `{"detail":"draining"}`)
				return true
			}
		}},
		{"429 with Retry-After", func(*model) func(int64, http.ResponseWriter, *http.Request) bool {
			return func(n int64, w http.ResponseWriter, _ *http.Request) bool {
				if n%3 != 0 {
					return false
				}
				w.Header().Set("Retry-After", "1")
				problem(w, http.StatusTooManyRequests, `{}`)
				return true
			}
		}},
		{"connections that break before the request is done", func(*model) func(int64, http.ResponseWriter, *http.Request) bool {
			return func(n int64, _ http.ResponseWriter, _ *http.Request) bool {
				if n%4 == 1 {
					panic(http.ErrAbortHandler)
				}
				return false
			}
		}},
		{"connections that break when the request is done", func(m *model) func(int64, http.ResponseWriter, *http.Request) bool {
			return func(n int64, _ http.ResponseWriter, r *http.Request) bool {
				if n%4 != 1 {
					return false
				}
				if r.URL.Path == "/v1/events" {
					answerEvents(t, m, httptest.NewRecorder(), r)
				}
				panic(http.ErrAbortHandler)
			}
		}},
		{"folding that lags behind", func(m *model) func(int64, http.ResponseWriter, *http.Request) bool {
			m.foldOnAppend = false
			return func(_ int64, _ http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != "/v1/events" {
					m.mu.Lock()
					m.folded++
					m.mu.Unlock()
				}
				return false
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newModel()
			target := serve(t, m, tt.fault(m))
			got, err := Load(t.Context(), Config{
				File: writeFile(t, "t", content), Target: target, BatchSize: 100, clock: newTestClock(),
			})
			if err != nil {
				t.Fatal(err)
			}
			users, withUnread, total := sums(unread)
			if got.Users != users || got.UsersWithUnread != withUnread || got.TotalUnread != total ||
				got.Messages != 2000 || got.Events != int64(len(m.appended)) {
				t.Errorf("summary %+v, want %d users, %d with %d unread, and %d events",
					got, users, withUnread, total, len(m.appended))
			}
			checkBadges(t, m, unread)
		})
	}
}

func TestLoadOverHTTPGivesUp(t *testing.T) {
	target := serve(t, newModel(), answering(http.StatusServiceUnavailable, "application/problem+json", `{"type":"urn:badged:problem","detail":"the database cannot be reached"}`))
	path := writeFile(t, "t", "a b 1\n")
	_, err := Load(t.Context(), Config{File: path, Target: target, GiveUpAfter: 10 * time.Second, clock: newTestClock()})
	want := "publish " + path + ", lines 1 to 1: gave up after 10s without progress: " +
		"the server answered 503 Service Unavailable: the database cannot be reached"
	if err == nil || err.Error() != want {
		t.Errorf("error is %v\nwant %s", err, want)
	}
}

func TestLoadOverHTTPShowsWhichLineIsRefused(t *testing.T) {
	target := serve(t, newModel(), answering(http.StatusBadRequest, "application/problem+json", `{"type":"urn:badged:problem","title":"Bad Request","status":400,
			"detail":"some events are invalid; nothing was stored",
			"errors":[{"index":1,"field":"type","message":"is written by badged itself only"}]}`))
	path := writeFile(t, "t", "\n"+delivered+"\n\n"+marked+"\n")
	_, err := Load(t.Context(), Config{File: path, Target: target, clock: newTestClock()})
	want := "publish " + path + ", lines 2 to 4: " +
		"the server answered 400 Bad Request: some events are invalid; nothing was stored; " +
		path + ":4: type: is written by badged itself only"
	if err == nil || err.Error() != want {
		t.Errorf("error is %v\nwant %s", err, want)
	}
	var line *LineError
	var refused *ServerError
	if !errors.As(err, &line) || line.Line != 4 || !errors.As(err, &refused) || refused.Status != http.StatusBadRequest {
		t.Errorf("error does not tell its parts: %#v", err)
	}
}

func TestHTTPTargetErrors(t *testing.T) {
	for _, tt := range []struct {
		name          string
		status        int
		header        map[string]string
		body          string
		want          string
		wantTransient bool
	}{
		{
			name: "refused key", status: 401,
			header: map[string]string{"Content-Type": "application/problem+json"}, body: `{"type":"urn:badged:problem","detail":"no such key"}`,
			want: "the server answered 401 Unauthorized: no such key",
		},
		{name: "refused key without a body", status: 403, want: "the server answered 403 Forbidden: check the publisher key; badged did not send this answer: check the server URL, and the proxies in between"},
		{
			name: "another server", status: 404, header: map[string]string{"Content-Type": "text/html"}, body: "<html>",
			want: "the server answered 404 Not Found; badged did not send this answer: check the server URL, and the proxies in between",
		},
		{name: "a redirect", status: 301, header: map[string]string{"Location": "/v2"}, want: "the server answered 301 Moved Permanently; badged did not send this answer: check the server URL, and the proxies in between"},
		{
			name: "plain text", status: 502, header: map[string]string{"Content-Type": "text/plain; charset=utf-8"}, body: "no upstream\nat all",
			want: "the server answered 502 Bad Gateway: no upstream", wantTransient: true,
		},
		{
			name: "a broken problem", status: 500, header: map[string]string{"Content-Type": "application/problem+json"}, body: "{",
			want: "the server answered 500 Internal Server Error", wantTransient: true,
		},
		{
			name: "no position", status: 202, want: `is "", not a position`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			target := serve(t, newModel(), func(_ int64, w http.ResponseWriter, _ *http.Request) bool {
				for name, value := range tt.header {
					w.Header().Set(name, value)
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
				return true
			})
			_, err := target.Append(t.Context(), readAll(t, "a b 1"))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is %v\nwant %s", err, tt.want)
			}
			var transient *TransientError
			if errors.As(err, &transient) != tt.wantTransient {
				t.Errorf("transient is not %t: %#v", tt.wantTransient, err)
			}
			if strings.Contains(err.Error(), testKey) {
				t.Errorf("the key is in the error: %v", err)
			}
		})
	}
}

// Only the problem document of badged tells badged from other servers: when a load or a
// relay starts, and in refusals.
func TestWhatBadgedAnswers(t *testing.T) {
	const noEvents = `{"type":"urn:badged:problem","title":"Bad Request","status":400,"detail":"no events"}`
	for _, tt := range []struct {
		name, contentType, body string
		status                  int
		byBadged, passes        bool
	}{
		{"badged", "application/problem+json", noEvents, 400, true, true},
		{"badged, which does not know the key", "application/problem+json", noEvents, 401, true, false},
		{"a problem of another server", "application/problem+json", `{"type":"about:blank","title":"Bad Request","status":400,"errors":[{"index":0,"message":"no"}]}`, 400, false, false},
		{"a problem in another type of content", "application/json", noEvents, 400, false, false},
		{"a page", "text/html", "<h1>400 Bad Request</h1>", 400, false, false},
		{"a server that takes everything", "text/plain", "ok", 202, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			target := serve(t, newModel(), answering(tt.status, tt.contentType, tt.body))
			if err := target.Check(t.Context()); tt.passes != (err == nil) || err != nil && !tt.byBadged && !strings.Contains(err.Error(), "check the server URL") {
				t.Errorf("it is checked with %v", err)
			}
			_, err := target.Append(t.Context(), readAll(t, "a b 1"))
			var refused *ServerError
			if errors.As(err, &refused) && (refused.ByBadged != tt.byBadged || len(refused.Events) > 0) {
				t.Errorf("the refusal is %+v", refused)
			}
		})
	}
}

func TestHTTPTargetConnectionRefusedIsTransient(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	target, err := NewHTTPTarget(server.URL, testKey)
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
	_, err = target.Append(t.Context(), readAll(t, "a b 1"))
	var transient *TransientError
	if !errors.As(err, &transient) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("error is %v", err)
	}
}

func TestHTTPTargetUntrustedCertificateIsNotTransient(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // it logs the client that disconnects
	server.StartTLS()
	defer server.Close()
	target, err := NewHTTPTarget(server.URL, testKey)
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	_, err = target.Append(t.Context(), readAll(t, "a b 1"))
	var transient *TransientError
	if err == nil || errors.As(err, &transient) {
		t.Errorf("error is %v", err)
	}
}

func TestTargetsThatAreNotFoldedYet(t *testing.T) {
	database := &modelDatabase{model: newModel()}
	for name, target := range map[string]Target{"HTTP": serve(t, newModel(), nil), "a database": &DatabaseTarget{log: database, badges: database}} {
		if _, err := target.Badges(t.Context(), []string{"a"}, 1); !errors.Is(err, ErrNotFolded) {
			t.Errorf("%s: error is %v", name, err)
		}
		badges, err := target.Badges(t.Context(), []string{"a"}, 0)
		if diff := cmp.Diff([]pubsub.Badge{{UserID: "a"}}, badges); err != nil || diff != "" {
			t.Errorf("%s: error %v, badges (-want +got):\n%s", name, err, diff)
		}
	}
}

func TestHTTPTargetChecksTheNumberOfBadges(t *testing.T) {
	target := serve(t, newModel(), answering(http.StatusOK, "application/json", `{"badges":[]}`))
	if _, err := target.Badges(t.Context(), []string{"a"}, 0); err == nil || err.Error() != "asked for the badges of 1 users, got 0" {
		t.Errorf("error is %v", err)
	}
}

func TestHTTPTargetEndsWithItsContext(t *testing.T) {
	arrived := make(chan struct{})
	target := serve(t, newModel(), func(_ int64, _ http.ResponseWriter, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body) // so that the server notices the disconnect
		close(arrived)
		<-r.Context().Done()
		return true
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	_, err := Load(ctx, Config{File: writeFile(t, "t", "a b 1"), Target: target})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
}

func TestRetryAfter(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"": 0, "3": 3 * time.Second, "-1": 0, "99999999": time.Hour, "Wed, 21 Oct 2015 07:28:00 GMT": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {value}}); got != want {
			t.Errorf("Retry-After %q: %s, want %s", value, got, want)
		}
	}
}

func TestNewHTTPTarget(t *testing.T) {
	for _, bad := range []struct{ url, key string }{
		{"", testKey},
		{"localhost:8080", testKey},
		{"ftp://localhost", testKey},
		{"http://", testKey},
		{"http://localhost:8080", ""},
		{"http://user:pass@", testKey},
	} {
		if _, err := NewHTTPTarget(bad.url, bad.key); err == nil || strings.Contains(err.Error(), "pass") {
			t.Errorf("%q: error is %v", bad.url, err)
		}
	}
	target, err := NewHTTPTarget("https://example.com/badges/?x=1#y", testKey)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("https://example.com/badges/v1/events", target.eventsURL); diff != "" {
		t.Error(diff)
	}
}
