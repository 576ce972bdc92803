package outbound

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/metric"
)

// Metrics are the metrics of a notifier.
type Metrics struct {
	read, failed, marked  prometheus.Counter
	settled               *prometheus.CounterVec
	owned                 prometheus.Gauge
	due, oldest, lag      *prometheus.GaugeVec
	behind, behindSeconds *prometheus.GaugeVec
}

// NewMetrics returns metrics registered with r, or unregistered metrics if r is nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		read:    metric.Counter(r, "badged_notifier_events_read_total", "Events that the notifier read from the log to find devices and webhooks with changes. An event counts once for devices, and once for each webhook."),
		failed:  metric.Counter(r, "badged_notifier_errors_total", "Statements of the notifier that failed. The notifier repeats them."),
		marked:  metric.Counter(r, "badged_notifier_marked_total", "Rows of devices that were marked as due for a push, including rows that were already due."),
		settled: metric.CounterVec(r, "badged_notifier_reported_total", "Due rows for devices and webhooks that were processed, by outcome.", "outcome"),
		owned:   metric.Gauge(r, "badged_notifier_partitions_owned", "Partitions for which this process notifies devices and webhooks."),
		due:     metric.GaugeVec(r, "badged_notifier_due", "Rows that are due now, by target and partition that this process owns; counted up to 100000 in a partition.", "target", "partition"),
		oldest:  metric.GaugeVec(r, "badged_notifier_oldest_due_seconds", "Seconds since the oldest due row became due, by target and partition that this process owns; 0 if no row is due.", "target", "partition"),
		lag:     metric.GaugeVec(r, "badged_notifier_lag_seconds", "Seconds since the append of the oldest folded event that the notifier has not read for devices yet, by partition that this process owns.", "partition"),

		behind:        metric.GaugeVec(r, "badged_notifier_webhook_behind_events", "Folded events that were not processed for a webhook yet, by webhook and partition that this process owns.", "webhook", "partition"),
		behindSeconds: metric.GaugeVec(r, "badged_notifier_webhook_behind_seconds", "Seconds since the append of the oldest folded event that was not processed for a webhook yet, by webhook and partition that this process owns; 0 if there is none.", "webhook", "partition"),
	}
	for _, outcome := range outcomeNames {
		m.settled.WithLabelValues(outcome)
	}
	return m
}

// outcomeNames are the values of the label outcome.
var outcomeNames = map[reportKind]string{
	reportTold: "device_told", reportSame: "device_same", reportRetry: "device_retry", reportHold: "device_hold", reportGone: "device_gone",
	callTold: "call_told", callRetry: "call_retry", callQueue: "call_queued",
}

func (m *Metrics) reported(kind reportKind, n int) {
	m.settled.WithLabelValues(outcomeNames[kind]).Add(float64(n))
}

// setOwned is called when the owned partitions change. It sets the metric that counts these
// partitions, and removes the metrics of all single partitions; measure then sets the metrics of
// owned partitions again.
func (m *Metrics) setOwned(owned []int) {
	m.owned.Set(float64(len(owned)))
	m.due.Reset()
	m.oldest.Reset()
	m.lag.Reset()
	m.behind.Reset()
	m.behindSeconds.Reset()
}

const measureInterval = 5 * time.Second

func (n *Notifier) measure(ctx context.Context) {
	for _, p := range n.queues.partitions() {
		if err := n.measurePartition(ctx, p); err != nil && ctx.Err() == nil {
			n.log.WarnContext(ctx, "cannot measure what is due", "partition", p, "error", err)
		}
	}
}

func (n *Notifier) measurePartition(ctx context.Context, partition int) error {
	var devices, calls, oldestDevice, oldestCall, lag float64
	err := n.cfg.Pool.QueryRow(ctx, statements.Of(partition, "measure"), events.ProjectorGroup, events.NotifierGroup).Scan(&devices, &oldestDevice, &calls, &oldestCall, &lag)
	if err != nil {
		return err
	}
	label := strconv.Itoa(partition)
	n.metrics.due.WithLabelValues("device", label).Set(devices)
	n.metrics.due.WithLabelValues("webhook", label).Set(calls)
	n.metrics.oldest.WithLabelValues("device", label).Set(oldestDevice)
	n.metrics.oldest.WithLabelValues("webhook", label).Set(oldestCall)
	n.metrics.lag.WithLabelValues(label).Set(lag)

	n.metrics.behind.DeletePartialMatch(prometheus.Labels{"partition": label})
	n.metrics.behindSeconds.DeletePartialMatch(prometheus.Labels{"partition": label})
	var webhook string
	var behind, seconds float64
	rows, _ := n.cfg.Pool.Query(ctx, statements.Of(partition, "measure webhooks"), events.ProjectorGroup)
	_, err = pgx.ForEachRow(rows, []any{&webhook, &behind, &seconds}, func() error {
		n.metrics.behind.WithLabelValues(webhook, label).Set(behind)
		n.metrics.behindSeconds.WithLabelValues(webhook, label).Set(seconds)
		return nil
	})
	return err
}
