package app

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/badged/badged/gateway"
	"github.com/badged/badged/internal/obs"
)

// The routes of the gateway refuse a parameter that they do not describe, and a body if they
// describe none, before they do anything, and with an answer that a page of another origin can read.
func TestGatewayRoutesAreStrict(t *testing.T) {
	openAPI, _ := documents(t)
	anyOrigin := func(*http.Request) bool { return true }
	for _, r := range gatewayRoutes(new(gateway.Gateway), anyOrigin) { // the gateway panics if it is asked
		requests := map[string]string{"?zzz=1": "", "?at_least=5": "", "?device=a&device=b": "", "?Device=a": "", "?a=%zz": ""}
		if len(r.Body) == 0 {
			requests[""] = "{}"
		}
		for query, body := range requests {
			request := httptest.NewRequestWithContext(t.Context(), r.Method, r.Path+query, strings.NewReader(body))
			for _, h := range []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Origin: https://chat.example"} {
				name, value, _ := strings.Cut(h, ": ")
				request.Header.Set(name, value)
			}
			w := httptest.NewRecorder()
			r.Handler.ServeHTTP(w, request)
			var p gateway.Refusal
			err := json.Unmarshal(w.Body.Bytes(), &p)
			if err != nil || w.Code != http.StatusBadRequest || w.Header().Get("Content-Type") != "application/problem+json" || p.Detail == "" {
				t.Errorf("%s %s%s: %d %s", r.Method, r.Path, query, w.Code, w.Body)
			}
			if got := w.Header().Get("Access-Control-Allow-Origin"); r.EveryMethod && got == "" {
				t.Errorf("%s %s%s: no page can read the answer", r.Method, r.Path, query)
			}
			openAPI.CheckAnswer(t, r.Method, r.Path, w.Code, w.Header(), w.Body.Bytes())
		}
	}
}

// Load balancers and scrapers may add parameters to the requests of probes.
func TestOperatorRoutesIgnoreParameters(t *testing.T) {
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for _, r := range operatorRoutes(new(obs.Health), ok, ok, ok) {
		w := httptest.NewRecorder()
		r.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), r.Method, r.Path+"?target=badged", nil))
		if w.Code == http.StatusBadRequest {
			t.Errorf("%s: %d %s", r.Path, w.Code, w.Body)
		}
	}
}
