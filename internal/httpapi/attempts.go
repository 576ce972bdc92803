package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// attempts limits wrong keys by address: after a burst, keys above a rate are
// refused without checking. An address that recently sent a valid key is never
// slowed, since others may share it. It is safe for concurrent use.
type attempts struct {
	kind string
	// perSecond is how many wrong keys an address may try in the long run.
	perSecond float64
	log       *slog.Logger
	count     prometheus.Counter
	// report, if not nil, is called with each wrong key.
	report func(kind string, from netip.Prefix)

	mu sync.Mutex
	// current has the addresses seen since turned, previous those of the
	// period before.
	current, previous map[netip.Prefix]*tries
	turned            time.Time
	// lines is how many lines may be logged, as of linesAt.
	lines   float64
	linesAt time.Time
}

// tries is the history of one address.
type tries struct {
	// wrong is how many wrong keys count against it, as of at.
	wrong float64
	at    time.Time
	// goodAt is when the last valid key came.
	goodAt time.Time
	// unlogged is how many wrong keys have come since the last line, at loggedAt.
	unlogged int
	loggedAt time.Time
}

const (
	// adminTries and publisherTries are how many wrong keys per second an
	// address may try. One address may have more publishers than operators
	// behind it.
	adminTries     = 1
	publisherTries = 10
	// triesAtOnce is the burst.
	triesAtOnce = 20
	// goodFor is how long a valid key exempts its address.
	goodFor = 10 * time.Minute
	// maxTries bounds how many addresses are remembered in each of two maps.
	maxTries = 1 << 12
	// tryLogInterval is the least time between log lines about one address;
	// linesAtOnce bounds the lines per second, and at once, about all
	// addresses.
	tryLogInterval = time.Minute
	linesAtOnce    = 10
)

func newAttempts(kind string, perSecond float64, log *slog.Logger, counts *prometheus.CounterVec) *attempts {
	return &attempts{
		kind: kind, perSecond: perSecond, log: log, count: counts.WithLabelValues(kind),
		current: map[netip.Prefix]*tries{}, lines: linesAtOnce,
	}
}

// newWrongKeys returns the metric of wrong keys, registered with r unless that
// is nil.
func newWrongKeys(r prometheus.Registerer) *prometheus.CounterVec {
	return promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Namespace: "badged", Subsystem: "http", Name: "wrong_keys_total",
		Help: "Requests with a wrong key, by the kind of key expected, including those refused without checking.",
	}, []string{"kind"})
}

// check returns an error if isGood reports false, or without calling it if the
// address has sent too many wrong keys.
func (a *attempts) check(ctx context.Context, from netip.Prefix, isGood func() bool, wrong string) error {
	now := time.Now()
	if wait := a.wait(from, now); wait > 0 {
		a.failed(ctx, from, now, false)
		return &problem{
			Status: http.StatusTooManyRequests, Detail: "too many wrong keys came from your address; this key was not checked",
			retryAfter: strconv.Itoa(int(wait/time.Second) + 1),
		}
	}
	if isGood() {
		a.succeeded(from, now)
		return nil
	}
	a.failed(ctx, from, now, true)
	return unauthorized(wrong)
}

// wait returns how long to wait until a key from an address is checked.
func (a *attempts) wait(from netip.Prefix, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.of(from, now)
	if now.Sub(t.goodAt) < goodFor || t.wrong < triesAtOnce {
		return 0
	}
	return time.Duration((t.wrong - triesAtOnce + 1) / a.perSecond * float64(time.Second))
}

func (a *attempts) succeeded(from netip.Prefix, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.of(from, now)
	t.goodAt, t.wrong = now, 0
}

// failed logs a wrong key, or how many there were, and counts it against its
// address if it was checked.
func (a *attempts) failed(ctx context.Context, from netip.Prefix, now time.Time, lookedAt bool) {
	a.count.Inc()
	if a.report != nil {
		a.report(a.kind, from)
	}
	a.mu.Lock()
	t := a.of(from, now)
	if lookedAt {
		t.wrong++
	}
	t.unlogged++
	n := t.unlogged
	a.lines = min(linesAtOnce, a.lines+now.Sub(a.linesAt).Seconds())
	a.linesAt = now
	says := a.lines >= 1 && now.Sub(t.loggedAt) >= tryLogInterval
	if says {
		a.lines--
		t.unlogged, t.loggedAt = 0, now
	}
	a.mu.Unlock()
	if says {
		a.log.WarnContext(ctx, "wrong key", "of", a.kind, "address", from.String(), "times", n)
	}
}

// of returns the history of an address as of now. The caller holds the mutex.
func (a *attempts) of(from netip.Prefix, now time.Time) *tries {
	if now.Sub(a.turned) >= goodFor || len(a.current) >= maxTries {
		a.previous, a.current, a.turned = a.current, map[netip.Prefix]*tries{}, now
	}
	t, ok := a.current[from]
	if !ok {
		if t, ok = a.previous[from]; !ok {
			t = &tries{at: now}
		}
		a.current[from] = t
	}
	t.wrong = max(0, t.wrong-now.Sub(t.at).Seconds()*a.perSecond)
	t.at = now
	return t
}
