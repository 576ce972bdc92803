package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
)

func TestConnectionsOverALimit(t *testing.T) {
	ann := http.Header{"Authorization": {"Bearer ann"}}
	for name, tc := range map[string]struct {
		limits Limits
		others []string // users who are connected
		code   int
		status int
		reason string
	}{
		"in all":         {Limits{Connections: 2}, []string{"bob", "cid"}, CloseCapacity, 503, "the server has as many connections as it may"},
		"of a user":      {Limits{UserConnections: 2}, []string{"ann", "bob", "ann"}, CloseUserConnections, 429, "you have as many connections as a user may"},
		"of one address": {Limits{Connects: 0.04}, []string{"bob"}, CloseRateLimited, 429, "too many connections come from your address"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.Limits = tc.limits })
			var here []*client
			for _, user := range tc.others {
				c, _ := w.connect(user)
				here = append(here, c)
			}
			c := w.dial(ann, Protocol)
			if tc.code == CloseUserConnections { // sent after the hello
				c.say(`{"t":"hello"}`)
			}
			code, reason, bye := c.farewell()
			if code != tc.code || reason != tc.reason || bye.Code != float64(tc.code) || bye.ReconnectMS < 1000 || bye.ReconnectMS > 31_000 {
				t.Errorf("closed with %d %q after %s", code, reason, bye.raw)
			}
			res := w.request(http.MethodGet, "/v1/sse", "ann", "")
			checkProblem(t, res, tc.status, tc.reason)
			if seconds, err := strconv.Atoi(res.header.Get("Retry-After")); err != nil || seconds < 1 || seconds > 31 {
				t.Errorf("Retry-After is %q", res.header.Get("Retry-After"))
			}
			w.send(tc.others[0], "c1", 1)
			if f := here[0].hear(); f.unread("c1") != 1 {
				t.Errorf("the earlier client got %s", f.raw)
			}
			if tc.code == CloseRateLimited {
				return
			}
			// A client that leaves makes room.
			_ = here[0].conn.CloseNow()
			eventually(func() bool {
				w.gateway.mu.Lock()
				defer w.gateway.mu.Unlock()
				return len(w.gateway.sessions) == len(tc.others)-1
			})
			w.connect("ann")
		})
	}
}

// Unauthenticated connections take no room from authenticated ones.
func TestUnauthenticatedConnectionsDoNotCount(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Limits.Connections = 1 })
	for range 3 {
		w.dial(nil, Protocol)
	}
	w.connect("ann")
	c := w.dial(nil, Protocol, "bearer.bob")
	if code, _, _ := c.farewell(); code != CloseCapacity {
		t.Errorf("one more is closed with %d", code)
	}
}

func TestStreamsCountAsConnections(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Limits.UserConnections = 1 })
	w.listen("ann", "").mustHear()
	c := w.dial(http.Header{"Authorization": {"Bearer ann"}}, Protocol)
	c.say(`{"t":"hello"}`)
	if code, _, _ := c.farewell(); code != CloseUserConnections {
		t.Errorf("closed with %d", code)
	}
}

// A command refused for its rate is accepted after the given wait.
func TestCommandsOverTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedWorld(t, func(c *Config) { c.Limits.Commands = 2 })
		c, _ := w.connect("ann")
		say := func(id int) frame {
			c.say(fmt.Sprintf(`{"t":"read_all","id":%d}`, id))
			return c.hear()
		}
		for id := range 20 { // ten seconds' worth at once
			if f := say(id); f.T != "ok" {
				t.Fatalf("command %d is answered with %s", id, f.raw)
			}
		}
		began := time.Now()
		due := map[int]time.Time{}
		for id := 20; id < 30; id++ {
			f := say(id)
			if f.T != "error" || f.Code != "rate_limited" || f.RetryMS <= 0 {
				t.Fatalf("command %d is answered with %s", id, f.raw)
			}
			due[id] = time.Now().Add(time.Duration(f.RetryMS) * time.Millisecond)
		}
		for id := 20; id < 30; id++ {
			time.Sleep(time.Until(due[id]))
			if f := say(id); f.T != "ok" {
				t.Errorf("when it came again command %d is answered with %s", id, f.raw)
			}
		}
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("ten commands at two a second took %v", took)
		}
		c.say(`{"t":"ping"}`) // signs of life are not counted
		if f := c.hear(); f.T != "pong" {
			t.Errorf("a ping is answered with %s", f.raw)
		}
		if n := w.counter(w.metrics.limited); n != 10 {
			t.Errorf("%v refusals are counted", n)
		}
	})
}

func TestClientThatIgnoresRefusalsIsClosed(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Limits.Commands = 0.001 })
	c, _ := w.connect("ann")
	c.say(`{"t":"read_all","id":0}`)
	c.hear()
	for id := range maxRefused {
		c.say(fmt.Sprintf(`{"t":"dance","id":%d}`, id)) // no more than a command
		if f := c.hear(); f.Code != "rate_limited" {
			t.Fatalf("frame %d is answered with %s", id, f.raw)
		}
	}
	c.say(`{"t":"read_all","id":"the last"}`)
	if code, reason, bye := c.farewell(); code != CloseRateLimited || reason != "too many commands" || bye.ReconnectMS <= 0 {
		t.Errorf("closed with %d %q after %s", code, reason, bye.raw)
	}
}

func TestHTTPCommandsOverTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedWorld(t, func(c *Config) { c.Limits.Commands = 0.2 })
		post := func(user string) reply {
			return w.request(http.MethodPost, "/v1/commands", user, `{"t":"read_all","id":1}`)
		}
		for range 2 {
			checkProblem(t, post("ann"), http.StatusOK, "")
		}
		time.Sleep(100 * time.Millisecond) // after none, five seconds would be rounded up
		res := post("ann")
		checkProblem(t, res, http.StatusTooManyRequests, "too many commands; try again")
		if after := res.header.Get("Retry-After"); after != "5" {
			t.Errorf("Retry-After is %q", after)
		}
		checkProblem(t, post("bob"), http.StatusOK, "") // who has done nothing
	})
}

// While tokens cannot be verified, open connections stay.
func TestFreshTokenThatCannotBeChecked(t *testing.T) {
	w := newWorld(t, nil)
	c, _ := w.connect("ann")
	c.say(`{"t":"auth","id":1,"token":"away"}`)
	if f := c.hear(); f.T != "error" || f.Code != "unavailable" || f.RetryMS < 1000 {
		t.Errorf("the answer is %s", f.raw)
	}
	c.say(`{"t":"auth","id":2,"token":"ann/2h"}`)
	if f := c.hear(); f.T != "ok" {
		t.Errorf("then %s", f.raw)
	}
	newcomer := w.dial(nil, Protocol, "bearer.away")
	if code, _, bye := newcomer.farewell(); code != CloseResync || bye.ReconnectMS < 1000 {
		t.Errorf("a newcomer is closed with %d after %s", code, bye.raw)
	}
}

func TestLimiters(t *testing.T) {
	now := time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)
	ls := newLimiters[int](2)
	take := func(key, times int) (wait time.Duration) {
		for range times {
			wait = ls.take(key, now)
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
	// A key is remembered until a new limiter would equal its old one.
	now = now.Add(9 * time.Second)
	if wait := take(1, 19); wait == 0 {
		t.Error("after nine seconds there was more than eighteen")
	}
	now = now.Add(9 * time.Second)
	take(3, 1)
	if wait := take(1, 19); wait == 0 {
		t.Error("then again")
	}
	// Idle keys are forgotten.
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
	ls := newLimiters[int](1)
	for key := range 3 * maxLimiters {
		ls.take(key, now)
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

// Pings are answered and pongs accepted up to a rate.
func TestSignsOfLifeOverTheRate(t *testing.T) {
	frame := func(text string) func(*client) error {
		return func(c *client) error {
			return c.conn.Write(c.t.Context(), websocket.MessageText, []byte(text))
		}
	}
	for name, say := range map[string]func(*client) error{
		"ping frames":    frame(`{"t":"ping"}`),
		"pong frames":    frame(`{"t":"pong"}`),
		"protocol pings": func(c *client) error { return c.conn.Ping(c.t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newPipedWorld(t, nil)
				c, _ := w.connect("ann")
				ended := make(chan string, 1)
				go func() {
					code, reason, _ := c.farewell()
					ended <- fmt.Sprint(code, " ", reason)
				}()
				for i := range burstSeconds*signsPerSecond + 1 {
					if i == burstSeconds*signsPerSecond {
						time.Sleep(time.Second / signsPerSecond) // of the bubble: there is room for another
					}
					if err := say(c); err != nil {
						t.Fatalf("sign %d: %v", i, err)
					}
					synctest.Wait()
				}
				_ = say(c) // which may end with the connection
				if got := <-ended; got != "4101 too many pings and pongs" {
					t.Errorf("it ends with %s", got)
				}
			})
		})
	}
}

// A user's commands share one limit over all transports.
func TestCommandsOfAUserAreCountedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedWorld(t, func(c *Config) { c.Limits.Commands = 1 })
		for id := range burstSeconds {
			if id == 0 {
				checkProblem(t, w.request(http.MethodPost, "/v1/commands", "ann", `{"t":"read_all"}`), http.StatusOK, "")
				continue
			}
			c, _ := w.connect("ann")
			c.say(`{"t":"read_all","id":1}`)
			if f := c.hear(); f.T != "ok" {
				t.Fatalf("command %d is answered with %s", id, f.raw)
			}
		}
		c, _ := w.connect("ann")
		c.say(`{"t":"read_all","id":1}`)
		if f := c.hear(); f.Code != "rate_limited" {
			t.Errorf("one too many is answered with %s", f.raw)
		}
		checkProblem(t, w.request(http.MethodPost, "/v1/commands", "ann", `{"t":"read_all"}`), http.StatusTooManyRequests, "too many commands; try again")
		checkProblem(t, w.request(http.MethodPost, "/v1/commands", "bob", `{"t":"read_all"}`), http.StatusOK, "")
	})
}

// Input that produces no frame is limited by its bytes.
func TestFloodIsClosed(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Limits.Commands = 1 })
	c, _ := w.connect("ann")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for writer, err := c.conn.Writer(context.Background(), websocket.MessageText); err == nil; {
			_, err = writer.Write(nil) // a piece of a message without a byte
		}
	}()
	if code, reason, _ := c.farewell(); code != CloseRateLimited || reason != "too much at once" {
		t.Errorf("it ends with %d %s", code, reason)
	}
	<-ended
}
