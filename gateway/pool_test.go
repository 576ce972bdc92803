package gateway

import (
	"runtime"
	"testing"

	"github.com/badged/badged/gateway/internal/view"
	"github.com/badged/badged/gateway/internal/workers"
	"github.com/badged/badged/pubsub"
)

// valve is a link whose writes wait until it is open.
type valve struct{ open, written chan struct{} }

func (v valve) write(any, []byte) error {
	<-v.open
	v.written <- struct{}{}
	return nil
}

func (valve) ping() error    { return nil }
func (valve) alive() bool    { return true }
func (valve) close(*closing) {}
func (valve) cut()           {}

// Clients that do not read do not delay other clients, however many they are.
func TestSlowClientsDelayNoOthers(t *testing.T) {
	g := &Gateway{metrics: NewMetrics(nil), pool: new(workers.Pool)}
	stuck, free := make(chan struct{}), make(chan struct{})
	close(free)
	written, all := make(chan struct{}), 4*runtime.GOMAXPROCS(0)
	send := func(open chan struct{}) {
		s := newSession(g)
		s.link = valve{open, written}
		s.sender = newStateSender(s)
		s.busy = false
		s.mailbox.Synced(view.Holding{Epoch: "e1"}, 0, nil)
		s.mailbox.Offer(&pubsub.Update{Badge: pubsub.Badge{Epoch: "e1", Version: 1}})
	}
	for range all {
		send(stuck)
	}
	send(free)
	<-written // that of the one client that reads
	close(stuck)
	for range all {
		<-written
	}
}
