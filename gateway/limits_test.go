package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/internal/base/limit"
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
		"in all":         {Limits{Connections: 2}, []string{"bob", "cid"}, protocol.CloseCapacity, 503, "the server has reached its limit of connections"},
		"of a user":      {Limits{UserConnections: 2}, []string{"ann", "bob", "ann"}, protocol.CloseUserConnections, 429, "you have reached the limit of connections of a user"},
		"of one address": {Limits{Connects: 0.04}, []string{"bob"}, protocol.CloseRateLimited, 429, "too many connections come from your address"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.Limits = tc.limits })
			var here []*client
			for _, user := range tc.others {
				c, _ := w.connect(user)
				here = append(here, c)
			}
			c := w.dial(ann, protocol.Subprotocol)
			if tc.code == protocol.CloseUserConnections { // sent after the hello
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
			if tc.code == protocol.CloseRateLimited {
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
		w.dial(nil, protocol.Subprotocol)
	}
	w.connect("ann")
	c := w.dial(nil, protocol.Subprotocol, "bearer.bob")
	if code, _, _ := c.farewell(); code != protocol.CloseCapacity {
		t.Errorf("one more is closed with %d", code)
	}
}

func TestStreamsCountAsConnections(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Limits.UserConnections = 1 })
	w.listen("ann", "").mustHear()
	c := w.greet("ann")
	if code, _, _ := c.farewell(); code != protocol.CloseUserConnections {
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
	for id := range limit.MaxRefused {
		c.say(fmt.Sprintf(`{"t":"dance","id":%d}`, id)) // no more than a command
		if f := c.hear(); f.Code != "rate_limited" {
			t.Fatalf("frame %d is answered with %s", id, f.raw)
		}
	}
	c.say(`{"t":"read_all","id":"the last"}`)
	if code, reason, bye := c.farewell(); code != protocol.CloseRateLimited || reason != "too many commands" || bye.ReconnectMS <= 0 {
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
	newcomer := w.dial(nil, protocol.Subprotocol, "bearer.away")
	if code, _, bye := newcomer.farewell(); code != protocol.CloseResync || bye.ReconnectMS < 1000 {
		t.Errorf("a newcomer is closed with %d after %s", code, bye.raw)
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
				for i := range limit.BurstSeconds*signsPerSecond + 1 {
					if i == limit.BurstSeconds*signsPerSecond {
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
		for id := range limit.BurstSeconds {
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
	if code, reason, _ := c.farewell(); code != protocol.CloseRateLimited || reason != "the client sends too much data" {
		t.Errorf("it ends with %d %s", code, reason)
	}
	<-ended
}
