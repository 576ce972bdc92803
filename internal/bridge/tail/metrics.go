package tail

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/base/metric"
)

// Metrics are the metrics of a tail.
type Metrics struct {
	events, badges, skipped, failed *prometheus.CounterVec
	lag                             *prometheus.GaugeVec
}

// NewMetrics returns metrics registered with r, or unregistered metrics if r is nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	return &Metrics{
		events:  metric.CounterVec(r, "badged_tail_events_total", "Events of the log that a broker has acknowledged, including repeated events.", "target"),
		badges:  metric.CounterVec(r, "badged_tail_badges_total", "Badges and states of rooms that a broker has acknowledged, including repeated messages.", "target"),
		skipped: metric.CounterVec(r, "badged_tail_skipped_total", "Rows of the log that were not published because they are not valid events.", "target"),
		failed:  metric.CounterVec(r, "badged_tail_errors_total", "Attempts to publish that failed. badged repeats them.", "target"),
		lag:     metric.GaugeVec(r, "badged_tail_lag_seconds", "Seconds since the append of the oldest folded event that is not published yet, also for partitions that other processes publish; 0 if all folded events are published.", "target", "partition"),
	}
}
