package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/badged/badged/internal/server/httpapi"
)

// A path without a route, and another method of a route, are answered with a problem. A path that
// http.ServeMux would redirect to a shorter one is no route: an id was empty or a dot, and the
// shorter path may be another route.
func TestPathsElsewhere(t *testing.T) {
	api := newAdminAPI(t, &explainer{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/admin/", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("/v1/", api)
	for request, want := range map[string]struct {
		status int
		allow  string
	}{
		"GET /livez":                     {http.StatusOK, ""},
		"HEAD /livez":                    {http.StatusOK, ""},
		"POST /livez":                    {http.StatusMethodNotAllowed, "GET"},
		"BREW /livez":                    {http.StatusMethodNotAllowed, "GET"},
		"GET /events":                    {http.StatusNotFound, ""},
		"POST /v2/events":                {http.StatusNotFound, ""},
		"GET /admin/":                    {http.StatusOK, ""},
		"GET /admin":                     {http.StatusTemporaryRedirect, ""},
		"GET //":                         {http.StatusNotFound, ""},
		"GET //livez":                    {http.StatusNotFound, ""},
		"GET /./livez":                   {http.StatusNotFound, ""},
		"GET /admin/../livez":            {http.StatusNotFound, ""},
		"GET /admin//":                   {http.StatusNotFound, ""},
		"GET /admin/./":                  {http.StatusNotFound, ""},
		"POST //livez":                   {http.StatusNotFound, ""},
		"GET /v1/users//badge":           {http.StatusNotFound, ""},
		"GET /v1/users/./badge":          {http.StatusNotFound, ""},
		"GET /v1/users/../badge":         {http.StatusNotFound, ""},
		"GET /v1/users/ada/badge/.":      {http.StatusNotFound, ""},
		"GET /v1/users/ada/badge":        {http.StatusUnauthorized, ""},
		"GET /v1/users/%2F/badge":        {http.StatusUnauthorized, ""},
		"GET /v1/users/a%2F%2Fb/badge":   {http.StatusUnauthorized, ""},
		"GET /v1/users/%2E/badge":        {http.StatusUnauthorized, ""},
		"GET /v1/users/a%2F..%2Fb/badge": {http.StatusUnauthorized, ""},
	} {
		method, path, _ := strings.Cut(request, " ")
		w := httptest.NewRecorder()
		httpapi.Elsewhere(mux).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
		contentType := w.Header().Get("Content-Type")
		if w.Code != want.status || w.Header().Get("Allow") != want.allow || w.Code >= 400 && contentType != "application/problem+json" {
			t.Errorf("%s is answered with %d %s, Allow %q: %s", request, w.Code, contentType, w.Header().Get("Allow"), w.Body)
		}
	}
}
