package limit

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"
)

func TestLimiters(t *testing.T) {
	now := time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)
	ls := NewLimiters[int](2)
	take := func(key, times int) (wait time.Duration) {
		for range times {
			wait = ls.Take(key, now)
		}
		return wait
	}
	if wait := take(1, 20); wait != 0 {
		t.Errorf("the first burst has to wait for %v", wait)
	}
	if wait := take(1, 3); wait != 500*time.Millisecond {
		t.Errorf("one more has to wait for %v", wait)
	}
	if wait := take(2, 1); wait != 0 {
		t.Errorf("another has to wait for %v", wait)
	}
	// A key stays until its limiter would be full again.
	now = now.Add(9 * time.Second)
	if wait := take(1, 19); wait == 0 {
		t.Error("after nine seconds there was more than eighteen")
	}
	now = now.Add(9 * time.Second)
	take(3, 1)
	if wait := take(1, 19); wait == 0 {
		t.Error("then again")
	}
	// Unused keys are deleted.
	for range 2 {
		now = now.Add(10 * time.Second)
		take(3, 1)
	}
	if n := len(ls.current) + len(ls.previous); n != 2 { // the same key in both
		t.Errorf("%d are remembered", n)
	}
	now = now.Add(time.Hour)
	take(4, 1)
	if n := len(ls.current) + len(ls.previous); n != 1 {
		t.Errorf("after an hour %d are remembered", n)
	}
}

func TestLimitersAreBounded(t *testing.T) {
	now := time.Now()
	ls := NewLimiters[int](1)
	for key := range 3 * maxLimiters {
		ls.Take(key, now)
		if len(ls.current)+len(ls.previous) > 2*maxLimiters {
			t.Fatalf("%d are remembered", len(ls.current)+len(ls.previous))
		}
	}
}

func TestAddressOf(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for name, tc := range map[string]struct {
		remote    string
		forwarded []string
		want      string
	}{
		"the peer":                          {"203.0.113.7:4711", nil, "203.0.113.7"},
		"an IPv6 peer":                      {"[2001:db8::7]:4711", nil, "2001:db8::7"},
		"an IPv4 peer on an IPv6 socket":    {"[::ffff:203.0.113.7]:4711", nil, "203.0.113.7"},
		"an untrusted peer with the header": {"203.0.113.7:4711", []string{"198.51.100.1"}, "203.0.113.7"},
		"a proxy":                           {"10.0.0.1:80", []string{"203.0.113.7"}, "203.0.113.7"},
		"a proxy alone":                     {"10.0.0.1:80", nil, "10.0.0.1"},
		"two proxies":                       {"10.0.0.1:80", []string{"203.0.113.7, 10.0.0.2"}, "203.0.113.7"},
		"two headers":                       {"10.0.0.1:80", []string{"203.0.113.7", "10.0.0.2"}, "203.0.113.7"},
		"a client that made up one before":  {"10.0.0.1:80", []string{"198.51.100.1, 203.0.113.7, 10.0.0.2"}, "203.0.113.7"},
		"a client that sent junk":           {"10.0.0.1:80", []string{"junk, 10.0.0.2"}, "10.0.0.2"},
		"with a port":                       {"10.0.0.1:80", []string{"203.0.113.7:99"}, "203.0.113.7"},
		"an IPv6 client":                    {"[fd00::1]:80", []string{"[2001:db8::7]"}, "2001:db8::7"},
		"no address":                        {"@", nil, "invalid IP"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/ws", nil)
		r.RemoteAddr = tc.remote
		r.Header["X-Forwarded-For"] = tc.forwarded
		a, ok := addressOf(r, trusted)
		if a.String() != tc.want || ok != a.IsValid() {
			t.Errorf("%s: %v, %t, want %s", name, a, ok, tc.want)
		}
	}
	for a, want := range map[string]string{"203.0.113.7": "203.0.113.7/32", "2001:db8:1:2:3::7": "2001:db8:1:2::/64"} {
		if n := networkOf(netip.MustParseAddr(a)); n.String() != want {
			t.Errorf("%s counts as %v", a, n)
		}
	}
}
