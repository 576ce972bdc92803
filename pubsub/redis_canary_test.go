package pubsub_test

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/badged/badged/pubsub"
	"github.com/badged/badged/pubsub/pubsubtest"
)

// deafWriter passes on what Redis sends to one client. When deaf is set, the next writer that
// gets a message to a subscriber drops it and all later ones. Redis writes each of the few
// messages here separately.
type deafWriter struct {
	io.Writer
	deaf *atomic.Bool // makes the next connection that gets a message deaf
	is   bool         // this connection is deaf
}

func (w *deafWriter) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("$7\r\nmessage\r\n")) {
		w.is = w.is || w.deaf.CompareAndSwap(true, false)
		if w.is {
			return len(b), nil
		}
	}
	return w.Writer.Write(b)
}

// A connection that answers pings but delivers no messages is replaced, and
// the gap is reported.
func TestRedisConnectionThatWentDeaf(t *testing.T) {
	srv := startRedis(t)
	var deaf atomic.Bool
	addr := proxy(t, srv, nil, nil, func(client, _ net.Conn) io.Writer { return &deafWriter{Writer: client, deaf: &deaf} })
	bus := newRedis(t, pubsub.RedisConfig{
		URL: strings.Replace(srv.URL(), srv.Addr(), addr, 1) + patient,
		// Longer than a message takes to arrive on a busy machine.
		PingInterval: 200 * time.Millisecond, PongTimeout: pubsubtest.Patience,
	})
	u := usersOf(1)[0]
	_, r := subscribe(t, bus, u)
	gaps := r.Gaps()
	if !bus.Connected() {
		t.Error("a bus that has joined a user is not connected")
	}
	deaf.Store(true) // from the next canary on, for one connection
	r.AwaitGaps(t, gaps+1)
	if stats := bus.Stats(); stats.CanariesMissed < 2 || stats.Reconnects != 1 {
		t.Errorf("after a connection that went deaf: %+v", stats)
	}
	publish(t, bus, pubsubtest.NewUpdate(u, 7))
	r.AwaitVersion(t, u, 7)
}
