package keyring

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// usage is what was done with a key. It stays when the file is loaded again, so
// that a reload refills nothing.
type usage struct {
	kind, name       string
	requests, events prometheus.Counter
	metrics          *metrics

	mu sync.Mutex
	// allowance is how many events may be published now, as of at. It is negative
	// after a large request, which is let through whole and paid off afterwards.
	allowance float64
	at        time.Time
	// published is how many events were published on day, in days since 1970.
	published, day int64

	// quota is that of the key now: a request may still have the key as it was.
	quota int64
	// quotas is what shares the quota with other processes; nil if nothing does.
	quotas Quotas
	// part is how much of today's quota this process may use, and taken how much all
	// processes have taken.
	part, taken int64
	// askedAt is when quotas last gave nothing for that many events, or failed.
	askedAt  time.Time
	asked    int64
	askedErr error
}

func newUsage(k *Key, m *metrics) *usage {
	kind := string(k.Kind)
	return &usage{
		kind: kind, name: k.Name, metrics: m,
		requests: m.requests.WithLabelValues(kind, k.Name), events: m.events.WithLabelValues(kind, k.Name),
	}
}

// saved is for how long an unused rate is saved up.
const saved = 10 * time.Second

// LimitError is returned if a key publishes more than it may. It is safe to show.
type LimitError struct {
	Message string
	// RetryAfter is when the request may be repeated; always more than 0.
	RetryAfter time.Duration
}

// Error implements error.
func (e *LimitError) Error() string { return e.Message }

// Ready fails with a *LimitError if the key may not publish a single event now. It
// spares a refused request the decoding.
func (k *Key) Ready(ctx context.Context) error { return k.spend(ctx, 1, false) }

// Spend takes n events from the rate and the quota. It fails with a *LimitError, or
// with a *DeniedError if there are more events than a day's quota, and then takes
// nothing. Any other error means that the quota is not known.
func (k *Key) Spend(ctx context.Context, n int) error { return k.spend(ctx, n, true) }

func (k *Key) spend(ctx context.Context, n int, take bool) error {
	if k.rate == 0 && k.quota == 0 {
		return nil
	}
	if k.quota > 0 && int64(n) > k.quota {
		return k.deny(OverQuota, "may publish %d events a day, and these are %d", k.quota, n)
	}
	u := k.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	if k.quota > 0 {
		if err := k.allot(ctx, int64(n)); err != nil {
			return err
		}
	}
	if k.rate > 0 {
		now := k.now()
		most := max(1, k.rate*saved.Seconds())
		if u.at.IsZero() {
			u.allowance, u.at = most, now
		}
		u.allowance = min(most, u.allowance+k.rate*max(0, now.Sub(u.at).Seconds()))
		u.at = now
		if u.allowance < 1 {
			u.refuse(OverRate)
			wait := math.Min((1-u.allowance)/k.rate, secondsOfDay)
			return &LimitError{
				fmt.Sprintf("the key %s may publish %g events a second", k.Name, k.rate),
				max(time.Millisecond, time.Duration(wait*float64(time.Second))),
			}
		}
	}
	if take {
		u.published += int64(n)
		u.allowance -= float64(n)
	}
	return nil
}

const secondsOfDay = 24 * 60 * 60

// Return gives back events that were spent and could not be stored.
func (k *Key) Return(n int) {
	if k.rate == 0 && k.quota == 0 {
		return
	}
	u := k.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	u.allowance += float64(n)
	u.published = max(0, u.published-int64(n))
}

// Published counts events that were stored.
func (k *Key) Published(n int) { k.usage.events.Add(float64(n)) }

// refuse counts a refused request.
func (u *usage) refuse(reason Reason) {
	u.metrics.refused.WithLabelValues(u.kind, u.name, string(reason)).Inc()
}
