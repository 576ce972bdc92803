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

// attempts limits wrong keys by address: after a burst above a rate, keys from the address are
// refused unchecked. An address that has recently sent a valid key is exempt, since several
// clients may share it. It is safe for concurrent use.
type attempts struct {
	kind string
	// perSecond is the long-term rate of wrong keys that an address may send.
	perSecond float64
	log       *slog.Logger
	count     prometheus.Counter
	// report, if not nil, is called with each wrong key.
	report func(kind string, from netip.Prefix)

	mu sync.Mutex
	// current has the addresses that were seen since the time turned. previous has the
	// addresses of the period before.
	current, previous map[netip.Prefix]*tries
	turned            time.Time
	// lines is how many lines may be logged, as of time linesAt.
	lines   float64
	linesAt time.Time
}

// tries is the history of one address.
type tries struct {
	// wrong is the number of wrong keys that count against the address, as of time at.
	wrong float64
	at    time.Time
	// goodAt is when the last valid key arrived.
	goodAt time.Time
	// unlogged is the number of wrong keys since the last log line, which was at loggedAt.
	unlogged int
	loggedAt time.Time
}

const (
	// adminTries and publisherTries are the rates of wrong keys per second and address. The
	// rate for publishers is higher, since more publishers than operators may share an
	// address.
	adminTries     = 1
	publisherTries = 10
	// triesAtOnce is the burst of wrong keys that is allowed.
	triesAtOnce = 20
	// goodFor is how long a valid key exempts its address.
	goodFor = 10 * time.Minute
	// maxTries is the most addresses in each of the two maps.
	maxTries = 1 << 12
	// tryLogInterval is the minimum time between log lines about one address. linesAtOnce is
	// the most lines about all addresses, per second and in a burst.
	tryLogInterval = time.Minute
	linesAtOnce    = 10
)

func newAttempts(kind string, perSecond float64, log *slog.Logger, counts *prometheus.CounterVec) *attempts {
	return &attempts{
		kind: kind, perSecond: perSecond, log: log, count: counts.WithLabelValues(kind),
		current: map[netip.Prefix]*tries{}, lines: linesAtOnce,
	}
}

// newWrongKeys returns the metric of wrong keys, registered with r unless r is nil.
func newWrongKeys(r prometheus.Registerer) *prometheus.CounterVec {
	return promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Namespace: "badged", Subsystem: "http", Name: "wrong_keys_total",
		Help: "Requests with a wrong key, by the kind of key expected, including those refused without checking.",
	}, []string{"kind"})
}

// check returns an error if isGood returns false. If the address has sent too many wrong keys,
// it returns an error without calling isGood.
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

// wait returns how long the keys from an address stay unchecked, 0 if they are checked.
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

// failed counts a wrong key. It also counts the key against its address if the key was checked
// (lookedAt). It logs the number of wrong keys, at limited intervals.
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
