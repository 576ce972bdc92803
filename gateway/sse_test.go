package gateway

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/badged/badged/gateway/protocol"
)

// listener reads server-sent events as the standard specifies.
type listener struct {
	t    *testing.T
	body io.ReadCloser
	text *bufio.Reader
	// retry is the last hint, in milliseconds; comments counts comments.
	retry, comments int
	lastID          string
}

// reply is an answer; its body is closed when the test ends.
type reply struct {
	status int
	header http.Header
	body   io.ReadCloser
}

// request calls a route. header alternates names and values.
func (w *world) request(method, path, token, body string, header ...string) reply {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := w.http.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = res.Body.Close() })
	return reply{res.StatusCode, res.Header, res.Body}
}

// listen opens a stream; lastID may be "".
func (w *world) listen(token, lastID string) *listener {
	w.t.Helper()
	header := []string{}
	if lastID != "" {
		header = append(header, "Last-Event-ID", lastID)
	}
	res := w.request(http.MethodGet, "/v1/sse", token, "", header...)
	if kind := res.header.Get("Content-Type"); res.status != http.StatusOK || kind != "text/event-stream" {
		w.t.Fatalf("the stream is answered with %d, %s", res.status, kind)
	}
	return &listener{t: w.t, body: res.body, text: bufio.NewReader(res.body)}
}

// hear returns the next frame; io.EOF once the stream has ended.
func (l *listener) hear() (f frame, err error) {
	l.t.Helper()
	for {
		line, err := l.text.ReadString('\n')
		if err != nil {
			return f, err
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "\n" && f.raw != "":
			return f, json.Unmarshal([]byte(f.raw), &f)
		case line == "\n":
		case field == "":
			l.comments++
		case field == "data":
			f.raw = value
		case field == "id":
			l.lastID = value
		case field == "retry":
			if l.retry, err = strconv.Atoi(value); err != nil {
				l.t.Errorf("%q is no time", line)
			}
		default:
			l.t.Errorf("odd line %q", line)
		}
	}
}

func (l *listener) mustHear() frame {
	l.t.Helper()
	f, err := l.hear()
	if err != nil {
		l.t.Fatalf("hear: %v", err)
	}
	return f
}

func TestEventsAreTheSameFrames(t *testing.T) {
	w := newWorld(t, nil)
	w.tables.commit("ann", "c1", 2)
	l := w.listen("ann", "")
	snapshot := l.mustHear()
	if snapshot.T != "snapshot" || snapshot.unread("c1") != 2 || snapshot.PingMS == 0 || snapshot.ExpiresInMS == 0 {
		t.Errorf("the first event is %s", snapshot.raw)
	}
	if l.lastID != "e1:1" || l.retry < 1000 {
		t.Errorf("its id is %q, the retry %d", l.lastID, l.retry)
	}
	w.send("ann", "c2", 5)
	if f := l.mustHear(); f.T != "changes" || f.Total != 7 || f.unread("c1") != -1 || l.lastID != "e1:2" {
		t.Errorf("then %s under id %q", f.raw, l.lastID)
	}
	if n := w.counter(w.metrics.streams); n != 1 {
		t.Errorf("%v streams are counted", n)
	}
	w.bus.setLose(true) // sessions reconcile whatever their link
	w.send("ann", "c1", 0)
	w.bus.setLose(false)
	w.send("ann", "c3", 1)
	if f := l.mustHear(); f.unread("c1") != 0 || f.unread("c3") != 1 || l.lastID != "e1:4" {
		t.Errorf("after a lost update: %s", f.raw)
	}
}

func TestEventsResume(t *testing.T) {
	for lastID, want := range map[string]string{
		"e1:9": "changes", "e1:7": "changes", "e0:9": "snapshot", "e1:99": "snapshot",
		"": "snapshot", "e1": "snapshot", "e1:x": "snapshot", ":": "snapshot", "57": "snapshot", "a:b:c": "snapshot",
	} {
		t.Run(lastID, func(t *testing.T) {
			w := newWorld(t, nil)
			for i := range 9 {
				w.tables.commit("ann", fmt.Sprintf("c%d", i), 1)
			}
			l := w.listen("ann", lastID)
			f := l.mustHear()
			if f.T != want || f.Total != 9 || f.PingMS == 0 || l.lastID != "e1:9" {
				t.Errorf("the answer is %s, want %s", f.raw, want)
			}
			if missed := map[string]int{"e1:9": 0, "e1:7": 2}; f.T == "changes" && len(f.Conversations) != missed[lastID] {
				t.Errorf("%d conversations have changed: %s", len(f.Conversations), f.raw)
			}
		})
	}
}

