package relay

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/base/metric"
)

// Metrics are the metrics of a relay.
type Metrics struct {
	carried, refused, failed       prometheus.Counter
	active, backlog, lag, setAside prometheus.Gauge
}

// NewMetrics returns metrics registered with r, or unregistered metrics if r is nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	return &Metrics{
		carried:  metric.Counter(r, "badged_relay_events_total", "Events that the relay copied from the outbox to badged, including repeated events."),
		refused:  metric.Counter(r, "badged_relay_refused_total", "Events that badged refused. The relay moved them to badged.outbox_refused."),
		failed:   metric.Counter(r, "badged_relay_errors_total", "Attempts to copy events that failed. The relay repeats them."),
		active:   metric.Gauge(r, "badged_relay_active", "1 if this process copies the events, 0 if another process does."),
		backlog:  metric.Gauge(r, "badged_relay_backlog", "Events in the outbox that are not copied to badged yet, counted up to a million."),
		lag:      metric.Gauge(r, "badged_relay_lag_seconds", "Seconds since the publishing of the oldest event that is not copied to badged yet; 0 if all events are copied."),
		setAside: metric.Gauge(r, "badged_relay_refused", "Events in badged.outbox_refused, which badged refused."),
	}
}

func (m *Metrics) set(b Backlog) {
	m.backlog.Set(float64(b.Events))
	m.lag.Set(b.Age.Seconds())
	m.setAside.Set(float64(b.Refused))
}
