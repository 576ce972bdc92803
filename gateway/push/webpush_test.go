package push

import (
	"net/http"
	"sync"
	"testing"
	"time"
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
