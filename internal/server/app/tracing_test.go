package app

import (
	"bytes"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/privateredis"
	"github.com/badged/badged/internal/server/config"
)

// receiver receives OTLP over HTTP.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*otlp.Span
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		b, err := io.ReadAll(request.Body)
		var export collector.ExportTraceServiceRequest
		if err != nil || request.URL.Path != "/v1/traces" || proto.Unmarshal(b, &export) != nil {
			t.Errorf("not an export of traces: %s, %v", request.URL.Path, err)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, resource := range export.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				r.spans = append(r.spans, scope.GetSpans()...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(r.Close)
	return r
}

// trace returns the spans of a trace, by id.
func (r *receiver) trace(id string) map[string]*otlp.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	spans := map[string]*otlp.Span{}
	for _, s := range r.spans {
		if hex.EncodeToString(s.GetTraceId()) == id {
			spans[hex.EncodeToString(s.GetSpanId())] = s
		}
	}
	return spans
}

// way returns the names of the spans from the last one with a name up to the
// root of the trace: a span without a parent, or the id of a span made
// elsewhere.
func way(spans map[string]*otlp.Span, from string) []string {
	var names []string
	for _, s := range spans {
		if s.GetName() != from {
			continue
		}
		for s != nil {
			names = append(names, s.GetName())
			parent := hex.EncodeToString(s.GetParentSpanId())
			if s = spans[parent]; s == nil && parent != "" {
				names = append(names, parent)
			}
		}
	}
	return names
}

// The trace context that the publisher of the tests sends.
const (
	traceID  = "4bf92f3577b34da6a3ce929d0e0e4736"
	parentID = "00f067aa0ba902b7"
	sampled  = "00-" + traceID + "-" + parentID + "-01"
)

// publishTraced publishes an event with a header.
func (s *server) publishTraced(t *testing.T, event, header string) string {
	t.Helper()
	r := newRequest(t, http.MethodPost, s.url+"/v1/events", event)
	r.Header.Set("Authorization", "Bearer "+publisherKey)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("traceparent", header)
	a := s.send(t, r)
	if a.status != http.StatusAccepted {
		t.Fatalf("publish: %d %s", a.status, a.body)
	}
	return a.header.Get("Badged-Position")
}

// dialLive is dial, and returns once the client depends on updates: nothing
// that it would read from the tables is traced. The answer to a ping comes
// after the client's state.
func dialLive(t *testing.T, s *server, userID string) *client {
	t.Helper()
	c := dial(t, s, userID)
	c.next(t, "snapshot")
	c.write(t, `{"t":"ping"}`)
	c.next(t, "pong")
	return c
}

// finish stops servers, which flushes their spans.
func finish(t *testing.T, servers ...*server) {
	t.Helper()
	for _, s := range servers {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		s.Close()
	}
}

func TestEventIsOneTraceThroughThreeProcesses(t *testing.T) {
	r := newReceiver(t)
	cfg := settings(pgtest.NewDB(t, migrated()))
	redis, err := privateredis.Start(t.Context(), privateredis.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Stop)
	cfg.RedisURL, cfg.OTLPEndpoint = redis.URL(), r.URL
	var servers []*server
	for _, role := range []config.Role{config.RoleProjector, config.RoleGateway, config.RoleAPI} {
		cfg.Roles = []config.Role{role}
		servers = append(servers, run(t, open(t, cfg)))
	}
	gateway, api := servers[1], servers[2]
	c := dialLive(t, gateway, "ada")
	api.publishTraced(t, message("lunch", 1, "ada"), sampled)
	c.next(t, "changes")
	finish(t, servers...)

	spans := r.trace(traceID)
	want := []string{"deliver", "publish update", "fold", "append", "POST /v1/events", parentID}
	if got := way(spans, "deliver"); !slices.Equal(got, want) {
		t.Errorf("the way of the frame is %q, want %q", got, want)
	}
	if got, want := way(spans, "commit"), []string{"commit", "append", "POST /v1/events", parentID}; !slices.Equal(got, want) {
		t.Errorf("the way of the commit is %q, want %q", got, want)
	}
	if len(spans) != 6 {
		t.Errorf("%d spans, want one each: %v", len(spans), spans)
	}
	for _, s := range spans {
		if s.GetStartTimeUnixNano() > s.GetEndTimeUnixNano() {
			t.Errorf("%s ends before it begins", s.GetName())
		}
		for _, a := range s.GetAttributes() {
			if strings.Contains(a.GetValue().GetStringValue(), "ada") {
				t.Errorf("%s tells of a user: %s", s.GetName(), a)
			}
		}
	}
	batches := 0
	for _, s := range r.spans {
		if s.GetName() == "fold batch" && len(s.GetLinks()) == 1 && hex.EncodeToString(s.GetLinks()[0].GetTraceId()) == traceID {
			batches++
		}
	}
	if batches != 1 {
		t.Errorf("%d batches are linked to the trace", batches)
	}
}

