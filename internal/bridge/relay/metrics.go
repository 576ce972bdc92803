package relay

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are the metrics of a relay.
type Metrics struct {
	carried, refused, failed       prometheus.Counter
	active, backlog, lag, setAside prometheus.Gauge
}

// NewMetrics returns metrics registered with r, or unregistered metrics if r is nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	auto := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Namespace: "badged", Subsystem: "relay", Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return auto.NewGauge(prometheus.GaugeOpts{Namespace: "badged", Subsystem: "relay", Name: name, Help: help})
	}
	return &Metrics{
		carried:  counter("events_total", "Events that the relay copied from the outbox to badged, including repeated events."),
		refused:  counter("refused_total", "Events that badged refused. The relay moved them to badged.outbox_refused."),
		failed:   counter("errors_total", "Attempts to copy events that failed. The relay repeats them."),
		active:   gauge("active", "1 if this process copies the events, 0 if another process does."),
		backlog:  gauge("backlog", "Events in the outbox that are not copied to badged yet, counted up to a million."),
		lag:      gauge("lag_seconds", "Seconds since the publishing of the oldest event that is not copied to badged yet; 0 if all events are copied."),
		setAside: gauge("refused", "Refused events in badged.outbox_refused."),
	}
}

func (m *Metrics) set(b Backlog) {
	m.backlog.Set(float64(b.Events))
	m.lag.Set(b.Age.Seconds())
	m.setAside.Set(float64(b.Refused))
}
