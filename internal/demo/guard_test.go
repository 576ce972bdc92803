package demo_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/badged/badged/internal/demo"
)

func TestGuard(t *testing.T) {
	var log bytes.Buffer
	guarded := demo.Guard("chat.test:8080", slog.New(slog.NewTextHandler(&log, nil)))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for _, test := range []struct {
		host, origin, site, mode string
		want                     int
	}{
		{"localhost", "", "", "", http.StatusNoContent},
		{"LocalHost.:8080", "", "", "", http.StatusNoContent},
		{"127.0.0.1:8080", "http://127.0.0.1:8080", "same-origin", "cors", http.StatusNoContent},
		{"[::1]:8080", "", "none", "navigate", http.StatusNoContent},
		{"Chat.Test:1", "", "", "", http.StatusNoContent}, // the operator's name
		{"", "", "", "", http.StatusMisdirectedRequest},
		{"evil.example", "", "", "", http.StatusMisdirectedRequest},
		{"evil.example", "http://evil.example", "same-origin", "cors", http.StatusMisdirectedRequest},
		{"localhost.evil.example", "", "", "", http.StatusMisdirectedRequest},
		{"127.0.0.1:8080", "http://evil.example", "", "", http.StatusForbidden},
		{"127.0.0.1:8080", "http://localhost:8080", "", "", http.StatusForbidden},
		{"127.0.0.1:8080", "null", "", "", http.StatusForbidden},
		{"127.0.0.1:8080", "", "cross-site", "no-cors", http.StatusForbidden},
		{"127.0.0.1:8080", "", "same-site", "cors", http.StatusForbidden},
		{"127.0.0.1:8080", "", "cross-site", "navigate", http.StatusNoContent},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/demo/users", nil)
		r.Host = test.host
		for name, value := range map[string]string{"Origin": test.origin, "Sec-Fetch-Site": test.site, "Sec-Fetch-Mode": test.mode} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		guarded.ServeHTTP(w, r)
		if w.Code != test.want {
			t.Errorf("%+v is answered with %d", test, w.Code)
		}
	}
	if said := log.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "run badged dev") || !strings.Contains(said, "origin=http://evil.example") {
		t.Errorf("of the refused pages it logs\n%s", said)
	}
}
