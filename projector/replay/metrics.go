package replay

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// SamplerMetrics are the metrics of a Sampler.
type SamplerMetrics struct {
	Users, Mismatches, Healed, PutOff, Failed prometheus.Counter
}

// NewSamplerMetrics returns metrics registered with r, or unregistered ones if
// r is nil.
func NewSamplerMetrics(r prometheus.Registerer) *SamplerMetrics {
	auto := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Namespace: "badged", Subsystem: "verify", Name: name, Help: help})
	}
	return &SamplerMetrics{
		Users:      counter("users_total", "Users of the background sample that were replayed and compared."),
		Mismatches: counter("mismatches_total", "Users of the background sample whose badges differed from the log."),
		Healed:     counter("healed_total", "Users of the background sample whose badges were healed from the log."),
		PutOff:     counter("put_off_total", "Runs of the background sample postponed because the log of the partition is long."),
		Failed:     counter("errors_total", "Runs of the background sample that failed."),
	}
}
