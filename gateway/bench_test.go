package gateway

import (
	"fmt"
	"sync"
	"testing"

	"github.com/badged/badged/gateway/internal/view"
	"github.com/badged/badged/gateway/internal/workers"
	"github.com/badged/badged/pubsub"
)

// counter is a link that counts what is written.
type counter struct{ written *sync.WaitGroup }

func (c counter) write(any, []byte) error {
	c.written.Done()
	return nil
}

func (counter) ping() error    { return nil }
func (counter) alive() bool    { return true }
func (counter) close(*closing) {}
func (counter) cut()           {}

// BenchmarkRoom sends a client a change of a room, without a connection.
func BenchmarkRoom(b *testing.B) {
	const clients = 1000
	g := &Gateway{metrics: NewMetrics(nil), pool: new(workers.Pool)}
	g.hub = newHub(&g.cfg, g.pool)
	var written sync.WaitGroup
	r := &room{address: pubsub.Address{ID: "room", Room: true}}
	g.hub.rooms.byAddress[r.address] = r
	for i := range clients {
		s := newSession(g)
		s.link = counter{&written}
		s.sender = newStateSender(s)
		s.busy = false
		state := pubsub.Snapshot{Badge: pubsub.Badge{UserID: fmt.Sprintf("user-%d", i), Epoch: "e1", Categories: map[string]pubsub.Numbers{}}}
		state.Rest = state.Badge
		state.Memberships = []pubsub.Membership{{Level: "all", Room: &pubsub.Room{ConversationID: "room", Category: "chat"}}}
		in := &interest{user: pubsub.Address{ID: state.UserID}, sessions: []*session{s}}
		m := g.hub.memberOf(in)
		m.joinRoom(r)
		m.account = view.NewAccount(&state)
		s.mailbox.Synced(view.HoldingOf(&state.Badge), 0, nil)
	}
	b.ReportAllocs()
	var seats []*seat
	n := int64(0)
	for b.Loop() {
		n++
		written.Add(clients)
		room := pubsub.Room{ConversationID: "room", Changes: n, LastSeq: n, Category: "chat", Live: pubsub.Seqs{{First: 1, Last: n}}}
		r.take(&pubsub.RoomUpdate{Room: room, Epoch: "e1", BaseChanges: n - 1}, n)
		seats = g.hub.tell(r, seats)
		written.Wait()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*clients), "ns/frame")
}
