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

	"github.com/badged/badged/internal/base/metric"
)

// attempts limits the rate of wrong keys per address. After a burst of triesAtOnce wrong keys above
// this rate, all keys from the address are refused without a check. An address from which a valid
// key came within goodFor is exempt, since several clients may share the address. attempts is safe
// for concurrent use.
type attempts struct {
	kind string
	// perSecond is the permitted rate of wrong keys per address, in keys per second.
	perSecond float64
	log       *slog.Logger
	count     prometheus.Counter
	// report, if not nil, is called for each key that is wrong, or refused without a check.
	report func(kind string, from netip.Prefix)

	mu sync.Mutex
	// current has the addresses that have sent keys since the time `turned`. previous has the
	// addresses of the period before that time. When current is full, or its period has reached
	// goodFor, current replaces previous.
	current, previous map[netip.Prefix]*tries
	turned            time.Time
	// lines is the number of log lines that were permitted at the time linesAt. It grows by one per
	// second, up to linesAtOnce.
	lines   float64
	linesAt time.Time
}

// tries is the history of one address.
type tries struct {
	// wrong is the number of wrong keys of the address at the time updatedAt. It decreases by
	// perSecond every second.
	wrong     float64
	updatedAt time.Time
	// goodAt is when the last valid key arrived.
	goodAt time.Time
	// unlogged is the number of keys that were wrong or refused since the last log line about this
	// address. loggedAt is the time of that line.
	unlogged int
	loggedAt time.Time
}

const (
	// adminTries and publisherTries are the permitted rates of wrong keys per second and
	// address. The rate for publishers is higher, since many publishers may share an address.
	adminTries     = 1
	publisherTries = 10
	// triesAtOnce is the permitted burst of wrong keys per address.
	triesAtOnce = 20
	// goodFor is how long an address is exempt after it has sent a valid key.
	goodFor = 10 * time.Minute
	// maxTries is the maximum number of addresses in each of current and previous.
	maxTries = 1 << 12
	// tryLogInterval is the minimum time between two log lines about the same address. Log lines
	// about all addresses together are limited to one per second; linesAtOnce is the maximum burst.
	tryLogInterval = time.Minute
	linesAtOnce    = 10
)

func newAttempts(kind string, perSecond float64, log *slog.Logger, counts *prometheus.CounterVec) *attempts {
	return &attempts{
		kind: kind, perSecond: perSecond, log: log, count: counts.WithLabelValues(kind),
		current: map[netip.Prefix]*tries{}, lines: linesAtOnce,
	}
}

// newWrongKeys returns the metric that counts wrong keys. If r is not nil, r registers the metric.
func newWrongKeys(r prometheus.Registerer) *prometheus.CounterVec {
	return metric.CounterVec(r, "badged_http_wrong_keys_total", "Requests with a wrong key, by the kind of key that the route needs, including requests refused without checking the key.", "kind")
}

// check returns an error if isGood returns false. If the address has sent too many wrong keys,
// it returns an error without calling isGood. wrong is the text of the error for a wrong key.
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

// wait returns for how long keys from an address will still be refused without a check. It returns
// 0 if the next key is checked.
func (a *attempts) wait(from netip.Prefix, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.triesFrom(from, now)
	if now.Sub(t.goodAt) < goodFor || t.wrong < triesAtOnce {
		return 0
	}
	return time.Duration((t.wrong - triesAtOnce + 1) / a.perSecond * float64(time.Second))
}

func (a *attempts) succeeded(from netip.Prefix, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.triesFrom(from, now)
	t.goodAt, t.wrong = now, 0
}

// failed counts a key that was wrong, or was refused without a check. Only a key that was checked
// (lookedAt) counts against the limit of its address. At limited intervals, failed logs how many
// keys from the address were wrong or refused since the last log line.
func (a *attempts) failed(ctx context.Context, from netip.Prefix, now time.Time, lookedAt bool) {
	a.count.Inc()
	if a.report != nil {
		a.report(a.kind, from)
	}
	a.mu.Lock()
	t := a.triesFrom(from, now)
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

// triesFrom returns the history of an address as of now. The caller must have locked the mutex.
func (a *attempts) triesFrom(from netip.Prefix, now time.Time) *tries {
	if now.Sub(a.turned) >= goodFor || len(a.current) >= maxTries {
		a.previous, a.current, a.turned = a.current, map[netip.Prefix]*tries{}, now
	}
	t, ok := a.current[from]
	if !ok {
		if t, ok = a.previous[from]; !ok {
			t = &tries{updatedAt: now}
		}
		a.current[from] = t
	}
	t.wrong = max(0, t.wrong-now.Sub(t.updatedAt).Seconds()*a.perSecond)
	t.updatedAt = now
	return t
}
