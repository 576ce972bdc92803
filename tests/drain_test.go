package tests

import (
	"net/http"
	"syscall"
	"testing"
)

// A stopping server reports that it is not ready, but still serves clients whose connections it
// has not closed. Confirmed commands are stored, and every client gets the events published
// meanwhile, at the latest after it reconnects.
func TestDrainLosesNothing(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	before := serve(t, database, "--drain-duration=10m") // so that only the first client is closed during the test
	users, ids := users(6)
	publish(t, before, delivered("room", 1, ids))
	var clients []*client
	for _, user := range users {
		c := connect(t, before.url, user)
		c.awaitTotal(1)
		clients = append(clients, c)
	}

	before.signal(syscall.SIGTERM)
	before.awaitAnswer(http.MethodGet, "/readyz", "", http.StatusServiceUnavailable, `"draining"`)
	gone := firstToEnd(clients) // the first is closed at once
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
