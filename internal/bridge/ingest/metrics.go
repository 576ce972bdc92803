package ingest

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/base/metric"
)

// Metrics are the metrics of an ingester.
type Metrics struct {
	messages, letters, lost, failed *prometheus.CounterVec
	owned                           *prometheus.GaugeVec
	backlogs                        *backlogs
}

// NewMetrics returns metrics registered with r, or unregistered metrics if r is nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		messages: metric.CounterVec(r, "badged_ingest_messages_total", "Messages of brokers that were stored as events or as dead letters.", "broker", "stream"),
		letters:  metric.CounterVec(r, "badged_ingest_dead_letters_total", "Messages of brokers that became dead letters.", "broker", "stream"),
		lost:     metric.CounterVec(r, "badged_ingest_lost_total", "Messages that a broker deleted before badged read them; an upper bound.", "broker", "stream"),
		failed:   metric.CounterVec(r, "badged_ingest_errors_total", "Attempts to read or store messages that failed. badged repeats them.", "broker"),
		owned:    metric.GaugeVec(r, "badged_ingest_partitions_owned", "Partitions of brokers that this process reads.", "broker"),
		backlogs: &backlogs{byKey: map[backlogKey]*backlog{}},
	}
	if r != nil {
		r.MustRegister(m.backlogs)
	}
	return m
}

type backlogKey struct {
	broker    string
	partition Partition
}

// backlog describes the messages of one broker partition that are not stored in the log yet.
type backlog struct {
	messages int64
	// since is the time of the oldest message that this process has read and not stored yet. It is
	// zero if there is none.
	since time.Time
}

// backlogs has the backlogs of the partitions that this process reads. It is a Prometheus
// collector, so that the ages in the metrics grow even while no messages are read.
type backlogs struct {
	mu    sync.Mutex
	byKey map[backlogKey]*backlog
}

func (b *backlogs) set(key backlogKey, messages int64, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.byKey[key] = &backlog{messages, since}
}

func (b *backlogs) remove(key backlogKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.byKey, key)
}

var (
	backlogDesc = prometheus.NewDesc("badged_ingest_backlog", "Messages of a broker that are not stored yet, by partition that this process reads.",
		[]string{"broker", "stream", "partition"}, nil)
	lagDesc = prometheus.NewDesc("badged_ingest_lag_seconds", "Age in seconds of the oldest known message that is not stored yet, by partition that this process reads; 0 if all messages are stored.",
		[]string{"broker", "stream", "partition"}, nil)
)

// Describe implements prometheus.Collector.
func (b *backlogs) Describe(ch chan<- *prometheus.Desc) { ch <- backlogDesc; ch <- lagDesc }

// Collect implements prometheus.Collector.
func (b *backlogs) Collect(ch chan<- prometheus.Metric) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, backlog := range b.byKey {
		labels := []string{key.broker, key.partition.Stream, strconv.Itoa(key.partition.Number)}
		lag := 0.0
		if !backlog.since.IsZero() {
			lag = max(0, time.Since(backlog.since).Seconds())
		}
		ch <- prometheus.MustNewConstMetric(backlogDesc, prometheus.GaugeValue, float64(backlog.messages), labels...)
		ch <- prometheus.MustNewConstMetric(lagDesc, prometheus.GaugeValue, lag, labels...)
	}
}
