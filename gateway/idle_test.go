package gateway

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// goroutinesOf counts the goroutines with a name in their stack.
func goroutinesOf(name string) int {
	stacks := make([]byte, 1<<20)
	for {
		n := runtime.Stack(stacks, true)
		if n < len(stacks) {
			stacks = stacks[:n]
			break
		}
		stacks = make([]byte, 2*len(stacks))
	}
	return len(slices.DeleteFunc(strings.Split(string(stacks), "\n\n"), func(stack string) bool {
		return !strings.Contains(stack, name)
	}))
}

// openSessions returns the sessions of a gateway.
func (w *world) openSessions() []*session {
	w.gateway.mu.Lock()
	defer w.gateway.mu.Unlock()
	var all []*session
	for s := range w.gateway.sessions {
		all = append(all, s)
	}
	return all
}

// An idle client costs one goroutine, its reader, and one timer. When it disconnects, nothing of
// it remains.
func TestIdleClientCostsOneGoroutine(t *testing.T) {
	w := newWorld(t, nil)
	const n = 40
	var clients []*client
	for i := range n {
		c, _ := w.connect(fmt.Sprintf("u%d", i%(n/2))) // two of each user
		clients = append(clients, c)
	}
	readers := func() int { return goroutinesOf("gateway.(*socket).listen") }
	workers := func() int { return goroutinesOf("gateway.(*session).work") }
	eventually(func() bool { return readers() == n && workers() == 0 })

	sessions := w.openSessions()
	for i, c := range clients {
		w.send(fmt.Sprintf("u%d", i%(n/2)), "c1", 1) // a client that was busy is as cheap as before
		c.say(`{"t":"read_all","id":1}`)
	}
	idle := func(s *session) bool { // and nothing is kept of what was done
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.contexts == nil
	}
	eventually(func() bool {
		return len(w.log.recorded()) == n && workers() == 0 && readers() == n &&
			!slices.ContainsFunc(sessions, func(s *session) bool { return !idle(s) })
	})

	for _, c := range clients {
		_ = c.conn.CloseNow()
	}
	eventually(func() bool {
		return len(w.openSessions()) == 0 && goroutinesOf("gateway.(*socket)")+goroutinesOf("gateway.(*session)") == 0
	})
	w.gateway.mu.Lock()
	if n := len(w.gateway.users); n != 0 {
		t.Errorf("the gateway counts connections of %d users", n)
	}
	w.gateway.mu.Unlock()
	if left := w.gateway.hub.countUsers(); left != 0 {
		t.Errorf("the hub knows %v", left)
	}
	for _, s := range sessions {
		if s.check.Stop() || s.sender.due != nil && s.sender.due.Stop() {
			t.Error("a timer of a session that has ended was running")
		}
	}
}