func TestSilentStreamHasComments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedWorld(t, func(c *Config) { c.PingInterval = 25 * time.Second })
		l := w.listen("ann", "")
		l.mustHear()
		time.AfterFunc(5*time.Minute+time.Second, func() { w.send("ann", "c1", 1) })
		if f := l.mustHear(); f.unread("c1") != 1 || l.comments != 12 {
			t.Errorf("%d comments came in five minutes before %s", l.comments, f.raw)
		}
	})
}

func TestStreamEndsWithItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedWorld(t, nil)
		l := w.listen("ann/1m", "")
		l.mustHear()
		began := time.Now()
		if f := l.mustHear(); f.T != "bye" || f.Code != float64(protocol.CloseTokenExpired) || time.Since(began) != time.Minute {
			t.Errorf("after %v: %s", time.Since(began), f.raw)
		}
		if _, err := l.hear(); !errors.Is(err, io.EOF) {
			t.Errorf("the stream goes on: %v", err)
		}
	})
}

func TestStreamsDrain(t *testing.T) {
	w := newWorld(t, nil)
	l := w.listen("ann", "")
	l.mustHear()
	go w.stop()
	f := l.mustHear()
	if f.T != "bye" || f.Code != float64(protocol.CloseDraining) || int64(l.retry) != f.ReconnectMS {
		t.Errorf("the goodbye is %s, the retry %d", f.raw, l.retry)
	}
	if _, err := l.hear(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream goes on: %v", err)
	}
	w.stop()
	if n := w.counter(w.metrics.connections); n != 0 {
		t.Errorf("%v connections are left", n)
	}
	if n := w.counter(w.metrics.streams); n != 0 {
		t.Errorf("%v streams are left", n)
	}
}

func TestStreamOfAClientThatIsGoneEnds(t *testing.T) {
	w := newWorld(t, nil)
	l := w.listen("ann", "")
	l.mustHear()
	_ = l.body.Close()
	eventually(func() bool { return w.counter(w.metrics.connections) == 0 && w.gateway.hub.countUsers() == 0 })
}

func TestStreamThatIsNotReadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedWorld(t, nil)
		w.listen("ann", "").mustHear()
		for i := range 2000 { // more than what is buffered on the way
			w.send("ann", fmt.Sprintf("c%d", i), 1)
			synctest.Wait()
		}
		time.Sleep(w.gateway.cfg.WriteTimeout + time.Second)
		if n := w.counter(w.metrics.closes.WithLabelValues("4103")); n != 1 {
			t.Errorf("%v clients were too slow", n)
		}
	})
}

func TestDrainingCutsAStreamThatIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedWorld(t, func(c *Config) { c.WriteTimeout = time.Hour })
		w.listen("ann", "").mustHear()
		for i := range 2000 {
			w.send("ann", fmt.Sprintf("c%d", i), 1)
			synctest.Wait()
		}
		began := time.Now()
		w.stop()
		// net/http notices only at intervals that connections have ended.
		if took := time.Since(began); took > w.gateway.cfg.DrainTimeout+time.Second {
			t.Errorf("draining took %v", took)
		}
	})
}

func TestStreamsAreRefusedWithAStatus(t *testing.T) {
	w := newWorld(t, nil)
	for name, tc := range map[string]struct {
		method, token string
		status        int
		detail        string
	}{
		"no token":       {http.MethodGet, "", 401, "no token given"},
		"a bad token":    {http.MethodGet, "bad", 401, "bad token: its signature is wrong"},
		"an old token":   {http.MethodGet, "old", 401, "the token has expired"},
		"no answer now":  {http.MethodGet, "away", 503, "the token cannot be verified right now; try again"},
		"another method": {http.MethodPost, "ann", 405, "POST is not a method of /v1/sse; use GET"},
		"a valid token":  {http.MethodGet, "ann", 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			res := w.request(tc.method, "/v1/sse", tc.token, "")
			checkProblem(t, res, tc.status, tc.detail)
			if tc.status == 503 && res.header.Get("Retry-After") == "" {
				t.Error("without Retry-After")
			}
		})
	}
	if n := w.counter(w.metrics.closes.WithLabelValues("4001")); n != 2 {
		t.Errorf("%v bad tokens were counted", n)
	}
	w.stop()
}

// checkProblem checks an answer's status and, unless it is a success, its
// problem.
func checkProblem(t *testing.T, res reply, status int, detail string) {
	t.Helper()
	if res.status != status {
		t.Errorf("status %d, want %d", res.status, status)
	}
	if res.status == http.StatusOK {
		return
	}
	var p Refusal
	if err := json.NewDecoder(res.body).Decode(&p); err != nil {
		t.Errorf("the body is no problem: %v", err)
	}
	if kind := res.header.Get("Content-Type"); kind != "application/problem+json" || p.Status != status || p.Detail != detail || p.Title == "" {
		t.Errorf("%s %+v, want detail %q", kind, p, detail)
	}
}

