package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// heldService is a push service that does not answer calls until it is released.
type heldService struct {
	*httptest.Server
	release <-chan struct{}
	held    *heldCalls
}

// heldCalls counts the calls of all services of a test.
type heldCalls struct {
	mu       sync.Mutex
	now, max int
}

func (h *heldCalls) add(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now += n
	h.max = max(h.max, h.now)
}

func (h *heldCalls) counts() (now, limit int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now, h.max
}

// ServeHTTP implements http.Handler.
func (s *heldService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.held.add(1)
	defer s.held.add(-1)
	select {
	case <-s.release:
		w.WriteHeader(http.StatusCreated)
	case <-r.Context().Done():
	}
}

// Users choose the push services of their devices, so a service may not answer. Six users have 100
// devices each, on three services that do not answer. Their pushes may use only a bounded part of the
// pushes in flight, so that other users of the app get their pushes.
func TestSlowPushServicesDelayNoOther(t *testing.T) {
	const users, devices, services, each = 6, 100, 3, 16
	f := newClosedPhones(t)
	p := f.serve(t, newDatabase(t))
	release, held := make(chan struct{}), &heldCalls{}
	var urls []string
	for range services {
		s := &heldService{release: release, held: held}
		s.Server = httptest.NewUnstartedServer(s)
		s.EnableHTTP2 = true
		s.StartTLS()
		t.Cleanup(s.Close)
		urls = append(urls, s.URL)
	}
	t.Cleanup(func() { close(release) }) // before the services are closed
	f.register(t, p, "ada")
	f.awaitNumbers(t, p, "0") // so that the service of her browser is known to be fast
	for i := range users {
		user := fmt.Sprintf("slow%d", i)
		for d := range devices {
			subscription := f.web.Subscribe(t, fmt.Sprintf("%s-%d", user, d))
			subscription["endpoint"] = fmt.Sprintf("%s/push/%s-%d", urls[d%services], user, d)
			body, err := json.Marshal(map[string]any{"platform": "webpush", "app": "web", "subscription": subscription})
			if err != nil {
				t.Fatal(err)
			}
			path := fmt.Sprintf("%s/v1/users/%s/devices/%d", p.url, user, d)
			wantStatus(t, publisherKey, http.MethodPut, path, "application/json", string(body), http.StatusCreated)
		}
	}
	await(t, "each user to have pushes in flight", func() bool {
		now, _ := held.counts()
		return now >= users*each
	})
	for seq := range 5 {
		f.awaitNumbers(t, p, publish(t, p, delivered("lunch", seq+1, `"ada"`)))
	}
	f.register(t, p, "ben") // his devices are new
	f.awaitNumbers(t, p, "0")
	now, limit := held.counts()
	if now == 0 || limit > users*each {
		t.Errorf("%d pushes are held, and %d were at a time; want at most %d for each of %d users", now, limit, each, users)
	}
	f.check(t, p)
}
