package pubsub_test

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/badged/badged/pubsub"
	"github.com/badged/badged/pubsub/pubsubtest"
)

// deafening is a proxy before a Redis. While deaf is set, it drops messages to
// subscribers and passes on everything else.
type deafening struct {
	listener net.Listener
	deaf     atomic.Bool
	mu       sync.Mutex
	conns    []net.Conn
	running  sync.WaitGroup
}

func newDeafening(t *testing.T, redis string) *deafening {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // ends with the test
	if err != nil {
		t.Fatal(err)
	}
	d := &deafening{listener: l}
	d.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", redis) //nolint:noctx // as above
			if err != nil {
				_ = conn.Close()
				continue
			}
			d.mu.Lock()
			d.conns = append(d.conns, conn, up)
			d.mu.Unlock()
			once := new(atomic.Bool) // a connection that became deaf stays deaf
			d.running.Go(func() { _, _ = io.Copy(up, conn); _ = up.Close() })
			d.running.Go(func() { _, _ = io.Copy(deafWriter{conn, d, once}, up); _ = conn.Close() })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		d.mu.Lock()
		for _, c := range d.conns {
			_ = c.Close()
		}
		d.mu.Unlock()
		d.running.Wait()
	})
	return d
}

// deafWriter drops messages to subscribers. Redis writes each of the few here
// by itself.
type deafWriter struct {
	net.Conn
	d    *deafening
	deaf *atomic.Bool
}

func (w deafWriter) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("$7\r\nmessage\r\n")) {
		if w.d.deaf.CompareAndSwap(true, false) {
			w.deaf.Store(true)
		}
		if w.deaf.Load() {
			return len(b), nil
		}
	}
	return w.Conn.Write(b)
}

// A connection that answers pings but delivers no messages is replaced, and
// the gap is reported.
func TestRedisConnectionThatWentDeaf(t *testing.T) {
	srv := startRedis(t)
	d := newDeafening(t, srv.Addr())
	bus := newRedis(t, pubsub.RedisConfig{
		URL: strings.Replace(srv.URL(), srv.Addr(), d.listener.Addr().String(), 1) + patient,
		// Longer than a message takes to arrive on a busy machine.
		PingInterval: 200 * time.Millisecond, PongTimeout: pubsubtest.Patience,
	})
	u := usersOf(1)[0]
	_, r := subscribe(t, bus, u)
	gaps := r.Gaps()
	if !bus.Connected() {
		t.Error("a bus that has joined a user is not connected")
	}
	d.deaf.Store(true) // from the next canary on, for one connection
	r.AwaitGaps(t, gaps+1)
	if stats := bus.Stats(); stats.CanariesMissed < 2 || stats.Reconnects != 1 {
		t.Errorf("after a connection that went deaf: %+v", stats)
	}
	publish(t, bus, pubsubtest.NewUpdate(u, 7))
	r.AwaitVersion(t, u, 7)
}
