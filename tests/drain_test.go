package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A stopping server reports that it is not ready, but still serves clients whose connections it
// has not closed. Confirmed commands are stored, and every client gets the events published
// meanwhile, at the latest after it reconnects.
func TestDrainLosesNothing(t *testing.T) {
	t.Parallel()
	const n = 6
	database := newDatabase(t)
	before := serve(t, database, "--drain-duration=10m") // so that only the first client is closed during the test
	var users []string
	for i := range n {
		users = append(users, fmt.Sprintf("u%d", i))
	}
	ids := `"` + strings.Join(users, `","`) + `"`
	publish(t, before, delivered("room", 1, ids))
	var clients []*client
	for _, user := range users {
		c := connect(t, before.url, user)
		c.awaitTotal(1)
		clients = append(clients, c)
	}

	before.signal(syscall.SIGTERM)
	body := ""
	for deadline := time.Now().Add(patience); !strings.Contains(body, `"draining"`); {
		var status int
		status, _, body = request(t, http.MethodGet, before.url+"/readyz", "", "")
		if draining := strings.Contains(body, `"draining"`); draining && status != http.StatusServiceUnavailable || time.Now().After(deadline) {
			t.Fatalf("the server is ready still: %d %s", status, body)
		}
	}
	gone := firstToEnd(clients) // the first is closed at once
	if bye := gone.bye(); bye == nil || bye.Code != float64(4200) || bye.ReconnectMS < 0 || bye.ReconnectMS > 5000 {
		t.Errorf("the goodbye is %+v", bye)
	}
	publish(t, before, delivered("room", 2, ids))
	for _, c := range clients {
		if c != gone {
			c.say(`{"t":"read","id":1,"conversation_id":"room","up_to_seq":1}`)
			c.await("an answer", func() bool { return c.answers[1] == "ok" })
		}
		c.close()
	}
	<-before.done // before the drain duration has passed, since no client is left
	if before.err != nil {
		t.Errorf("the server ended with %v", before.err)
	}

	after := serve(t, database)
	for _, c := range clients {
		want := int64(1)
		if c == gone {
			want = 2
		}
		c.resume(after.url).awaitTotal(want)
	}
	must(t, "verify", "--database-url="+database)
}

// firstToEnd returns the client whose connection ends first.
func firstToEnd(clients []*client) *client {
	ended := make(chan *client, len(clients)) // buffered, since the other clients end only with the test
	for _, c := range clients {
		go func() {
			<-c.ended
			ended <- c
		}()
	}
	return <-ended
}

// goodbye is the bye frame before the end of a connection.
type goodbye struct {
	Code        any   `json:"code"`
	ReconnectMS int64 `json:"reconnect_ms"`
}

// bye returns the goodbye that a client has received, or nil. The caller must have locked the
// client, unless its connection has ended.
func (c *client) bye() *goodbye {
	for _, f := range c.frames {
		if strings.HasPrefix(f, `{"t":"bye"`) {
			var b goodbye
			if err := json.Unmarshal([]byte(f), &b); err != nil {
				c.t.Errorf("%s: %v", f, err)
			}
			return &b
		}
	}
	return nil
}
