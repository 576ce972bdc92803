package gateway

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/pubsub"
)

// revoked fakes Revocations: all tokens of some users are revoked.
type revoked struct {
	mu     sync.Mutex
	users  map[string]bool
	looked chan struct{}
}

func newRevoked() *revoked {
	return &revoked{users: map[string]bool{}, looked: make(chan struct{}, 10)}
}

func (r *revoked) revoke(userID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.users[userID] = true
}

func (r *revoked) Revoked(id Identity) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.users[id.UserID]
}

func (r *revoked) Look() { r.looked <- struct{}{} }

func TestDisconnect(t *testing.T) {
	r := newRevoked()
	w := newWorld(t, func(cfg *Config) { cfg.Revocations = r })
	ann, _ := w.connect("ann")
	annToo, _ := w.connect("ann")
	bob, _ := w.connect("bob")
	cat, _ := w.connect("cat")
	stream := w.listen("ann", "")
	if f, err := stream.hear(); err != nil || f.T != "snapshot" {
		t.Fatalf("the stream begins with %s: %v", f.raw, err)
	}
	r.revoke("ann")
	w.gateway.Disconnect([]string{"bob", "dan", "ann"})
	for _, c := range []*client{ann, annToo} {
		if code, reason, bye := c.farewell(); code != protocol.CloseBadToken || reason != "bad token: it was revoked" || bye.ReconnectMS != 0 {
			t.Errorf("a revoked token: %d %s, bye %s", code, reason, bye.raw)
		}
	}
	if f, err := stream.hear(); err != nil || f.T != "bye" || !strings.Contains(f.raw, `"code":4001`) {
		t.Errorf("a stream with a revoked token gets %s: %v", f.raw, err)
	}
	if _, err := stream.hear(); !errors.Is(err, io.EOF) {
		t.Errorf("then %v", err)
	}
	if code, _, bye := bob.farewell(); code != protocol.CloseResync || bye.ReconnectMS < 1000 {
		t.Errorf("a good token: %d, bye %s", code, bye.raw)
	}
	w.send("cat", "c1", 1)
	if f := cat.hear(); f.Total != 1 {
		t.Errorf("another user gets %s", f.raw)
	}
}

// A token that is revoked between its verification and the hello is refused: at that
// moment Disconnect does not find the connection.
func TestRevokedWhileConnecting(t *testing.T) {
	r := newRevoked()
	w := newWorld(t, func(cfg *Config) { cfg.Revocations = r })
	c := w.dial(http.Header{"Authorization": {"Bearer ann"}}, protocol.Subprotocol)
	eventually(func() bool {
		w.gateway.mu.Lock()
		defer w.gateway.mu.Unlock()
		for s := range w.gateway.sessions {
			s.mu.Lock()
			verified := s.identity.UserID != ""
			s.mu.Unlock()
			if verified {
				return true
			}
		}
		return false
	})
	r.revoke("ann")
	w.gateway.Disconnect([]string{"ann"})
	c.say(`{"t":"hello"}`)
	if code, reason, _ := c.farewell(); code != protocol.CloseBadToken || reason != "bad token: it was revoked" {
		t.Errorf("it ends with %d %s", code, reason)
	}
}

// A message on the bus does not end connections by itself: it may be forged.
func TestBusOnlySaysToLook(t *testing.T) {
	r := newRevoked()
	w := newWorld(t, func(cfg *Config) { cfg.Revocations = r })
	c, _ := w.connect("ann")
	if err := w.bus.Publish(t.Context(), []pubsub.Update{{Badge: pubsub.Badge{UserID: "ann"}, Partition: 3, Ended: true}}, nil); err != nil {
		t.Fatal(err)
	}
	<-r.looked
	w.send("ann", "c1", 1)
	if f := c.hear(); f.T != "changes" || f.Total != 1 {
		t.Errorf("then the client gets %s", f.raw)
	}
}
