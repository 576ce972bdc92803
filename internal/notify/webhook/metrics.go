package webhook

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/base/metric"
	"github.com/badged/badged/internal/notify/outbound"
)

// Metrics are the metrics of a Sender.
type Metrics struct {
	seconds *prometheus.HistogramVec
	events  *prometheus.CounterVec
	state   *prometheus.GaugeVec
	step    *prometheus.GaugeVec
	failed  prometheus.Counter
}

// The outcomes of calls.
const (
	outcomeOK          = "ok"
	outcomeThrottled   = "throttled"
	outcomeGone        = "gone"
	outcomeRefused     = "refused"
	outcomeError       = "error"
	outcomeUnreachable = "unreachable"
)

// NewMetrics returns metrics registered with r, or unregistered metrics if r is nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	return &Metrics{
		seconds: metric.HistogramVec(r, "badged_webhook_call_seconds", "Duration of calls in seconds, by webhook and outcome: ok, throttled (429), gone (410), refused (another 4xx), error (any other status), unreachable.",
			prometheus.ExponentialBuckets(0.001, 4, 8), "webhook", "outcome"),
		events: metric.CounterVec(r, "badged_webhook_events_total", "Events that endpoints accepted, by webhook.", "webhook"),
		state:  metric.GaugeVec(r, "badged_webhook_state", "1 for the current state of each webhook: active, paused or disabled.", "webhook", "state"),
		step:   metric.GaugeVec(r, "badged_webhook_failing_step", "How many times the wait between two calls of a webhook has grown since its calls began to fail; 0 while its calls succeed.", "webhook"),
		failed: metric.Counter(r, "badged_webhook_store_errors_total", "Reads and writes of webhooks' settings and states that failed."),
	}
}

// outcomeOf returns the outcome of a call for metrics.
func outcomeOf(a Answer) string {
	switch {
	case a.Err == nil:
		return outcomeOK
	case a.Status == 0:
		return outcomeUnreachable
	case a.Status == http.StatusTooManyRequests:
		return outcomeThrottled
	case a.Status == http.StatusGone:
		return outcomeGone
	case a.Status >= 400 && a.Status < 500:
		return outcomeRefused
	}
	return outcomeError
}

func (m *Metrics) called(webhook string, a Answer) {
	m.seconds.WithLabelValues(webhook, outcomeOf(a)).Observe(a.Duration.Seconds())
}

// show sets the metrics of a webhook's state and step.
func (m *Metrics) show(w outbound.Webhook) {
	m.state.DeletePartialMatch(prometheus.Labels{"webhook": w.Name})
	m.state.WithLabelValues(w.Name, string(w.State)).Set(1)
	m.step.WithLabelValues(w.Name).Set(float64(w.Step))
}

// forget removes the metrics of a deleted webhook.
func (m *Metrics) forget(webhook string) {
	of := prometheus.Labels{"webhook": webhook}
	m.state.DeletePartialMatch(of)
	m.step.DeletePartialMatch(of)
	m.seconds.DeletePartialMatch(of)
	m.events.DeletePartialMatch(of)
}
