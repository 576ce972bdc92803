package obs_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/obs"
)

// page returns the metrics page of a registry.
func page(t *testing.T, r *prometheus.Registry) string {
	t.Helper()
	w := httptest.NewRecorder()
	obs.MetricsHandler(r).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("answer is %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestInstrument(t *testing.T) {
	inner := http.NewServeMux()
	inner.HandleFunc("POST /v1/events", func(w http.ResponseWriter, _ *http.Request) {
		// Handlers can still control their connection.
		if err := http.NewResponseController(w).SetReadDeadline(time.Time{}); err != nil {
			t.Errorf("the connection is out of reach: %v", err)
		}
		w.WriteHeader(http.StatusAccepted)
	})
	inner.HandleFunc("GET /v1/users/{user}/badge", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	inner.HandleFunc("/", http.NotFound)
	registry := prometheus.NewRegistry()
	mux := http.NewServeMux()
	mux.Handle("/v1/", obs.NewHTTPMetrics(registry).Instrument(inner))
	server := httptest.NewServer(mux)
	defer server.Close()

	for _, request := range []struct{ method, path string }{
		{http.MethodPost, "/v1/events"},
		{http.MethodGet, "/v1/users/ada/badge"},
		{http.MethodGet, "/v1/users/bob/badge"},
		{http.MethodGet, "/v1/wp-login.php"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), request.method, server.URL+request.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
	}
	got := page(t, registry)
	for _, want := range []string{
		`badged_http_requests_total{code="202",route="/v1/events"} 1`,
		`badged_http_requests_total{code="200",route="/v1/users/{user}/badge"} 2`,
		`badged_http_requests_total{code="404",route="other"} 1`,
		`badged_http_request_seconds_count{route="/v1/users/{user}/badge"} 2`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("the page lacks %s:\n%s", want, got)
		}
	}
	if strings.Contains(got, "wp-login") || strings.Contains(got, "ada") {
		t.Errorf("a path has a time series of its own:\n%s", got)
	}
}
