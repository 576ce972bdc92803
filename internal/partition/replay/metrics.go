package replay

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// SamplerMetrics are the metrics of a Sampler.
type SamplerMetrics struct {
	users, mismatches, healed, putOff, failed prometheus.Counter
}

// NewSamplerMetrics returns metrics registered with r, or unregistered metrics if r is nil.
func NewSamplerMetrics(r prometheus.Registerer) *SamplerMetrics {
	auto := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Namespace: "badged", Subsystem: "verify", Name: name, Help: help})
	}
	return &SamplerMetrics{
		users:      counter("users_total", "Users of the background sample that were replayed and compared."),
		mismatches: counter("mismatches_total", "Users of the background sample whose badges differed from the log, plus their rooms that differed from the log."),
		healed:     counter("healed_total", "Users of the background sample whose badges were healed from the log."),
		putOff:     counter("put_off_total", "Runs of the background sample that were postponed because the log of the partition is long."),
		failed:     counter("errors_total", "Runs of the background sample that failed."),
	}
}
