package projector

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are the metrics of a projector.
type Metrics struct {
	folded, duplicates, deadLetters, leaps  prometheus.Counter
	fenced, failed, refused, updatesLost    prometheus.Counter
	batchEvents, batchSeconds, delaySeconds prometheus.Histogram
	owned                                   prometheus.Gauge
	deadLettersWaiting                      prometheus.Gauge
	owner, lagEvents, lagSeconds            *prometheus.GaugeVec
	dedupGeneration, dedupRuns              *prometheus.GaugeVec
	dedupBlockKeys, dedupRunKeys            *prometheus.GaugeVec
	dedupFilterBytes, dedupUnfiltered       *prometheus.GaugeVec
	epochs                                  *prometheus.CounterVec
}

// NewMetrics returns metrics registered with r, or unregistered metrics if r is nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	auto := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Namespace: "badged", Subsystem: "projector", Name: name, Help: help})
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return auto.NewHistogram(prometheus.HistogramOpts{
			Namespace: "badged", Subsystem: "projector", Name: name, Help: help, Buckets: buckets,
		})
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return auto.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "badged", Subsystem: "projector", Name: name, Help: help,
		}, []string{"partition"})
	}
	m := &Metrics{
		folded:       counter("events_folded_total", "Events folded into the badges."),
		duplicates:   counter("events_deduplicated_total", "Repeated events. They changed nothing."),
		deadLetters:  counter("dead_letters_total", "Events in the log that could not be decoded and became dead letters."),
		leaps:        counter("seq_leaps_total", "Events whose seq or up_to_seq is at least 1,000 times the last seq of their conversation, counted once in each partition. Usually the publisher has changed the unit of its seqs."),
		fenced:       counter("fenced_total", "Batches rolled back because another projector had moved the position."),
		failed:       counter("fold_errors_total", "Batches that failed and are retried."),
		refused:      counter("direct_appends_refused_total", "Transactions that append and fold events and were rolled back, because other events of the partition must be folded first."),
		updatesLost:  counter("updates_lost_total", "Updates that the bus did not accept. Reconciliation delivers their changes."),
		batchEvents:  histogram("batch_events", "Events in one batch.", prometheus.ExponentialBuckets(1, 4, 8)),
		batchSeconds: histogram("batch_seconds", "Seconds to fold and commit one batch.", prometheus.ExponentialBuckets(0.0005, 2, 12)),
		delaySeconds: histogram("delay_seconds", "Seconds from the append of the oldest event of a batch to its commit.", prometheus.ExponentialBuckets(0.001, 2.5, 14)),
		owned: auto.NewGauge(prometheus.GaugeOpts{
			Namespace: "badged", Subsystem: "projector", Name: "partitions_owned", Help: "Partitions that this process folds.",
		}),
		owner: gauge("partition_owned", "1 for each partition that this process folds."),
		deadLettersWaiting: auto.NewGauge(prometheus.GaugeOpts{
			Namespace: "badged", Subsystem: "projector", Name: "dead_letters_waiting", Help: "Dead letters that were neither retried nor discarded, counted up to 10000.",
		}),
		dedupRuns:        gauge("dedup_runs", "Sorted runs of event keys within the dedup window, by partition that this process folds. For each event, the filter of each run is checked."),
		dedupBlockKeys:   gauge("dedup_block_keys", "Event keys that are not merged into sorted runs yet, by partition that this process folds. Each event has one key per user."),
		dedupRunKeys:     gauge("dedup_run_keys", "Event keys in sorted runs, by partition that this process folds. Each event has one key per user."),
		dedupFilterBytes: gauge("dedup_filter_bytes", "Memory that filters of event keys use, by partition that this process folds. It is part of --cache-mib."),
		dedupUnfiltered:  gauge("dedup_unfiltered_runs", "Sorted runs of event keys whose filters are not all in memory, by partition that this process folds. Each event costs a database look-up in these runs: raise --cache-mib."),
		lagEvents:        gauge("lag_events", "Unfolded events in the log, by partition that this process folds."),
		lagSeconds:       gauge("lag_seconds", "Age in seconds of the oldest unfolded event, by partition that this process folds."),
		dedupGeneration:  gauge("dedup_generation", "Current generation of event keys, by partition that this process folds; grows by one every half --dedup-window."),
		epochs: auto.NewCounterVec(prometheus.CounterOpts{
			Namespace: "badged", Subsystem: "projector", Name: "epochs_begun_total",
			Help: "Epochs that this process began, by reason: restart, because Postgres may have lost commits, or rewind, because Postgres has lost commits.",
		}, []string{"reason"}),
	}
	for _, reason := range []string{epochRestart, epochRewind} {
		m.epochs.WithLabelValues(reason)
	}
	return m
}

// own sets the metrics of the owned partitions.
func (m *Metrics) own(held []int) {
	m.owned.Set(float64(len(held)))
	m.owner.Reset()
	for _, id := range held {
		m.owner.WithLabelValues(strconv.Itoa(id)).Set(1)
	}
}
