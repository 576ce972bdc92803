package projector

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/base/metric"
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
	m := &Metrics{
		folded:             metric.Counter(r, "badged_projector_events_folded_total", "Events folded into the badges."),
		duplicates:         metric.Counter(r, "badged_projector_events_deduplicated_total", "Repeated events. They changed nothing."),
		deadLetters:        metric.Counter(r, "badged_projector_dead_letters_total", "Events in the log that could not be decoded and became dead letters."),
		leaps:              metric.Counter(r, "badged_projector_seq_leaps_total", "Events whose seq or up_to_seq is at least 1,000 times the last seq of their conversation, counted once in each partition. Usually the publisher has changed the unit of its seqs."),
		fenced:             metric.Counter(r, "badged_projector_fenced_total", "Batches rolled back because another projector had moved the position."),
		failed:             metric.Counter(r, "badged_projector_fold_errors_total", "Batches that failed and are retried."),
		refused:            metric.Counter(r, "badged_projector_direct_appends_refused_total", "Transactions that should append and fold events, and were rolled back because other events of the partition must be folded first."),
		updatesLost:        metric.Counter(r, "badged_projector_updates_lost_total", "Updates that the bus did not accept. Reconciliation delivers their changes."),
		batchEvents:        metric.Histogram(r, "badged_projector_batch_events", "Events in one batch.", prometheus.ExponentialBuckets(1, 4, 8)),
		batchSeconds:       metric.Histogram(r, "badged_projector_batch_seconds", "Seconds to fold and commit one batch.", prometheus.ExponentialBuckets(0.0005, 2, 12)),
		delaySeconds:       metric.Histogram(r, "badged_projector_delay_seconds", "Seconds from the append of the oldest event of a batch to its commit.", prometheus.ExponentialBuckets(0.001, 2.5, 14)),
		owned:              metric.Gauge(r, "badged_projector_partitions_owned", "Partitions that this process folds."),
		owner:              metric.GaugeVec(r, "badged_projector_partition_owned", "1 for each partition that this process folds.", "partition"),
		deadLettersWaiting: metric.Gauge(r, "badged_projector_dead_letters_waiting", "Dead letters that were neither retried nor discarded, counted up to 10000."),
		dedupRuns:          metric.GaugeVec(r, "badged_projector_dedup_runs", "Sorted runs of event keys within the dedup window, by partition that this process folds. For each event, the filter of each run is checked.", "partition"),
		dedupBlockKeys:     metric.GaugeVec(r, "badged_projector_dedup_block_keys", "Event keys that are not merged into sorted runs yet, by partition that this process folds. An event for several users is stored once for each user.", "partition"),
		dedupRunKeys:       metric.GaugeVec(r, "badged_projector_dedup_run_keys", "Event keys in sorted runs, by partition that this process folds.", "partition"),
		dedupFilterBytes:   metric.GaugeVec(r, "badged_projector_dedup_filter_bytes", "Memory that filters of event keys use, by partition that this process folds. It is part of --cache-mib.", "partition"),
		dedupUnfiltered:    metric.GaugeVec(r, "badged_projector_dedup_unfiltered_runs", "Sorted runs of event keys whose filters are not all in memory, by partition that this process folds. Each event costs a database look-up in these runs: raise --cache-mib.", "partition"),
		lagEvents:          metric.GaugeVec(r, "badged_projector_lag_events", "Unfolded events in the log, by partition that this process folds.", "partition"),
		lagSeconds:         metric.GaugeVec(r, "badged_projector_lag_seconds", "Age in seconds of the oldest unfolded event, by partition that this process folds.", "partition"),
		dedupGeneration:    metric.GaugeVec(r, "badged_projector_dedup_generation", "Current generation of event keys, by partition that this process folds; grows by one every half --dedup-window.", "partition"),
		epochs:             metric.CounterVec(r, "badged_projector_epochs_begun_total", "Epochs that this process began, by reason: restart, because Postgres may have lost commits, or rewind, because Postgres has lost commits.", "reason"),
	}
	for _, reason := range []string{epochRestart, epochRewind} {
		m.epochs.WithLabelValues(reason)
	}
	return m
}

// setOwned sets the metrics of the owned partitions.
func (m *Metrics) setOwned(held []int) {
	m.owned.Set(float64(len(held)))
	m.owner.Reset()
	for _, id := range held {
		m.owner.WithLabelValues(strconv.Itoa(id)).Set(1)
	}
}
