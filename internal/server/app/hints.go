package app

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/cluster"
)

// hintsInterval is the time between two measurements of the hints.
const hintsInterval = 5 * time.Second

// hintMetrics is a Prometheus collector of hints: messages to rooms that a shard stores for
// another shard that is unavailable (hinted handoff).
type hintMetrics struct {
	cluster           *cluster.Cluster
	messages, seconds *prometheus.Desc
	last              atomic.Pointer[[]cluster.Backlog]
}

func newHintMetrics(c *cluster.Cluster) *hintMetrics {
	return &hintMetrics{
		cluster:  c,
		messages: prometheus.NewDesc("badged_shard_hints", "Hints for a shard: messages to rooms that other shards store while the shard is unavailable. Only hints on shards that this process reaches are counted.", []string{"shard"}, nil),
		seconds:  prometheus.NewDesc("badged_shard_hint_age_seconds", "Age in seconds of the oldest hint for a shard; 0 if there is none.", []string{"shard"}, nil),
	}
}

// run measures the hints at intervals until ctx is done.
func (w *hintMetrics) run(ctx context.Context) error {
	return wait.Repeat(ctx, hintsInterval, func(ctx context.Context) {
		// Ignore the error: if the hints of a shard cannot be read, their delivery fails too, and
		// logs the reason.
		found, _ := w.cluster.Backlogs(ctx)
		w.last.Store(&found)
	})
}

// Describe implements prometheus.Collector.
func (w *hintMetrics) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- w.messages
	descriptions <- w.seconds
}

// Collect implements prometheus.Collector.
func (w *hintMetrics) Collect(metrics chan<- prometheus.Metric) {
	last := w.last.Load()
	if last == nil {
		return
	}
	messages, oldest := map[string]int64{}, map[string]time.Duration{}
	for _, s := range w.cluster.Databases() {
		messages[s.Name] = 0
	}
	for _, b := range *last {
		messages[b.For] += b.Messages
		oldest[b.For] = max(oldest[b.For], b.Age)
	}
	for name, n := range messages {
		metrics <- prometheus.MustNewConstMetric(w.messages, prometheus.GaugeValue, float64(n), name)
		metrics <- prometheus.MustNewConstMetric(w.seconds, prometheus.GaugeValue, oldest[name].Seconds(), name)
	}
}
