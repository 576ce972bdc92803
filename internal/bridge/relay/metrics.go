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
		carried:  counter("events_total", "Events that were carried from the outbox to badged, repeated ones too."),
		refused:  counter("refused_total", "Events that badged refused and that were set aside."),
		failed:   counter("errors_total", "Attempts to carry events that failed and are repeated."),
		active:   gauge("active", "Whether this process carries the events: 1, or 0 while another does."),
		backlog:  gauge("backlog", "Events in the outbox that are not carried yet; at most a million are counted."),
		lag:      gauge("lag_seconds", "Seconds since the oldest event was published that is not carried yet, 0 if none waits."),
		setAside: gauge("refused", "Events that are set aside in the outbox."),
	}
}

func (m *Metrics) set(b Backlog) {
	m.backlog.Set(float64(b.Events))
	m.lag.Set(b.Age.Seconds())
	m.setAside.Set(float64(b.Refused))
}
