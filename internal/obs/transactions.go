package obs

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/pg/pgsession"
)

// openInterval is the time between two queries for open transactions.
const openInterval = 5 * time.Second

// OpenTransactions is a collector for the age of the oldest open transaction that has written.
// Events that were appended after the start of this transaction cannot be archived.
type OpenTransactions struct {
	pool    *pgxpool.Pool
	seconds *prometheus.Desc

	mu sync.Mutex
	// seen has the open transactions whose start time the database role may not read. It maps their
	// ids to the times when this process first saw them, which replace the start times.
	seen map[string]time.Time
	// oldest is the age of the oldest transaction of each kind: kindSession or kindPrepared.
	oldest map[string]time.Duration
}

const (
	kindSession  = "session"
	kindPrepared = "prepared"
)

// NewOpenTransactions registers a collector for the transactions on a pool's server. The collector
// reports no ages until Run has measured them.
func NewOpenTransactions(r prometheus.Registerer, pool *pgxpool.Pool) *OpenTransactions {
	o := &OpenTransactions{
		pool: pool,
		seconds: prometheus.NewDesc("badged_log_open_transaction_seconds",
			"Age in seconds of the oldest open transaction that has written, in any database of the Postgres server; 0 if there is none.", []string{"kind"}, nil),
	}
	r.MustRegister(o)
	return o
}

// Run measures the ages of the open transactions at intervals until ctx is done.
func (o *OpenTransactions) Run(ctx context.Context) error {
	return wait.Repeat(ctx, openInterval, o.measure)
}

// measure measures the ages of the open transactions. If it fails, the metrics do not change; the
// readiness check of Postgres reports such failures.
func (o *OpenTransactions) measure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, openInterval)
	defer cancel()
	open, err := pgsession.OpenTransactions(ctx, o.pool, 0)
	if err != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now, seen := time.Now(), map[string]time.Time{}
	o.oldest = map[string]time.Duration{kindSession: 0, kindPrepared: 0}
	for _, h := range open {
		if h.Since.IsZero() {
			first, ok := o.seen[h.ID]
			if !ok {
				first = now
			}
			seen[h.ID], h.Age = first, now.Sub(first)
		}
		kind := kindSession
		if h.Prepared != "" {
			kind = kindPrepared
		}
		o.oldest[kind] = max(o.oldest[kind], h.Age)
	}
	o.seen = seen
}

// Describe implements prometheus.Collector.
func (o *OpenTransactions) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- o.seconds }

// Collect implements prometheus.Collector.
func (o *OpenTransactions) Collect(metrics chan<- prometheus.Metric) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for kind, age := range o.oldest {
		metrics <- prometheus.MustNewConstMetric(o.seconds, prometheus.GaugeValue, age.Seconds(), kind)
	}
}