func TestStreamIsRefusedWhileDraining(t *testing.T) {
	w := newWorld(t, nil)
	w.gateway.mu.Lock()
	w.gateway.draining = true
	w.gateway.mu.Unlock()
	res := w.request(http.MethodGet, "/v1/sse", "ann", "")
	checkProblem(t, res, http.StatusServiceUnavailable, "the server is going away")
	if res.header.Get("Retry-After") == "" {
		t.Error("without Retry-After")
	}
}

func TestCommandsByHTTP(t *testing.T) {
	w := newWorld(t, nil)
	w.tables.commit("ann", "c1", 7)
	for _, tc := range []struct {
		name, token, body string
		status            int
		detail, done      string
	}{
		{"read", "ann", `{"t":"read","id":1,"conversation_id":"c1","up_to_seq":9}`, 200, "", "ann reads c1 up to 9"},
		{"read all", "ann", `{"t":"read_all","id":"0B7D5A4E-1f3c-4c7e-9a52-6f6d1f3f7c10"}`, 200, "", `ann reads all of "" as 0b7d5a4e-1f3c-4c7e-9a52-6f6d1f3f7c10`},
		{"misspelt", "ann", `{"t":"read_all","id":1,"categorie":"chat"}`, 400, `read_all has no field "categorie": it may have t, id, category`, ""},
		{"mark", "ann", `{"t":"mark_unread","id":"x","conversation_id":"c1"}`, 200, "", "ann marks c1"},
		{"seen", "ann", `{"t":"seen","id":1,"conversation_id":"c1","up_to_seq":9}`, 200, "", "ann sees c1 up to 9"},
		{"seen all", "ann", `{"t":"seen_all","id":1,"category":"chat"}`, 200, "", `ann sees all of "chat"`},
		{"level", "ann", `{"t":"level","id":1,"category":"chat","level":"none"}`, 200, "", `ann sets "chat" to none`},
		{"level of nothing", "ann", `{"t":"level","id":1,"level":"none"}`, 400, "level needs the field category", ""},
		{"nowhere", "ann", `{"t":"mark_unread","id":2,"conversation_id":"c2"}`, 404, "no message of this conversation was delivered to you", ""},
		{"nothing", "ann", `{"t":"read","id":3,"conversation_id":"c1"}`, 400, "read needs the field up_to_seq", ""},
		{"bad category", "ann", `{"t":"read_all","id":4,"category":"bad"}`, 400, "category must be good", ""},
		{"hello", "ann", `{"t":"hello"}`, 400, "t must be one of read, read_all, mark_unread, seen, seen_all, level", ""},
		{"not JSON", "ann", `read`, 400, "frame is not a JSON object", ""},
		{"too long", "ann", `{"t":"read_all","x":"` + strings.Repeat("x", protocol.MaxFrameBytes) + `"}`, 413, "a frame may have 4096 bytes", ""},
		{"no token", "", `{"t":"read_all"}`, 401, "give a user's token in the header Authorization: Bearer …", ""},
		{"bad token", "bad", `{"t":"read_all"}`, 401, "bad token: its signature is wrong", ""},
		{"old token", "old", `{"t":"read_all"}`, 401, "the token has expired", ""},
		{"not verifiable now", "away", `{"t":"read_all"}`, 503, "the token cannot be verified right now; try again", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w.log.done = nil
			res := w.request(http.MethodPost, "/v1/commands", tc.token, tc.body)
			checkProblem(t, res, tc.status, tc.detail)
			if got := strings.Join(w.log.done, ", "); got != tc.done {
				t.Errorf("did %q, want %q", got, tc.done)
			}
			if tc.status != http.StatusOK {
				return
			}
			f, err := protocol.DecodeFrame([]byte(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(res.body)
			if want := fmt.Sprintf(`{"t":"ok","id":%s}`, f.ID); err != nil || strings.TrimSpace(string(b)) != want {
				t.Errorf("the answer is %s (%v), want %s", b, err, want)
			}
		})
	}
	checkProblem(t, w.request(http.MethodGet, "/v1/commands", "ann", ""), 405, "GET is not a method of /v1/commands; use POST")
	w.log.fail = errors.New("the database is away")
	res := w.request(http.MethodPost, "/v1/commands", "ann", `{"t":"read_all"}`)
	checkProblem(t, res, 503, "not saved; try again")
	if seconds, err := strconv.Atoi(res.header.Get("Retry-After")); err != nil || seconds < 1 {
		t.Errorf("Retry-After is %q", res.header.Get("Retry-After"))
	}
}
