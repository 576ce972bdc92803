package gateway

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/pubsub"
)

// Calls that arrive while the tables are read share batches of limited size, each of one
// partition, and the number of concurrent queries is limited.
func TestReadsAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newTables()
		db.hold = make(chan struct{})
		r := newReads(db, time.Hour)
		const n = 1000
		versions := make(chan string, n)
		for i := range n {
			user := fmt.Sprintf("u%d", i)
			db.commit(user, "c1", 1)
			go func() {
				state, err := r.read(t.Context(), i%2, pubsub.Held{UserID: user})
				if err != nil || state.UserID != user || state.Total != 1 {
					t.Errorf("%s is answered with %+v, %v", user, state, err)
				}
				versions <- user
			}()
			synctest.Wait()
			if len(db.queries) > readsAtOnce {
				t.Fatalf("%d queries are under way", len(db.queries))
			}
		}
		close(db.hold)
		for range n {
			<-versions
		}
		if limit := n/readBatch + readsAtOnce + 2; len(db.queries) > limit || slices.Max(db.queries) != readBatch {
			t.Errorf("%d users took queries of %d, want at most %d", n, db.queries, limit)
		}
		r.stop()
	})
}

// A batch leaves out calls that were cancelled.
func TestCancelledReadsAreLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedWorld(t, nil)
		w.tables.hold = make(chan struct{})
		for i := range readsAtOnce {
			w.greet(fmt.Sprintf("here%d", i))
			synctest.Wait()
		}
		gone := w.greet("gone")
		synctest.Wait()
		_ = gone.conn.CloseNow()
		synctest.Wait()
		close(w.tables.hold)
		synctest.Wait()
		w.tables.mu.Lock()
		defer w.tables.mu.Unlock()
		if w.tables.reads != readsAtOnce {
			t.Errorf("%d states were read for %d clients", w.tables.reads, readsAtOnce)
		}
	})
}

// greet connects with a token and says hello, and does not wait for the answer.
func (w *world) greet(token string) *client {
	w.t.Helper()
	c := w.dial(http.Header{"Authorization": {"Bearer " + token}}, protocol.Subprotocol)
	c.say(`{"t":"hello"}`)
	return c
}

// Clients above the limit are queued, and greeted when other greetings end.
func TestHerdIsGreetedInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedWorld(t, nil)
		w.tables.hold = make(chan struct{})
		var herd []*client
		for i := range greetingsAtOnce + 100 {
			herd = append(herd, w.greet(fmt.Sprintf("u%d", i)))
		}
		synctest.Wait()
		l := &w.gateway.admission
		if l.inside != greetingsAtOnce || len(l.waiting) != 100 {
			t.Errorf("%d are being greeted, %d wait", l.inside, len(l.waiting))
		}
		if workers := goroutinesOf("gateway.(*session).work"); workers != greetingsAtOnce {
			t.Errorf("%d goroutines work for clients", workers)
		}
		close(w.tables.hold)
		for _, c := range herd {
			if f := c.hear(); f.T != "snapshot" {
				t.Fatalf("heard %s", f.raw)
			}
		}
		synctest.Wait()
		if l.inside != 0 || len(l.waiting) != 0 || l.late != nil {
			t.Errorf("afterwards %d are being greeted, %d wait, timer %v", l.inside, len(l.waiting), l.late)
		}
	})
}

// Clients that are queued too long are told to reconnect, each after another delay.
func TestHerdThatWaitsTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedWorld(t, func(c *Config) { c.ReadTimeout = time.Hour })
		w.tables.hold = make(chan struct{})
		for i := range greetingsAtOnce {
			w.greet(fmt.Sprintf("u%d", i))
		}
		synctest.Wait()
		began := time.Now()
		first, goes := w.greet("first"), w.greet("goes")
		time.Sleep(greetingWait / 2)
		second := w.greet("second")
		synctest.Wait()
		_ = goes.conn.CloseNow()
		for i, c := range []*client{first, second} {
			code, _, bye := c.farewell()
			if code != protocol.CloseCapacity || bye.ReconnectMS < minRoomWait.Milliseconds() || bye.ReconnectMS > maxRoomWait.Milliseconds() {
				t.Errorf("closed with %d after %s", code, bye.raw)
			}
			if took, want := time.Since(began), greetingWait+time.Duration(i)*greetingWait/2; took != want {
				t.Errorf("it took %v, want %v", took, want)
			}
		}
		close(w.tables.hold)
		synctest.Wait()
		w.connect("late") // and is served at once
		if l := &w.gateway.admission; l.inside != 0 || len(l.waiting) != 0 {
			t.Errorf("%d are being greeted, %d wait", l.inside, len(l.waiting))
		}
	})
}

// A session that ends while it is queued, or before it enters, is not counted.
func TestAdmissionForgetsEndedSessions(t *testing.T) {
	w := newWorld(t, nil)
	var l admission
	early := newSession(w.gateway)
	l.leave(early)
	l.enter(early)
	var inside []*session
	for range greetingsAtOnce {
		s := newSession(w.gateway)
		inside = append(inside, s)
		l.enter(s)
	}
	gone, next := newSession(w.gateway), newSession(w.gateway)
	l.enter(gone)
	l.enter(next)
	l.leave(gone)
	l.leave(inside[0])
	l.leave(inside[0])
	if l.inside != greetingsAtOnce || next.place != placeInside || gone.place != placeLeft || early.place != placeLeft || l.late != nil {
		t.Errorf("%d are inside; next is at %d, gone at %d, early at %d", l.inside, next.place, gone.place, early.place)
	}
}

// Commands of many clients share a limited number of concurrent queries; a user has only one.
func TestCommandsShareQueries(t *testing.T) {
	for users, want := range map[int]int32{3 * lookupsAtOnce: lookupsAtOnce, 1: 1} {
		synctest.Test(t, func(t *testing.T) {
			w := newPipedWorld(t, nil)
			var clients []*client
			for i := range 3 * lookupsAtOnce {
				user := fmt.Sprintf("u%d", i%users)
				w.tables.commit(user, "c1", 1)
				c, _ := w.connect(user)
				clients = append(clients, c)
			}
			w.tables.hold = make(chan struct{})
			for _, c := range clients {
				c.say(`{"t":"mark_unread","id":1,"conversation_id":"c1"}`)
			}
			synctest.Wait()
			if n := w.tables.heldCalls.Load(); n != want {
				t.Errorf("%d commands of %d users ask the tables at once", n, users)
			}
			close(w.tables.hold)
			for _, c := range clients {
				if f := c.hear(); f.T != "ok" {
					t.Errorf("heard %s", f.raw)
				}
			}
		})
	}
}
