package obs

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// checkTimeout bounds one readiness check: probes have timeouts too.
const checkTimeout = time.Second

// Check is one readiness check.
type Check struct {
	Name string
	// Vital is whether the process cannot serve when the check fails.
	Vital bool
	// Run returns nil if the check passes. Its error is public.
	Run func(ctx context.Context) error
}

// impairment is an error with which a process can still serve.
type impairment struct{ text string }

// Error implements error.
func (i impairment) Error() string { return i.text }

// Impaired returns an error that is reported but leaves the process ready, even
// if the check is vital.
func Impaired(text string) error { return impairment{text} }

// IsImpaired reports whether an error is one of Impaired.
func IsImpaired(err error) bool {
	_, ok := errors.AsType[impairment](err)
	return ok
}

// Readiness is the answer of /readyz.
type Readiness struct {
	Status string            `json:"status" enum:"ready,not ready,draining" doc:"Whether the process can serve."`
	Checks map[string]string `json:"checks" doc:"The checks, each with ok or what is wrong. Some failed checks leave the process ready."`
}

// Health answers /livez and /readyz. It is safe for concurrent use.
type Health struct {
	checks   []Check
	draining atomic.Bool
}

// NewHealth returns a Health that is ready while all vital checks pass.
func NewHealth(checks ...Check) *Health { return &Health{checks: checks} }

// Drain makes the process not ready from now on.
func (h *Health) Drain() { h.draining.Store(true) }

// Live answers 200 as long as the process can answer at all.
func (h *Health) Live(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n")) // the prober may be gone
}

// Ready answers 200 while the process can serve, 503 while it cannot or is
// draining, and says why.
func (h *Health) Ready(w http.ResponseWriter, r *http.Request) {
	answer := Readiness{"ready", map[string]string{}}
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	// All at once, so that a slow check does not make another time out.
	errs := make([]error, len(h.checks))
	var running sync.WaitGroup
	for i, c := range h.checks {
		running.Go(func() { errs[i] = c.Run(ctx) })
	}
	running.Wait()
	for i, c := range h.checks {
		answer.Checks[c.Name] = "ok"
		if err := errs[i]; err != nil {
			answer.Checks[c.Name] = err.Error()
			var impaired impairment
			if c.Vital && !errors.As(err, &impaired) {
				answer.Status = "not ready"
			}
		}
	}
	if h.draining.Load() {
		answer.Status = "draining"
	}
	status := http.StatusOK
	if answer.Status != "ready" {
		status = http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // the prober may be gone
}
