package httpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/badged/badged/internal/server/httpapi"
)

// askProfile asks an API without other routes for a profile.
func askProfile(t *testing.T, api http.Handler, name string) answer {
	t.Helper()
	return ask(t, api, adminKey, http.MethodGet, httpapi.ProfilesPath+name, "", "")
}

func TestProfilesThatCannotBeTaken(t *testing.T) {
	api := httpapi.NewProfiles(httpapi.Config{Keys: mustKeys(t)})
	for name, want := range map[string]string{
		"cmdline":                "404 /debug/pprof/cmdline is not a profile; GET /debug/pprof/ lists them",
		"symbol":                 "404 /debug/pprof/symbol is not a profile; GET /debug/pprof/ lists them",
		"heap/":                  "404 /debug/pprof/heap/ is not a profile; GET /debug/pprof/ lists them",
		"profile?seconds=0":      "400 seconds must be a number from 1 to 600",
		"trace?seconds=601":      "400 seconds must be a number from 1 to 600",
		"heap?seconds=":          "400 seconds must be given once, with a value",
		"heap?debug=3":           "400 debug must be a number from 0 to 2",
		"heap?gc=yes":            "400 gc must be a number from 0 to 1",
		"heap?seconds=1&debug=1": "400 seconds cannot be combined with debug: what has changed is not shown as text",
	} {
		if got := askProfile(t, api, name).story(t); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// All that the list names can be taken.
func TestListOfProfiles(t *testing.T) {
	api := httpapi.NewProfiles(httpapi.Config{Keys: mustKeys(t)})
	names := strings.Fields(askProfile(t, api, "").body)
	if len(names) < 8 {
		t.Errorf("the list is %q", names)
	}
	for _, name := range names {
		query := ""
		if name == "profile" || name == "trace" { // these take longer without
			query = "?seconds=1"
		}
		if a := askProfile(t, api, name+query); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
}

func TestOneProfileOverATimeAtOnce(t *testing.T) {
	api := httpapi.NewProfiles(httpapi.Config{Keys: mustKeys(t)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, httpapi.ProfilesPath+"profile?seconds=600", nil)
		r.Header.Set("Authorization", "Bearer "+adminKey)
		api.ServeHTTP(httptest.NewRecorder(), r)
	}()
	for !strings.Contains(askProfile(t, api, "goroutine?debug=2").body, "net/http/pprof.Profile(") {
		runtime.Gosched()
	}
	if got, want := askProfile(t, api, "trace").story(t), "409 another profile or trace is being taken; ask again when it has ended"; got != want {
		t.Errorf("a trace meanwhile: %s, want %s", got, want)
	}
	cancel()
	<-ended
	if a := askProfile(t, api, "profile?seconds=1"); a.status != http.StatusOK {
		t.Errorf("afterwards: %d %s", a.status, a.body)
	}
}
