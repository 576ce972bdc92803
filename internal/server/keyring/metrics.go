package keyring

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/base/metric"
)

// metrics count requests and events by key. Labels are only names of configured keys, so
// clients cannot create time series. When a key is removed, its time series are deleted.
type metrics struct {
	requests, events, refused, loads *prometheus.CounterVec
	expires                          *prometheus.GaugeVec
	current                          prometheus.Gauge
}

// Results of loading the file, as metric labels.
const (
	loadOK     = "ok"
	loadFailed = "error"
)

// newMetrics registers the metrics with r, unless r is nil.
func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		requests: metric.CounterVec(r, "badged_keys_requests_total", "Requests with a valid key, by key.", "kind", "key"),
		events:   metric.CounterVec(r, "badged_keys_events_total", "Events stored over HTTP, by the key that published them.", "kind", "key"),
		refused:  metric.CounterVec(r, "badged_keys_refused_total", "Requests that were refused because their key does not permit them, by key and reason.", "kind", "key", "reason"),
		expires:  metric.GaugeVec(r, "badged_keys_expiry_timestamp_seconds", "When a key expires, in seconds since 1970; absent for keys that do not expire.", "kind", "key"),
		loads:    metric.CounterVec(r, "badged_keys_file_loads_total", "Loads of the file of keys, by result.", "result"),
		current:  metric.Gauge(r, "badged_keys_file_current", "1 if the keys in use are the keys of the file; 0 while the file has mistakes, so that the keys loaded before stay valid."),
	}
	for _, result := range []string{loadOK, loadFailed} {
		m.loads.WithLabelValues(result)
	}
	m.current.Set(1)
	return m
}

// expire sets the metric that says when a key expires.
func (m *metrics) expire(k *Key) {
	if k.expires.IsZero() {
		m.expires.DeleteLabelValues(string(k.Kind), k.Name)
	} else {
		m.expires.WithLabelValues(string(k.Kind), k.Name).Set(float64(k.expires.Unix()))
	}
}

// remove removes the metrics of a key.
func (m *metrics) remove(u *usage) {
	labels := prometheus.Labels{"kind": u.kind, "key": u.name}
	for _, vec := range []interface {
		DeletePartialMatch(labels prometheus.Labels) int
	}{m.requests, m.events, m.refused, m.expires} {
		vec.DeletePartialMatch(labels)
	}
}
