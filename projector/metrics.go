package projector

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics is what a projector counts.
type Metrics struct {
	folded, duplicates, deadLetters         prometheus.Counter
	fenced, failed, updatesLost             prometheus.Counter
	batchEvents, batchSeconds, delaySeconds prometheus.Histogram
	owned                                   prometheus.Gauge
	deadLettersWaiting                      prometheus.Gauge
	owner, lagEvents, lagSeconds            *prometheus.GaugeVec
	horizonSeconds                          prometheus.Gauge
	dedupGeneration                         *prometheus.GaugeVec
	dedupTablesLocked                       prometheus.Gauge

	verifyUsers, verifyMismatches, verifyMended, verifyPutOff, verifyFailed prometheus.Counter
}

// NewMetrics returns metrics that are registered with r, or with nothing where
// it is nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "badged", Subsystem: "projector", Name: name, Help: help})
	}
	verify := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "badged", Subsystem: "verify", Name: name, Help: help})
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "badged", Subsystem: "projector", Name: name, Help: help, Buckets: buckets,
		})
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "badged", Subsystem: "projector", Name: name, Help: help,
		}, []string{"partition"})
	}
	m := &Metrics{
		folded:       counter("events_folded_total", "Events folded into the badges."),
		duplicates:   counter("events_deduplicated_total", "Events that came again and changed nothing."),
		deadLetters:  counter("dead_letters_total", "Events in the log that could not be understood and were put aside."),
		fenced:       counter("fenced_total", "Batches rolled back because another projector was faster."),
		failed:       counter("fold_errors_total", "Batches that could not be folded, and are tried again."),
		updatesLost:  counter("updates_lost_total", "Updates that could not be handed to the bus; reconciliation delivers them."),
		batchEvents:  histogram("batch_events", "Events in one batch.", prometheus.ExponentialBuckets(1, 4, 8)),
		batchSeconds: histogram("batch_seconds", "Seconds to fold and commit one batch.", prometheus.ExponentialBuckets(0.0005, 2, 12)),
		delaySeconds: histogram("delay_seconds", "Seconds from the append of the oldest event of a batch to its commit.", prometheus.ExponentialBuckets(0.001, 2.5, 14)),
		owned: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "badged", Subsystem: "projector", Name: "partitions_owned", Help: "Partitions that this process folds.",
		}),
		owner: gauge("partition_owned", "1 for each partition that this process folds."),
		horizonSeconds: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "badged", Subsystem: "log", Name: "horizon_seconds",
			Help: "Age in seconds of the oldest transaction in the Postgres cluster that has written: newer events cannot be folded before it ends. Measured every 5 s.",
		}),
		deadLettersWaiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "badged", Subsystem: "projector", Name: "dead_letters_waiting", Help: "Dead letters that were neither retried nor discarded.",
		}),
		lagEvents:       gauge("lag_events", "Events in the log that are not folded, by partition that this process folds."),
		lagSeconds:      gauge("lag_seconds", "Age in seconds of the oldest event that is not folded, by partition that this process folds."),
		dedupGeneration: gauge("dedup_generation", "Generation that takes the keys of events, by partition that this process folds; it grows by one every half --dedup-window."),
		dedupTablesLocked: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "badged", Subsystem: "projector", Name: "dedup_tables_locked", Help: "Tables of forgotten keys that could not be dropped yet, since another session has a lock on them.",
		}),

		verifyUsers:      verify("users_total", "Users of the background sample whose badges were folded again and compared."),
		verifyMismatches: verify("mismatches_total", "Users of the background sample whose badges were not what the log says."),
		verifyMended:     verify("mended_total", "Users of the background sample whose badges were made what the log says."),
		verifyPutOff:     verify("put_off_total", "Runs of the background sample put off because the log of the partition is long: they are fewer then."),
		verifyFailed:     verify("errors_total", "Runs of the background sample that failed."),
	}
	if r != nil {
		r.MustRegister(m.folded, m.duplicates, m.deadLetters, m.fenced, m.failed, m.updatesLost,
			m.batchEvents, m.batchSeconds, m.delaySeconds, m.owned, m.owner, m.horizonSeconds, m.deadLettersWaiting, m.lagEvents, m.lagSeconds,
			m.verifyUsers, m.verifyMismatches, m.verifyMended, m.verifyPutOff, m.verifyFailed, m.dedupGeneration, m.dedupTablesLocked)
	}
	return m
}

// own keeps the metrics of what is owned.
func (m *Metrics) own(held map[int]holding) {
	m.owned.Set(float64(len(held)))
	m.owner.Reset()
	for id := range held {
		m.owner.WithLabelValues(strconv.Itoa(id)).Set(1)
	}
}
