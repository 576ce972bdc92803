package inbound

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/base/metric"
)

// Metrics counts connections. It is safe for concurrent use.
type Metrics struct {
	unauthenticated, authenticated prometheus.Gauge
	ended                          *prometheus.CounterVec
	expires                        prometheus.Gauge
	reloads                        *prometheus.CounterVec
	// refused counts the bodies that were refused because there was no memory for them.
	refused *prometheus.CounterVec
}

// NewMetrics returns metrics that are registered with r, unless r is nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	connections := metric.GaugeVec(r, "badged_http_connections", "Open client connections, including WebSockets. A connection is authenticated after a valid key or token has arrived.", "state")
	m := &Metrics{
		unauthenticated: connections.WithLabelValues("unauthenticated"),
		authenticated:   connections.WithLabelValues("authenticated"),
		ended:           metric.CounterVec(r, "badged_http_connections_ended_total", "Connections that were closed because a limit was reached. unauthenticated: the oldest unauthenticated connection; idle: the longest idle connection of a user, key or address that exceeds its share; files: a connection that was accepted when the process had reached its limit of open file descriptors.", "reason"),
		expires:         metric.Gauge(r, "badged_http_certificate_expires_timestamp_seconds", "When the certificate of --tls-cert expires, in seconds since 1970; 0 without a certificate."),
		reloads:         metric.CounterVec(r, "badged_http_certificate_reloads_total", "Changes of the files of --tls-cert and --tls-key, by result. After an error the former certificate stays in use.", "result"),
		refused:         metric.CounterVec(r, "badged_http_bodies_refused_total", "Requests that were refused before their body was read. share: the key or user has used up its share of --body-memory-mib; all: all keys, or all users, have together used up their memory.", "memory"),
	}
	for _, room := range []string{"share", "all"} {
		m.refused.WithLabelValues(room)
	}
	for _, result := range []string{"ok", "error"} {
		m.reloads.WithLabelValues(result)
	}
	for _, reason := range []string{"unauthenticated", "files", "idle"} {
		m.ended.WithLabelValues(reason)
	}
	return m
}
