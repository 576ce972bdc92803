package tail

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are the metrics of a tail.
type Metrics struct {
	events, badges, skipped, failed *prometheus.CounterVec
	lag                             *prometheus.GaugeVec
}

// NewMetrics returns metrics registered with r, or unregistered metrics if r is nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	auto := promauto.With(r)
	counter := func(name, help string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Namespace: "badged", Subsystem: "tail", Name: name, Help: help}, []string{"target"})
	}
	return &Metrics{
		events:  counter("events_total", "Events of the log that a broker has acknowledged, including repeated events."),
		badges:  counter("badges_total", "Badges and states of rooms that a broker has acknowledged, including repeated messages."),
		skipped: counter("skipped_total", "Rows of the log that were not published because they are not valid events."),
		failed:  counter("errors_total", "Attempts to publish that failed. badged repeats them."),
		lag: auto.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "badged", Subsystem: "tail", Name: "lag_seconds", Help: "Seconds since the append of the oldest folded event that is not published yet, also for partitions that other processes publish; 0 if all folded events are published.",
		}, []string{"target", "partition"}),
	}
}
