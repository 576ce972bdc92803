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

// checkTimeout bounds the readiness checks. It is below the usual timeout of probes.
const checkTimeout = time.Second

// Check is one readiness check.
type Check struct {
	Name string
	// Vital is set if the process cannot serve while the check fails.
	Vital bool
	// Run returns nil if the check passes. Its error is public.
	Run func(ctx context.Context) error
}

// impairment is an error despite which a process can serve.
type impairment struct{ text string }

// Error implements error.
func (i impairment) Error() string { return i.text }

// Impaired returns an error for a check that may fail while the process stays ready. The error
// is reported, and does not count as a failure even if the check is vital.
func Impaired(text string) error { return impairment{text} }

// IsImpaired reports whether an error was made by Impaired.
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

// Drain makes the process not ready, permanently.
func (h *Health) Drain() { h.draining.Store(true) }

// Live answers 200. It shows that the process can answer.
func (h *Health) Live(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n")) // an error means that the prober has disconnected
}

// Ready answers 200 while the process can serve, and 503 while it cannot or is draining. The
// answer lists all checks.
func (h *Health) Ready(w http.ResponseWriter, r *http.Request) {
	answer := Readiness{"ready", map[string]string{}}
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	// Run all checks concurrently, so that a slow check does not make another one time out.
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
	_ = json.NewEncoder(w).Encode(answer) // see Live
}
