package pubsub_test

import (
	"context"
	"sync"
	"testing"

	"github.com/badged/badged/pubsub"
	"github.com/badged/badged/pubsub/pubsubtest"
)

// localBroker is a broker of one process.
type localBroker struct {
	mu          sync.Mutex
	subscribers map[*subscriber]struct{}
}

type subscriber struct {
	receive     func([]byte)
	reconnected func()
}

// Publish implements broker.
func (b *localBroker) Publish(ctx context.Context, _ string, message []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.subscribers {
		s.receive(message)
	}
	return nil
}

// Subscribe implements broker.
func (b *localBroker) Subscribe(_ string, receive func([]byte), reconnected func()) (unsubscribe func(), err error) {
	s := &subscriber{receive, reconnected}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subscribers == nil {
		b.subscribers = map[*subscriber]struct{}{}
	}
	b.subscribers[s] = struct{}{}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.subscribers, s)
	}, nil
}

// reconnect makes every subscriber lose its connection and reconnect.
func (b *localBroker) reconnect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.subscribers {
		s.reconnected()
	}
}

// The bus of the example passes the suite.
func TestBusOverABroker(t *testing.T) {
	pubsubtest.Run(t, func(t *testing.T) pubsub.Bus {
		bus, err := newBrokerBus(new(localBroker))
		if err != nil {
			t.Fatal(err)
		}
		return bus
	})
}

// A gap of the broker calls every HandleGap, and updates arrive after it.
func TestGapOfABroker(t *testing.T) {
	broker := new(localBroker)
	bus, err := newBrokerBus(broker)
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	u := pubsub.Address{ID: "ada", Partition: 1}
	var recorders []*pubsubtest.Recorder
	for range 2 {
		r := pubsubtest.NewRecorder()
		s, err := bus.Subscribe(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Join(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		recorders = append(recorders, r)
	}
	broker.reconnect()
	if err := bus.Publish(t.Context(), []pubsub.Update{pubsubtest.NewUpdate(u, 1)}, nil); err != nil {
		t.Fatal(err)
	}
	for _, r := range recorders {
		r.AwaitGaps(t, 1)
		r.AwaitVersion(t, u, 1)
	}
}
