package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Webhooks whose endpoints do not answer do not delay other webhooks of the same host.
func TestSlowEndpointsDelayNoOtherOfTheirHost(t *testing.T) {
	const slow, users, each = 3, 40, 32
	held, told := &heldCalls{}, make(chan string, 1000)
	release := make(chan struct{})
	hold := &heldService{release: release, held: held}
	e := &endpoint{Server: httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodOptions:
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		case strings.HasPrefix(r.URL.Path, "/slow"):
			hold.ServeHTTP(w, r)
			return
		}
		var call struct{ Subject string }
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			t.Errorf("a call is not JSON: %v", err)
		}
		told <- call.Subject
	}))}
	t.Cleanup(e.Close)
	t.Cleanup(func() { close(release) })
	p := hookServer(t, newDatabase(t), e)
	for i := range slow {
		settings := strings.Replace(hookSettings(e, `"badge.changed"`), "/hook", fmt.Sprint("/slow/", i), 1)
		operator(t, p, http.MethodPut, fmt.Sprint("slow", i), settings, http.StatusCreated)
	}
	operator(t, p, http.MethodPut, "alive", hookSettings(e, `"badge.changed"`), http.StatusCreated)
	for i := range users {
		publish(t, p, delivered("lunch", i+1, fmt.Sprintf(`"user %d"`, i)))
	}
	await(t, "each slow endpoint to hold as many calls as it may", func() bool {
		now, _ := held.counts()
		return now == slow*each
	})
	publish(t, p, delivered("lunch", users+1, `"late"`))
	for subject := range told {
		if subject == "late" {
			break
		}
	}
}
