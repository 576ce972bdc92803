// Package metric creates metrics of Prometheus. The caller gives the complete name of a metric, so
// that a search for the name finds it.
//
// Each function registers its metric with r; if r is nil, it does not. It panics if r has a metric
// with this name already.
//
// The package does not know what is measured.
package metric

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Counter returns a counter.
func Counter(r prometheus.Registerer, name, help string) prometheus.Counter {
	return promauto.With(r).NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// CounterVec returns a counter with labels.
func CounterVec(r prometheus.Registerer, name, help string, labels ...string) *prometheus.CounterVec {
	return promauto.With(r).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// CounterFunc adds a counter whose value is the result of value.
func CounterFunc(r prometheus.Registerer, name, help string, value func() float64) {
	promauto.With(r).NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value)
}

// Gauge returns a gauge.
func Gauge(r prometheus.Registerer, name, help string) prometheus.Gauge {
	return promauto.With(r).NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// GaugeVec returns a gauge with labels.
func GaugeVec(r prometheus.Registerer, name, help string, labels ...string) *prometheus.GaugeVec {
	return promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

// GaugeFunc adds a gauge whose value is the result of value.
func GaugeFunc(r prometheus.Registerer, name, help string, value func() float64) {
	promauto.With(r).NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

// Histogram returns a histogram with these upper bounds of its buckets.
func Histogram(r prometheus.Registerer, name, help string, buckets []float64) prometheus.Histogram {
	return promauto.With(r).NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

// HistogramVec returns a histogram with labels.
func HistogramVec(r prometheus.Registerer, name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return promauto.With(r).NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}
