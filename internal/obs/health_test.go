package obs_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/internal/obs"
)

func check(name string, vital bool, err error) obs.Check {
	return obs.Check{Name: name, Vital: vital, Run: func(context.Context) error { return err }}
}

// readiness is an answer of /readyz.
type readiness struct {
	Code   int `json:"-"`
	Status string
	Checks map[string]string
}

func ready(t *testing.T, h *obs.Health) readiness {
	t.Helper()
	w := httptest.NewRecorder()
	h.Ready(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type = %q", got)
	}
	if got := w.Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control = %q: readiness must not be cached", got)
	}
	r := readiness{Code: w.Code}
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	return r
}

func TestReady(t *testing.T) {
	away := errors.New("cannot be reached")
	for _, test := range []struct {
		name   string
		checks []obs.Check
		drain  bool
		want   readiness
	}{
		{"nothing to check", nil, false, readiness{200, "ready", map[string]string{}}},
		{
			"all is well",
			[]obs.Check{check("postgres", true, nil), check("redis", false, nil)},
			false,
			readiness{200, "ready", map[string]string{"postgres": "ok", "redis": "ok"}},
		},
		{
			"a vital check fails",
			[]obs.Check{check("postgres", true, away), check("redis", false, nil)},
			false,
			readiness{503, "not ready", map[string]string{"postgres": "cannot be reached", "redis": "ok"}},
		},
		{
			"a vital check is impaired",
			[]obs.Check{check("postgres", true, obs.Impaired("is read-only"))},
			false,
			readiness{200, "ready", map[string]string{"postgres": "is read-only"}},
		},
		{
			"another check fails",
			[]obs.Check{check("postgres", true, nil), check("redis", false, away)},
			false,
			readiness{200, "ready", map[string]string{"postgres": "ok", "redis": "cannot be reached"}},
		},
		{
			"draining",
			[]obs.Check{check("postgres", true, nil)},
			true,
			readiness{503, "draining", map[string]string{"postgres": "ok"}},
		},
		{
			"draining while something fails",
			[]obs.Check{check("postgres", true, away)},
			true,
			readiness{503, "draining", map[string]string{"postgres": "cannot be reached"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := obs.NewHealth(test.checks...)
			if test.drain {
				h.Drain()
			}
			if diff := cmp.Diff(test.want, ready(t, h)); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadyRecovers(t *testing.T) {
	var err error
	h := obs.NewHealth(obs.Check{Name: "postgres", Vital: true, Run: func(context.Context) error { return err }})
	for _, err = range []error{nil, errors.New("away"), nil} {
		want := http.StatusOK
		if err != nil {
			want = http.StatusServiceUnavailable
		}
		if r := ready(t, h); r.Code != want {
			t.Errorf("while the check returns %v: %+v", err, r)
		}
	}
	h.Drain() // permanently
	for range 2 {
		if r := ready(t, h); r.Code != http.StatusServiceUnavailable {
			t.Errorf("while draining: %+v", r)
		}
	}
}

func TestReadyDoesNotWaitForACheckThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := obs.NewHealth(obs.Check{Name: "postgres", Vital: true, Run: func(ctx context.Context) error {
			<-ctx.Done()
			return errors.New("cannot be reached")
		}})
		start := time.Now() // on the clock of the bubble
		if r := ready(t, h); r.Code != http.StatusServiceUnavailable {
			t.Errorf("answer is %+v", r)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("answered after %s", took)
		}
	})
}

// A frozen Redis must not make Postgres appear to be down.
func TestReadyChecksDoNotDelayOneAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := obs.NewHealth(
			obs.Check{Name: "redis", Run: func(ctx context.Context) error {
				<-ctx.Done()
				return errors.New("away")
			}},
			obs.Check{Name: "postgres", Vital: true, Run: func(ctx context.Context) error { return ctx.Err() }},
		)
		want := readiness{200, "ready", map[string]string{"redis": "away", "postgres": "ok"}}
		if diff := cmp.Diff(want, ready(t, h)); diff != "" {
			t.Errorf("answer (-want +got):\n%s", diff)
		}
	})
}

func TestLive(t *testing.T) {
	h := obs.NewHealth(check("postgres", true, errors.New("away")))
	h.Drain()
	w := httptest.NewRecorder()
	h.Live(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/livez", nil))
	if w.Code != http.StatusOK || w.Body.String() != "ok\n" {
		t.Errorf("answer is %d %q", w.Code, w.Body)
	}
}
