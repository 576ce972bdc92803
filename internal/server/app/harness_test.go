package app

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/internal/server/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// Credentials for the tests.
const (
	publisherKey = "publisher-secret"
	jwtKeys      = "main=HS256:0123456789abcdef0123456789abcdef"
)

func migrated() pgtest.Template {
	return schematest.Migrated(4)
}

// settings returns the settings of a server with all roles on a database.
func settings(databaseURL string) config.Server {
	return config.Server{
		Database:      config.Database{DatabaseURL: databaseURL + "&pool_max_conns=2"},
		Tokens:        config.Tokens{JWTKeys: []string{jwtKeys}},
		Roles:         []config.Role{config.RoleAPI, config.RoleProjector, config.RoleGateway, config.RoleNotifier, config.RoleIngest},
		PublisherKeys: []string{"chat=" + publisherKey}, AdminKeys: []string{"ops=admin-secret"},
		ReconcileInterval: 30 * time.Second, DrainTimeout: 5 * time.Second,
	}
}

// server is a running App.
type server struct {
	*App
	url  string
	halt context.CancelFunc
	once sync.Once
	done chan error
	// impatient is whether a test looks at the answers of a server that cannot carry out requests.
	impatient bool
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // usually closed by the server
	return l
}

// open opens an App that is closed when the test ends.
func open(t *testing.T, cfg config.Server, options ...Option) *App {
	t.Helper()
	a, err := Open(t.Context(), cfg, listen(t), slog.New(slog.DiscardHandler), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

// run runs an App and returns once it is ready.
func run(t *testing.T, a *App) *server {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &server{App: a, url: "http://" + a.listener.Addr().String(), halt: cancel, done: make(chan error, 1)}
	ready := make(chan struct{})
	go func() { s.done <- a.Run(ctx, func() { close(ready) }) }()
	<-ready
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return s
}

// stop stops the server and returns the error of Run; only the first call
// does.
func (s *server) stop() (err error) {
	s.once.Do(func() {
		s.halt()
		err = <-s.done
	})
	return err
}

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   string
}

func do(r *http.Request) (answer, error) {
	r.Close = true // no connection outlives the request
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(b)}, err
}

// send sends a request and returns the answer. As clients do, it repeats a request whose answer
// asks for it: on a busy machine, Postgres may not answer in time. See server.impatient.
func (s *server) send(t *testing.T, r *http.Request) (a answer) {
	t.Helper()
	eventually(t, r.Method+" "+r.URL.Path+" is answered", func() (done bool) {
		again := r.Clone(t.Context())
		var err error
		if again.Body, err = r.GetBody(); err != nil {
			t.Fatal(err)
		}
		if a, err = do(again); err != nil {
			t.Fatal(err)
		}
		return s.impatient || a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == ""
	})
	return a
}

func newRequest(t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ask sends a request with a key or a token and returns the answer.
func (s *server) ask(t *testing.T, key, method, path, contentType, body string) answer {
	t.Helper()
	r := newRequest(t, method, s.url+path, body)
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", contentType)
	return s.send(t, r)
}

func (s *server) get(t *testing.T, path string) answer {
	t.Helper()
	return s.ask(t, publisherKey, http.MethodGet, path, "", "")
}

// publish publishes NDJSON and returns its position.
func (s *server) publish(t *testing.T, ndjson string) (position string) {
	t.Helper()
	eventually(t, "the events are stored", func() bool {
		a := s.tryPublish(t, ndjson)
		switch a.status {
		case http.StatusAccepted:
			position = a.header.Get("Badged-Position")
		case http.StatusServiceUnavailable:
			return false
		default:
			t.Fatalf("publish: %d %s", a.status, a.body)
		}
		return true
	})
	return position
}

// tryPublish publishes NDJSON and returns the answer.
func (s *server) tryPublish(t *testing.T, ndjson string) answer {
	t.Helper()
	return s.ask(t, publisherKey, http.MethodPost, "/v1/events", "application/x-ndjson", ndjson)
}

// awaitReady waits until the server is ready: Postgres may be too busy to answer a check.
func (s *server) awaitReady(t *testing.T) {
	t.Helper()
	eventually(t, "the server is ready", func() bool { return s.get(t, "/readyz").status == http.StatusOK })
}

// token returns a token of a user.
func (s *server) token(t *testing.T, userID string) string {
	t.Helper()
	return s.tokenOf(t, userID, time.Now())
}

// tokenOf returns a token of a user that was issued at a time.
func (s *server) tokenOf(t *testing.T, userID string, issued time.Time) string {
	t.Helper()
	token, err := s.Tokens().Sign(userID, time.Hour, issued)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// eventually polls a condition that nothing signals until it holds.
func eventually(t *testing.T, what string, isSo func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for !isSo() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("it never happened: %s", what)
		}
	}
}
