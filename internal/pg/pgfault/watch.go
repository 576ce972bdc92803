package pgfault

import (
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/base/metric"
)

// lasting is how long a fault counts as present after Postgres last reported it. Regular writers
// retry after shorter pauses, so a fault that continues is reported again before this time ends.
const lasting = 15 * time.Second

// Watch records the faults that the connections of a process report. It is safe for
// concurrent use.
type Watch struct {
	counted *prometheus.CounterVec
	present *prometheus.Desc

	mu   sync.Mutex
	seen map[Fault]time.Time
}

// watched returns the faults that are counted. It omits Unreachable and Slow, since readiness and
// the metrics of the pools show these faults better.
func watched() []Fault {
	return []Fault{Full, Unwritable, ReadOnly, TooManyConnections, OutOfMemory, Restarting, WrongPassword, LoginRefused, NoDatabase}
}

// NewWatch returns a watch whose metrics are registered with r.
func NewWatch(r prometheus.Registerer) *Watch {
	w := &Watch{
		counted: metric.CounterVec(r, "badged_postgres_faults_total", "Postgres errors whose cause was not the statement, by fault.", "fault"),
		present: prometheus.NewDesc("badged_postgres_fault",
			"1 for 15 s after Postgres last reported the fault, else 0.", []string{"fault"}, nil),
		seen: map[Fault]time.Time{},
	}
	for _, f := range watched() {
		w.counted.WithLabelValues(string(f)) // exported from the start
	}
	r.MustRegister(w)
	return w
}

// Describe implements prometheus.Collector.
func (w *Watch) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- w.present }

// Collect implements prometheus.Collector.
func (w *Watch) Collect(metrics chan<- prometheus.Metric) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range watched() {
		value := 0.0
		if w.isPresent(f) {
			value = 1
		}
		metrics <- prometheus.MustNewConstMetric(w.present, prometheus.GaugeValue, value, string(f))
	}
}

// Configure makes the connections of cfg report faults to the watch. It also makes pgx close a
// connection after the fault ReadOnly: such a connection may lead to a former primary, or may
// have begun before default_transaction_read_only was reset.
func (w *Watch) Configure(cfg *pgx.ConnConfig) {
	before := cfg.OnPgError
	cfg.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		w.See(OfCode(err.Code))
		return OfCode(err.Code) != ReadOnly && before(conn, err)
	}
}

// See records a fault that Postgres has reported.
func (w *Watch) See(f Fault) {
	for _, known := range watched() {
		if f == known {
			w.counted.WithLabelValues(string(f)).Inc()
			w.mu.Lock()
			w.seen[f] = time.Now()
			w.mu.Unlock()
		}
	}
}

// Written records that a durable write has succeeded. So the faults that prevent writing no
// longer count as present.
func (w *Watch) Written() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range []Fault{Full, Unwritable, ReadOnly} {
		delete(w.seen, f)
	}
}

// Present returns the fault that currently prevents writing, or None.
func (w *Watch) Present() Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range []Fault{Full, Unwritable, ReadOnly} {
		if w.isPresent(f) {
			return f
		}
	}
	return None
}

// LastFull returns how long ago Postgres last reported a full disk. ok is false if Postgres has
// not reported a full disk since the last successful write. Use LastFull to explain why Postgres
// is down: Postgres stops if it cannot write its WAL, so a full disk may be the last fault that
// it reported.
func (w *Watch) LastFull() (ago time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, ok := w.seen[Full]
	return time.Since(at), ok
}

func (w *Watch) isPresent(f Fault) bool {
	at, ok := w.seen[f]
	return ok && time.Since(at) <= lasting
}
