package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/badged/badged/internal/server/httpapi"
)

// A path without a route is answered with a problem; routes answer as before, also with
// another method.
func TestPathsElsewhere(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
	for request, want := range map[string]struct {
		status      int
		contentType string
	}{
		"GET /livez":      {http.StatusOK, ""},
		"POST /livez":     {http.StatusMethodNotAllowed, "text/plain; charset=utf-8"},
		"GET /events":     {http.StatusNotFound, "application/problem+json"},
		"POST /v2/events": {http.StatusNotFound, "application/problem+json"},
	} {
		method, path, _ := strings.Cut(request, " ")
		w := httptest.NewRecorder()
		httpapi.Elsewhere(mux).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
		if w.Code != want.status || w.Header().Get("Content-Type") != want.contentType {
			t.Errorf("%s is answered with %d %s: %s", request, w.Code, w.Header().Get("Content-Type"), w.Body)
		}
	}
}
