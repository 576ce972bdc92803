package inbound

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics counts connections. It is safe for concurrent use.
type Metrics struct {
	unauthenticated, authenticated prometheus.Gauge
	ended                          *prometheus.CounterVec
}

// NewMetrics returns metrics that are registered with r, unless it is nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	auto := promauto.With(r)
	connections := auto.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "badged", Subsystem: "http", Name: "connections",
		Help: "Open client connections, including WebSockets; authenticated once a valid key or token has arrived.",
	}, []string{"state"})
	m := &Metrics{
		unauthenticated: connections.WithLabelValues("unauthenticated"),
		authenticated:   connections.WithLabelValues("authenticated"),
		ended: auto.NewCounterVec(prometheus.CounterOpts{
			Namespace: "badged", Subsystem: "http", Name: "connections_ended_total",
			Help: "Connections closed for lack of room: the oldest unauthenticated one above the limit, or any when the process ran out of open files.",
		}, []string{"reason"}),
	}
	for _, reason := range []string{"unauthenticated", "files"} {
		m.ended.WithLabelValues(reason)
	}
	return m
}
