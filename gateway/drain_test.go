package gateway

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/badged/badged/gateway/protocol"
)

// Connections are closed one after another, and each is served until then.
func TestDrainSpreadsCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10
		w := newPipedWorld(t, func(c *Config) {
			c.DrainDuration = n * time.Second
		})
		clients := map[*client]string{}
		for i := range n {
			user := fmt.Sprintf("u%d", i)
			c, _ := w.connect(user)
			clients[c] = user
		}
		began := time.Now()
		stopped := make(chan struct{})
		go func() { w.stop(); close(stopped) }()
		synctest.Wait()

		type leaving struct {
			after time.Duration
			bye   frame
		}
		left := make(chan leaving, n)
		for c := range clients {
			go func() {
				_, _, bye := c.farewell()
				left <- leaving{time.Since(began), bye}
			}()
		}
		for i := range n {
			l := <-left
			if want := time.Duration(i) * time.Second; l.after < want || l.after > want+drainStep {
				t.Errorf("connection %d was closed after %v", i, l.after)
			}
			if l.bye.Code != float64(protocol.CloseDraining) || l.bye.ReconnectMS > w.gateway.cfg.ReconnectSpread.Milliseconds() {
				t.Errorf("with %s", l.bye.raw)
			}
		}
		<-stopped
		if took := time.Since(began); took > n*time.Second {
			t.Errorf("draining took %v", took)
		}
		if connections, users := w.counter(w.metrics.connections), w.gateway.hub.countUsers(); connections != 0 || users != 0 {
			t.Errorf("%v connections and %d users in the hub are left", connections, users)
		}
	})
}

// While draining, open connections get updates and can send commands, and new connections are
// refused. Draining ends early when the last client disconnects.
func TestDrainServesOpenConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedWorld(t, func(c *Config) {
			c.DrainDuration = time.Hour
			c.ReconcileInterval = 100 * time.Millisecond
		})
		w.tables.commit("ann", "c1", 1)
		type heard struct {
			by *client
			frame
		}
		frames := make(chan heard)
		var clients []*client
		for range 2 {
			c, _ := w.connect("ann")
			clients = append(clients, c)
			go func() {
				for f, err := c.listen(); err == nil; f, err = c.listen() {
					frames <- heard{c, f}
				}
			}()
		}
		began := time.Now()
		stopped := make(chan struct{})
		go func() { w.stop(); close(stopped) }()
		gone := <-frames
		if gone.T != "bye" {
			t.Fatalf("heard %s", gone.raw)
		}
		here := clients[0]
		if here == gone.by {
			here = clients[1]
		}

		w.bus.setLose(true)
		w.send("ann", "c1", 2)
		if f := <-frames; f.by != here || f.unread("c1") != 2 {
			t.Errorf("what the bus has lost: %s", f.raw)
		}
		here.say(`{"t":"read_all","id":1}`)
		if f := <-frames; f.by != here || f.T != "ok" {
			t.Errorf("the answer is %s", f.raw)
		}
		newcomer := w.dial(nil, protocol.Subprotocol)
		if code, _, bye := newcomer.farewell(); code != protocol.CloseDraining || bye.ReconnectMS == 0 {
			t.Errorf("a newcomer is closed with %d after %s", code, bye.raw)
		}
		_ = here.conn.CloseNow()
		<-stopped
		if took := time.Since(began); took > time.Minute {
			t.Errorf("draining took %v", took)
		}
	})
}
