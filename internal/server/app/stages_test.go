package app

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/internal/obs"
	"github.com/badged/badged/internal/server/config"
)

// bare returns an App without any stage.
func bare() *App {
	return &App{
		log: slog.New(slog.DiscardHandler), health: obs.NewHealth(), mux: http.NewServeMux(),
		cfg: config.Server{DrainTimeout: time.Minute},
	}
}

// journal records what happens, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) write(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) read() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

// recorded returns a stage that records when it is asked to stop and when it
// has stopped, and then returns err.
func (j *journal) recorded(name string, err error) func(context.Context) error {
	return func(ctx context.Context) error {
		<-ctx.Done()
		j.write(name + " stops")
		j.write(name + " has stopped")
		return err
	}
}

func TestStagesStopInReverse(t *testing.T) {
	var j journal
	a := bare()
	for _, name := range []string{"log", "fold", "serve"} {
		a.Stage(name, j.recorded(name, nil))
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := a.Run(ctx, cancel); err != nil { // stopped as soon as it is ready
		t.Errorf("Run: %v", err)
	}
	want := []string{
		"serve stops", "serve has stopped",
		"fold stops", "fold has stopped",
		"log stops", "log has stopped",
	}
	if diff := cmp.Diff(want, j.read()); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestStageThatFailsStopsTheOthers(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		want string
	}{
		{"with an error", errors.New("disk full"), "fold: disk full"},
		{"without one", nil, "fold: ended unexpectedly"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var j journal
			a := bare()
			a.Stage("log", j.recorded("log", nil))
			a.Stage("fold", func(context.Context) error { return test.err })
			a.Stage("serve", j.recorded("serve", nil))
			err := a.Run(t.Context(), func() {})
			if err == nil || err.Error() != test.want || test.err != nil && !errors.Is(err, test.err) {
				t.Errorf("Run: %v, want %s", err, test.want)
			}
			want := []string{"serve stops", "serve has stopped", "log stops", "log has stopped"}
			if diff := cmp.Diff(want, j.read()); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}

func TestErrorsOfStoppingAreReturned(t *testing.T) {
	var j journal
	a := bare()
	a.Stage("log", j.recorded("log", errors.New("not flushed")))
	a.Stage("fold", func(context.Context) error { return errors.New("disk full") })
	a.Stage("serve", j.recorded("serve", errors.New("client cut")))
	err := a.Run(t.Context(), func() {})
	if want := "serve: client cut\nfold: disk full\nlog: not flushed"; err == nil || err.Error() != want {
		t.Errorf("Run: %v, want %s", err, want)
	}
}

func TestNotReadyWhileStopping(t *testing.T) {
	a := bare()
	statuses := make(chan int, 1)
	a.Stage("last to stop", func(ctx context.Context) error {
		<-ctx.Done()
		statuses <- readyStatus(context.WithoutCancel(ctx), a)
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	before := 0
	if err := a.Run(ctx, func() { before = readyStatus(ctx, a); cancel() }); err != nil {
		t.Errorf("Run: %v", err)
	}
	if during := <-statuses; before != http.StatusOK || during != http.StatusServiceUnavailable {
		t.Errorf("readiness is %d and, while stopping, %d; want 200 and 503", before, during)
	}
}

func readyStatus(ctx context.Context, a *App) int {
	w := httptest.NewRecorder()
	a.health.Ready(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/readyz", nil))
	return w.Code
}

// serving returns a bare App with a route that signals when it is entered and
// answers when released.
func serving(t *testing.T, drain time.Duration) (a *App, entered chan context.Context, letGo chan struct{}) {
	t.Helper()
	entered, letGo = make(chan context.Context, 1), make(chan struct{})
	a = bare()
	a.cfg.DrainTimeout, a.listener = drain, listen(t)
	a.Stage("http", a.serve)
	a.Handle("GET /slow", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered <- r.Context()
		select {
		case <-letGo:
		case <-r.Context().Done():
		}
		_, _ = w.Write([]byte("done")) // the client may have been cut
	}))
	return a, entered, letGo
}

func TestRequestsInProgressAreAnswered(t *testing.T) {
	a, entered, letGo := serving(t, time.Minute)
	// This stage stops before http does: once it has stopped, http is
	// stopping.
	stopping := make(chan struct{})
	a.Stage("after http", func(ctx context.Context) error { <-ctx.Done(); close(stopping); return nil })
	s := run(t, a)
	slow := newRequest(t, http.MethodGet, s.url+"/slow", "")
	var got answer
	var err error
	var asking sync.WaitGroup
	asking.Go(func() { got, err = do(slow) })
	ctx := <-entered
	s.halt()
	<-stopping
	if ctx.Err() != nil {
		t.Error("stopping cancels the requests under way")
	}
	close(letGo)
	asking.Wait()
	if err != nil || got.status != http.StatusOK || got.body != "done" {
		t.Errorf("the request under way gets %d %q, %v", got.status, got.body, err)
	}
	if err := s.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestRequestsThatDoNotEndAreCut(t *testing.T) {
	a, entered, _ := serving(t, time.Millisecond)
	s := run(t, a)
	slow := newRequest(t, http.MethodGet, s.url+"/slow", "")
	var err error
	var asking sync.WaitGroup
	asking.Go(func() { _, err = do(slow) })
	ctx := <-entered
	if err := s.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	<-ctx.Done() // the handler's context ends
	if asking.Wait(); err == nil {
		t.Error("a request that was cut is answered")
	}
}

func TestListenerThatBreaksIsAFailure(t *testing.T) {
	a, _, _ := serving(t, time.Minute)
	err := a.Run(t.Context(), func() { _ = a.listener.Close() })
	if err == nil || !strings.HasPrefix(err.Error(), "http: ") {
		t.Errorf("Run: %v", err)
	}
}
