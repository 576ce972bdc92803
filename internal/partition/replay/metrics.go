package replay

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/base/metric"
)

// SamplerMetrics are the metrics of a Sampler.
type SamplerMetrics struct {
	users, mismatches, healed, putOff, failed prometheus.Counter
}

// NewSamplerMetrics returns metrics registered with r, or unregistered metrics if r is nil.
func NewSamplerMetrics(r prometheus.Registerer) *SamplerMetrics {
	return &SamplerMetrics{
		users:      metric.Counter(r, "badged_verify_users_total", "Users of the background sample that were replayed and compared."),
		mismatches: metric.Counter(r, "badged_verify_mismatches_total", "Users of the background sample whose badges differed from the log, plus their rooms that differed from the log."),
		healed:     metric.Counter(r, "badged_verify_healed_total", "Users of the background sample whose badges were healed from the log."),
		putOff:     metric.Counter(r, "badged_verify_put_off_total", "Runs of the background sample that were postponed because the log of the partition is long."),
		failed:     metric.Counter(r, "badged_verify_errors_total", "Runs of the background sample that failed."),
	}
}
