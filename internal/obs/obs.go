// Package obs provides logs, metrics, traces and health checks.
//
// It does not know the packages that it observes: the package app connects them with this package.
// ADR 30 has the reasons for traces.
package obs

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/badged/badged/internal/base/version"
)

// NewLogger returns a logger that writes records to w. It writes only records of the level
// ("debug", "info", "warn" or "error") or above, each as a line in the format ("text" or "json").
// It writes a repeated error only once a minute, with the number of repetitions.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q: want debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: l}
	switch strings.ToLower(format) {
	case "text":
		return slog.New(newRepeats(slog.NewTextHandler(w, options))), nil
	case "json":
		return slog.New(newRepeats(slog.NewJSONHandler(w, options))), nil
	}
	return nil, fmt.Errorf("log format %q: want text or json", format)
}

// NewRegistry returns a registry with the metrics of the Go runtime and of the process, and
// the version of badged.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	promauto.With(r).NewGauge(prometheus.GaugeOpts{
		Name: "badged_build_info", Help: "Always 1; the label is the version of this process.",
		ConstLabels: prometheus.Labels{"version": version.String()},
	}).Set(1)
	return r
}

// MetricsHandler answers with the metrics of r.
func MetricsHandler(r *prometheus.Registry) http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{Registry: r})
}
