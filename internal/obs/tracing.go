package obs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// TracingConfig says where traces are sent and which traces are sampled.
type TracingConfig struct {
	// Endpoint is the base address of an OTLP receiver, such as http://127.0.0.1:4318. Traces are
	// sent to the path v1/traces below it.
	Endpoint string
	// Sample is the fraction, from 0 to 1, of the traces that start in this process and are sampled.
	// If another program has started a trace, the program has already decided whether the trace is
	// sampled.
	Sample float64
	Logger *slog.Logger
}

// Tracing makes traces and sends them by OTLP over HTTP. OpenTelemetry's environment variables,
// such as OTEL_EXPORTER_OTLP_HEADERS, set headers, certificates, time limits, compression, batching
// and resource attributes. Tracing is safe for concurrent use.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// tracingStop is how long Close may take to send the remaining spans.
const tracingStop = 5 * time.Second

// NewTracing starts tracing, without connecting to the receiver. The caller must call Close.
func NewTracing(ctx context.Context, cfg TracingConfig) (*Tracing, error) {
	endpoint, err := url.Parse(cfg.Endpoint)
	if err != nil || endpoint.Scheme != "http" && endpoint.Scheme != "https" || endpoint.Host == "" {
		return nil, errors.New("want an address such as http://127.0.0.1:4318")
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint.JoinPath("v1", "traces").String()))
	if err != nil {
		return nil, fmt.Errorf("make an exporter: %w", err)
	}
	// The attributes from the environment are last in this list, since later attributes override
	// earlier attributes.
	described, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "badged")),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describe the process: %w", err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(logged{exporter, cfg.Logger}),
		sdktrace.WithResource(described),
		sdktrace.WithSampler(sdktrace.ParentBased(linked{sdktrace.TraceIDRatioBased(cfg.Sample)})))
	return &Tracing{provider: provider, tracer: provider.Tracer("github.com/badged/badged")}, nil
}

// Tracer returns the tracer.
func (t *Tracing) Tracer() trace.Tracer { return t.tracer }

// Close sends the remaining spans, for at most five seconds.
func (t *Tracing) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), tracingStop)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // failures to send are logged
}

// Handler wraps h, and makes a span for each request to one of the routes ("METHOD PATH"). The span
// is part of the trace that the request's header traceparent names. If authentication or a rate
// limit refuses the request, the span is not sent: otherwise unauthenticated clients could flood
// the receiver.
func (t *Tracing) Handler(h http.Handler, routes ...string) http.Handler {
	traced := map[string]bool{}
	for _, r := range routes {
		traced[r] = true
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route := r.Method + " " + r.URL.Path
		if !traced[route] {
			h.ServeHTTP(w, r)
			return
		}
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := t.tracer.Start(ctx, route, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			attribute.String("http.request.method", r.Method), attribute.String("http.route", r.URL.Path)))
		a := &answer{ResponseWriter: w, status: http.StatusOK}
		defer func() {
			switch a.status {
			case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
			default:
				span.End() // ending the span sends it
			}
		}()
		h.ServeHTTP(a, r.WithContext(ctx))
		span.SetAttributes(attribute.Int("http.response.status_code", a.status))
		if a.status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, http.StatusText(a.status))
		}
	})
}

// linked is a sampler that samples every span with a link to a sampled span, and leaves the
// decision for other spans to Sampler. A span with such a link is the span of a batch that contains
// a traced event.
type linked struct{ sdktrace.Sampler }

// ShouldSample implements sdktrace.Sampler.
func (s linked) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	for _, l := range p.Links {
		if l.SpanContext.IsSampled() {
			return sdktrace.AlwaysSample().ShouldSample(p)
		}
	}
	return s.Sampler.ShouldSample(p)
}

// logged is an exporter that logs failures with its own logger, not with OpenTelemetry's global
// logger.
type logged struct {
	sdktrace.SpanExporter
	log *slog.Logger
}

// ExportSpans implements sdktrace.SpanExporter.
func (e logged) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil {
		e.log.WarnContext(ctx, "traces not sent; they are lost", "spans", len(spans), "error", err)
	}
	return nil
}
