package push

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// A token is signed for each push service, and used for an hour.
func TestVAPIDTokensAreReused(t *testing.T) {
	f := fakes(t)[2]
	v := f.app.vendor.(*webPush).vapid
	now := time.Now()
	v.now = func() time.Time { return now }
	header := func(origin string) string {
		h, err := v.header(origin)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	first := header(f.URL)
	now = now.Add(59 * time.Minute)
	if header(f.URL) != first {
		t.Error("another token within the hour")
	}
	if header("https://push.example") == first {
		t.Error("two push services got the same token")
	}
	now = now.Add(2 * time.Minute)
	if header(f.URL) == first {
		t.Error("the same token after an hour")
	}
	for range 2 {
		if got := f.send(t, f.push(1, 1)); got.Verdict != Sent {
			t.Fatalf("a push: %+v", got)
		}
	}
	sound(t, f.Vendor)
}

// The audience is the origin of the endpoint, and the route its host, however an app writes
// it: push services compare the origin, and limits hold for a host.
func TestOriginOfAnEndpoint(t *testing.T) {
	f := fakes(t)[2]
	w := f.app.vendor.(*webPush)
	for endpoint, want := range map[string]string{
		"https://push.example/1":           "https://push.example",
		"HTTPS://Push.Example:443/1":       "https://push.example",
		"https://push.example.:8443/1":     "https://push.example:8443",
		"http://push.example:80":           "http://push.example",
		"http://push.example:443?x=//a:80": "http://push.example:443",
		"https://[2A00::1]/1":              "https://[2a00::1]",
	} {
		s := subscription{Endpoint: endpoint}
		if err := json.Unmarshal(f.token, &struct{ Keys *subscriptionKeys }{&s.Keys}); err != nil {
			t.Fatal(err)
		}
		req, err := w.request(t.Context(), &s, []byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		token, _, _ := strings.Cut(strings.TrimPrefix(req.Header.Get("Authorization"), "vapid t="), ",")
		claims := jwt.MapClaims{}
		if _, _, err := jwt.NewParser().ParseUnverified(token, claims); err != nil {
			t.Fatal(err)
		}
		if claims["aud"] != want {
			t.Errorf("the audience of %s is %v, want %s", endpoint, claims["aud"], want)
		}
		push := f.push(1, 1)
		if push.Token, err = json.Marshal(s); err != nil {
			t.Fatal(err)
		}
		if _, host, _ := strings.Cut(want, "//"); w.route(push) != host {
			t.Errorf("the route of %s is %s, want %s", endpoint, w.route(push), host)
		}
	}
}

// Pushes that wait for the first connection to a vendor share it.
func TestVendorsAreDialledOnce(t *testing.T) {
	for _, f := range fakes(t) {
		t.Run(string(f.platform), func(t *testing.T) {
			var mu sync.Mutex
			connections := map[string]bool{}
			inner := f.Server.Config.Handler
			f.Server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				connections[r.RemoteAddr] = true
				mu.Unlock()
				inner.ServeHTTP(w, r)
			})
			var all sync.WaitGroup
			for i := range int64(100) {
				all.Go(func() {
					if got := f.send(t, f.push(i, i)); got.Verdict != Sent {
						t.Errorf("push %d: %+v", i, got)
					}
				})
			}
			all.Wait()
			if len(connections) != 1 {
				t.Errorf("%d connections, want 1", len(connections))
			}
			sound(t, f.Vendor)
		})
	}
}