// An event with a trace context continues that trace, whatever request it came
// in. Requests whose publisher does not sample, that carry no context, or that
// are not authenticated, make no spans.
func TestTracesContinueThePublishers(t *testing.T) {
	r := newReceiver(t)
	cfg := settings(pgtest.NewDB(t, migrated()))
	cfg.OTLPEndpoint = r.URL // and TraceSample is 0
	s := run(t, open(t, cfg))
	c := dialLive(t, s, "ada")

	own := strings.Replace(message("lunch", 1, "ada"), `{`, `{"traceparent":"`+sampled+`",`, 1)
	s.publishTraced(t, own, "")
	c.next(t, "changes")
	const other = "1111111111111111111111111111111a"
	s.publishTraced(t, message("lunch", 2, "ada"), "00-"+other+"-"+parentID+"-00")
	c.next(t, "changes")
	s.publishTraced(t, message("lunch", 3, "ada"), "")
	c.next(t, "changes")
	s.publishTraced(t, strings.Replace(message("lunch", 4, "ada"), `{`, `{"traceparent":"nonsense",`, 1), "")
	c.next(t, "changes")
	stranger := newRequest(t, http.MethodPost, s.url+"/v1/events", message("lunch", 5, "ada"))
	stranger.Header.Set("Authorization", "Bearer a guess")
	stranger.Header.Set("traceparent", "00-"+other+"-"+parentID+"-01")
	if a := s.send(t, stranger); a.status != http.StatusUnauthorized {
		t.Errorf("a stranger is answered with %d %s", a.status, a.body)
	}
	finish(t, s)

	if got, want := way(r.trace(traceID), "deliver"), []string{"deliver", "publish update", "fold", parentID}; !slices.Equal(got, want) {
		t.Errorf("the way of the frame is %q, want %q", got, want)
	}
	if got, want := way(r.trace(traceID), "append"), []string{"append", parentID}; !slices.Equal(got, want) {
		t.Errorf("the way of the append is %q, want %q", got, want)
	}
	for _, span := range r.spans {
		if id := hex.EncodeToString(span.GetTraceId()); id != traceID && span.GetName() != "fold batch" {
			t.Errorf("%s is made for the trace %s", span.GetName(), id)
		}
	}
}

// A user's command starts a trace, too.
func TestCommandIsTraced(t *testing.T) {
	r := newReceiver(t)
	cfg := settings(pgtest.NewDB(t, migrated()))
	cfg.OTLPEndpoint, cfg.TraceSample = r.URL, 1
	s := run(t, open(t, cfg))
	s.badge(t, "ada", s.publish(t, message("lunch", 1, "ada")))
	c := dialLive(t, s, "ada")
	c.write(t, `{"t":"read","id":1,"conversation_id":"lunch","up_to_seq":1}`)
	var came []string
	for range 2 { // in either order
		var f frame
		if err := c.conn.ReadJSON(&f); err != nil {
			t.Fatal(err)
		}
		came = append(came, f.T)
	}
	finish(t, s)
	if !slices.Contains(came, "changes") {
		t.Fatalf("frames are %q", came)
	}
	for _, span := range r.spans {
		if span.GetName() != "deliver" {
			continue
		}
		got := way(r.trace(hex.EncodeToString(span.GetTraceId())), "deliver")
		if want := []string{"deliver", "publish update", "fold", "append"}; !slices.Equal(got, want) {
			t.Errorf("the way of the frame is %q, want %q", got, want)
		}
		return
	}
	t.Error("nothing was delivered in a trace")
}

func TestReceiverThatIsAwayIsLogged(t *testing.T) {
	cfg := settings(pgtest.NewDB(t, migrated()))
	cfg.OTLPEndpoint, cfg.TraceSample = "http://127.0.0.1:1", 1
	var log bytes.Buffer
	a, err := Open(t.Context(), cfg, listen(t), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	s := run(t, a)
	if b := s.badge(t, "ada", s.publish(t, message("lunch", 1, "ada"))); b.Total != 1 {
		t.Errorf("badge is %+v", b)
	}
	finish(t, s)
	if !strings.Contains(log.String(), "traces not sent; they are lost") {
		t.Errorf("the log does not say so: %s", &log)
	}
}

func TestReceiverMustBeAnAddress(t *testing.T) {
	cfg := settings(pgtest.NewDB(t, migrated()))
	for _, endpoint := range []string{"localhost:4318", "grpc://localhost", "http://"} {
		cfg.OTLPEndpoint = endpoint
		_, err := Open(t.Context(), cfg, listen(t), nil)
		if err == nil || err.Error() != "--otlp-endpoint: want an address such as http://127.0.0.1:4318" {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
}
