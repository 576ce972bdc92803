package tests

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A client that floods the server is closed with a code that says so, whatever
// it sends, including input that makes no frames.
func TestFloods(t *testing.T) {
	p := gatewayAlone(t)
	jwt := token(t, "ann")
	before := residue(t, p)
	t.Run("floods", func(t *testing.T) {
		for name, flood := range map[string]struct{ first, then []byte }{
			"pong frames":            {nil, masked(fin|opText, `{"t":"pong"}`)},
			"ping frames":            {nil, masked(fin|opText, `{"t":"ping"}`)},
			"commands":               {nil, masked(fin|opText, `{"t":"dance"}`)},
			"protocol pongs":         {nil, masked(fin|opPong, "")},
			"protocol pings":         {nil, masked(fin|opPing, "")},
			"pongs within a message": {masked(opText, `{"t":`), masked(fin|opPong, "")},
			"empty fragments":        {masked(opText, ""), masked(opContinuation, "")},
		} {
			t.Run(name, func(t *testing.T) {
				c := dialRaw(t, p)
				c.greet(jwt)
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					many := bytes.Repeat(flood.then, 1000)
					for _, err := c.conn.Write(flood.first); err == nil; {
						_, err = c.conn.Write(many)
					}
				}()
				// Unread answers end the connection too, perhaps earlier.
				if got := c.awaitClose(); got != 4101 && (name != "ping frames" && name != "commands" || got != 4103) {
					t.Errorf("the server closed with %d", got)
				}
				_ = c.conn.Close()
				<-sent
			})
		}
	})
	awaitNothingLeft(t, p, before)
}

// A user's commands share one limit over all connections and HTTP.
func TestCommandsOfAUserAreCountedTogether(t *testing.T) {
	p := serve(t, newDatabase(t), "--commands-per-second=0.001") // one in all
	jwt := token(t, "ann")
	first, second := connectWith(t, p.url, jwt), connectWith(t, p.url, jwt)
	say := func(c *client, id int) string {
		c.say(fmt.Sprintf(`{"t":"read_all","id":%d}`, id))
		c.await("an answer", func() bool { return c.answers[id] != "" })
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.answers[id]
	}
	if got := say(first, 1); got != "ok" {
		t.Errorf("the first command is answered with %s", got)
	}
	for _, c := range []*client{second, first} {
		if got := say(c, 2); !strings.Contains(got, "rate_limited") {
			t.Errorf("one more is answered with %s", got)
		}
	}
	post := func(user string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/commands", strings.NewReader(`{"t":"read_all"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token(t, user))
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	if got := post("ann"); got != http.StatusTooManyRequests {
		t.Errorf("one by HTTP is answered with %d", got)
	}
	if got := post("bob"); got != http.StatusOK {
		t.Errorf("another user's is answered with %d", got)
	}
}
