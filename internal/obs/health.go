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

// checkTimeout limits the time of the readiness checks. It is not longer than the usual timeout of
// a readiness probe.
const checkTimeout = time.Second

// Check is one readiness check.
type Check struct {
	Name string
	// Vital is true if the process cannot serve requests while the check fails.
	Vital bool
	// Run returns nil if the check passes. Anyone may see the text of its error.
	Run func(ctx context.Context) error
}

// impairment is an error that does not prevent the process from serving requests.
type impairment struct{ text string }

// Error implements error.
func (i impairment) Error() string { return i.text }

// Impaired returns an error for the Run of a Check. /readyz shows the text of the error, but the
// process remains ready, even if Vital of the Check is true.
func Impaired(text string) error { return impairment{text} }

// IsImpaired reports whether an error is the result of Impaired.
func IsImpaired(err error) bool {
	_, ok := errors.AsType[impairment](err)
	return ok
}

// Readiness is the answer of /readyz.
type Readiness struct {
	Status string            `json:"status" enum:"ready,not ready,draining" doc:"Whether the process can serve."`
	Checks map[string]string `json:"checks" doc:"The result of each check: ok, or what is wrong. The process may be ready although some checks have failed."`
}

// Health answers /livez and /readyz. It is safe for concurrent use.
type Health struct {
	checks   []Check
	draining atomic.Bool
}

// NewHealth returns a Health that reports ready as long as all vital checks pass.
func NewHealth(checks ...Check) *Health { return &Health{checks: checks} }

// Drain makes Ready report "draining" from now on. Call it before the process stops.
func (h *Health) Drain() { h.draining.Store(true) }

// Live answers 200, which shows that the process handles requests.
func (h *Health) Live(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n")) // an error means that the prober has disconnected
}

// Ready answers 200 if the process can serve requests, and 503 if it cannot or if it is draining.
// The body lists all checks.
func (h *Health) Ready(w http.ResponseWriter, r *http.Request) {
	answer := Readiness{"ready", map[string]string{}}
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	// Run all checks concurrently, so that a slow check cannot cause the timeout of another check.
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
