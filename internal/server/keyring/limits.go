package keyring

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// usage has the counters of a key. When the file of keys is loaded again, the key gets the same
// usage. So the load does not reset what a publisher has used of its rate and its quota.
type usage struct {
	kind, name       string
	requests, events prometheus.Counter
	metrics          *metrics

	mu sync.Mutex
	// allowance is how many events the rate permitted at the time updatedAt. If allowance is at
	// least 1, a request of any size is admitted, and its number of events is subtracted. So a
	// large request makes allowance negative, and later requests are refused until allowance is
	// at least 1 again.
	allowance float64
	updatedAt time.Time
	// published is how many events this process has published with the key on the day `day`,
	// which is the number of days since 1970.
	published, day int64

	// quota is the key's current quota. It may differ from the quota of a [Key] that a request
	// in progress uses, if the file was loaded again during the request.
	quota int64
	// quotas shares the quota with other processes; nil if it is not shared.
	quotas Quotas
	// part is how many events of today's quota this process has reserved. taken is how many
	// events all processes had reserved at the last reservation of this process.
	part, taken int64
	// These fields describe the last call of quotas.Take, if the call failed or reserved nothing:
	// the time of its end, the number of events to publish, and its error, or nil. If the last
	// call reserved events, refusedAt is zero.
	refusedAt     time.Time
	refusedEvents int64
	refusedErr    error
}

func newUsage(k *Key, m *metrics) *usage {
	kind := string(k.Kind)
	return &usage{
		kind: kind, name: k.Name, metrics: m,
		requests: m.requests.WithLabelValues(kind, k.Name), events: m.events.WithLabelValues(kind, k.Name),
	}
}

// saved limits bursts: a key may publish at once what its rate permits in this time.
const saved = 10 * time.Second

// LimitError is returned if a key publishes more than it may. Its text may be shown to clients.
type LimitError struct {
	Message string
	// RetryAfter is the time until the request may be repeated; always more than 0.
	RetryAfter time.Duration
}

// Error implements error.
func (e *LimitError) Error() string { return e.Message }

// Ready fails, as Spend does, if the key may not publish even one event now. Call it before
// decoding a request, to save the decoding if the request is refused.
func (k *Key) Ready(ctx context.Context) error { return k.spend(ctx, 1, false) }

// Spend counts n events against the rate and the quota. The rate admits a request of any size
// if it permits at least one event now. If the rate permits no event, or the quota has fewer
// than n events left, Spend counts nothing and fails with a *LimitError. If n exceeds the quota
// of a whole day, it fails with a *DeniedError. Any other error is an error of Postgres, in
// which the quota is stored.
func (k *Key) Spend(ctx context.Context, n int) error { return k.spend(ctx, n, true) }

func (k *Key) spend(ctx context.Context, n int, take bool) error {
	if k.rate == 0 && k.quota == 0 {
		return nil
	}
	if k.quota > 0 && int64(n) > k.quota {
		return k.deny(OverQuota, "may publish %d events a day, and the request has %d", k.quota, n)
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
		limit := max(1, k.rate*saved.Seconds())
		if u.updatedAt.IsZero() {
			u.allowance, u.updatedAt = limit, now
		}
		u.allowance = min(limit, u.allowance+k.rate*max(0, now.Sub(u.updatedAt).Seconds()))
		u.updatedAt = now
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

// Return undoes Spend for n events that were not stored.
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
