package obs

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/base/metric"
)

// HTTPMetrics counts and times requests. It is safe for concurrent use.
type HTTPMetrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

// NewHTTPMetrics returns metrics that are registered with r.
func NewHTTPMetrics(r prometheus.Registerer) *HTTPMetrics {
	return &HTTPMetrics{
		requests: metric.CounterVec(r, "badged_http_requests_total", "Answered requests by route and status code, without WebSockets and server-sent events.", "route", "code"),
		seconds: metric.HistogramVec(r, "badged_http_request_seconds", "Seconds to answer a request, by route. They include the wait for at_least. WebSockets and server-sent events are not included.",
			prometheus.ExponentialBuckets(0.0005, 2.5, 12), "route"),
	}
}

// Instrument counts and times the requests that h answers. The label route is the pattern, without
// the method, by which the innermost http.ServeMux has routed the request. If there is no pattern,
// or the pattern is "/", the label is "other". So clients cannot create time series by requests to
// arbitrary paths.
func (m *HTTPMetrics) Instrument(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		a := &answer{ResponseWriter: w, status: http.StatusOK}
		h.ServeHTTP(a, r)
		route := routeOf(r.Pattern)
		m.requests.WithLabelValues(route, strconv.Itoa(a.status)).Inc()
		m.seconds.WithLabelValues(route).Observe(time.Since(began).Seconds())
	})
}

func routeOf(pattern string) string {
	if _, path, ok := strings.Cut(pattern, " "); ok {
		pattern = path
	}
	if pattern == "" || pattern == "/" {
		return "other"
	}
	return pattern
}

// answer is a ResponseWriter that records the status.
type answer struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
