package app

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector"
	"github.com/badged/badged/pubsub"
)

// traces records the spans of an event from the publisher to the clients. A traced event, and the
// badge update that it causes, carry the trace context of the last span that was recorded for them.
// For an event without a trace, the cost is one comparison with "".
type traces struct{ tracer trace.Tracer }

// tracedRoutes are the routes of requests that append events.
var tracedRoutes = []string{"POST /v1/events", "POST /v1/commands"}

// maxTraced limits how many events of one append are traced.
const maxTraced = 100

// append calls `next` within a span of the trace of the request. If an event has a trace context
// already, append also records a span in the trace of this event. The other events get the trace
// context of the request. Only the first maxTraced events are traced.
func (t *traces) append(ctx context.Context, evs []events.Event, next func(context.Context, []events.Event) (events.Receipt, error)) (events.Receipt, error) {
	const name = "append"
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attribute.Int("badged.events", len(evs))))
	spans := []trace.Span{span}
	evs = slices.Clone(evs) // do not change the caller's events
	own := carried(span)
	for i := range evs[:min(len(evs), maxTraced)] {
		e := &evs[i]
		if e.TraceParent == "" {
			e.TraceParent = own
			continue
		}
		if parent := remote(ctx, e.TraceParent); parent.IsSampled() {
			_, s := t.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, parent), name, trace.WithSpanKind(trace.SpanKindProducer),
				trace.WithLinks(trace.Link{SpanContext: span.SpanContext()}), trace.WithAttributes(eventAttributes(e)...))
			spans = append(spans, s)
		}
	}
	receipt, err := next(ctx, evs)
	for _, s := range spans {
		end(s, err)
	}
	return receipt, err
}

// fold records a span for a folded batch, and a span for each traced event of the batch. For
// each event, in the order of f.Events, it returns the trace context of the event's span, or "" for
// an event without a trace.
func (t *traces) fold(f projector.TracedBatch) []string {
	const name = "fold"
	ctx := context.Background() // not the context in which the batch was folded, which may be done
	links := make([]trace.Link, len(f.Events))
	sampled := 0
	for i, e := range f.Events {
		if links[i].SpanContext = remote(ctx, e.TraceParent); links[i].SpanContext.IsSampled() {
			sampled++
		}
	}
	contexts := make([]string, len(f.Events))
	if sampled == 0 {
		return contexts
	}
	partition := attribute.Int("badged.partition", f.Partition)
	ctx, batch := t.tracer.Start(ctx, name+" batch", trace.WithNewRoot(),
		trace.WithTimestamp(f.Began), trace.WithLinks(links...),
		trace.WithAttributes(partition, attribute.Int("badged.events", f.Size)))
	for i, e := range f.Events {
		if !links[i].SpanContext.IsSampled() {
			continue
		}
		_, span := t.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, links[i].SpanContext), name,
			trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(f.Began),
			trace.WithLinks(trace.Link{SpanContext: batch.SpanContext()}),
			trace.WithAttributes(append(eventAttributes(e), partition)...))
		contexts[i] = carried(span)
		span.End(trace.WithTimestamp(f.Ended))
	}
	batch.End(trace.WithTimestamp(f.Ended))
	return contexts
}

// deliver records a span for an update that the gateway has sent to a client. The span begins at
// `came`, when the update arrived from the bus, and ends at `written`, when the frame with the
// update was written to the client.
func (t *traces) deliver(traceParent string, came, written time.Time) {
	ctx := context.Background() // the frame is written
	parent := remote(ctx, traceParent)
	if !parent.IsSampled() {
		return
	}
	_, span := t.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, parent), "deliver",
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(came))
	span.End(trace.WithTimestamp(written))
}

// tracedBus is a bus that records a span for each traced update that it publishes.
type tracedBus struct {
	pubsub.Bus
	traces *traces
}

// Publish implements pubsub.Bus.
func (b tracedBus) Publish(ctx context.Context, users []pubsub.Update, rooms []pubsub.RoomUpdate) error {
	var spans []trace.Span
	for i := range users {
		spans = b.begin(ctx, spans, users[i].Partition, &users[i].TraceParent)
	}
	for i := range rooms {
		spans = b.begin(ctx, spans, rooms[i].Partition, &rooms[i].TraceParent)
	}
	err := b.Bus.Publish(ctx, users, rooms)
	for _, s := range spans {
		end(s, err)
	}
	return err
}

// begin starts a span if the update is traced, and stores the context of the span in traceParent, a
// field of the update. It appends the new span to spans and returns the result.
func (b tracedBus) begin(ctx context.Context, spans []trace.Span, partition int, traceParent *string) []trace.Span {
	if *traceParent == "" {
		return spans
	}
	parent := trace.ContextWithRemoteSpanContext(ctx, remote(ctx, *traceParent))
	_, span := b.traces.tracer.Start(parent, "publish update", trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attribute.Int("badged.partition", partition)))
	*traceParent = carried(span)
	return append(spans, span)
}

// TraceQueryStart implements pgx.QueryTracer, which pgx requires of a batch tracer. It does
// nothing.
func (t *traces) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (t *traces) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// commitSpan is the context key of the span of a batch of statements.
type commitSpan struct{}

// TraceBatchStart implements pgx.BatchTracer. It starts a span "commit" if ctx has a span. Within
// the span of an append, the only batch of statements inserts the events and commits.
func (t *traces) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return ctx
	}
	_, span := t.tracer.Start(ctx, "commit", trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("db.system.name", "postgresql")))
	return context.WithValue(ctx, commitSpan{}, span)
}

// TraceBatchQuery implements pgx.BatchTracer.
func (t *traces) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (t *traces) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	if span, ok := ctx.Value(commitSpan{}).(trace.Span); ok {
		end(span, data.Err)
	}
}

func end(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// eventAttributes returns attributes that identify an event. They do not include users, since
// many people can read traces.
func eventAttributes(e *events.Event) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("cloudevents.event_id", e.ID),
		attribute.String("cloudevents.event_source", e.Source),
		attribute.String("cloudevents.event_type", string(e.Type)),
	}
}

// traceParent is the name of the header and the CloudEvents attribute with the W3C trace
// context.
const traceParent = "traceparent"

// remote parses a traceparent. A malformed traceparent gives a context that is not sampled.
func remote(ctx context.Context, parent string) trace.SpanContext {
	ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{}) // remove the span of ctx, so that a malformed parent gives no span
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceParent: parent})
	return trace.SpanContextFromContext(ctx)
}

// carried returns the traceparent of a span, or "" if the span is not sampled.
func carried(span trace.Span) string {
	c := span.SpanContext()
	if !c.IsSampled() {
		return ""
	}
	return "00-" + c.TraceID().String() + "-" + c.SpanID().String() + "-01"
}
