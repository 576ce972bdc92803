package pubsub_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/badged/badged/pubsub"
)

// broker is what a message broker's client library offers, such as that of
// NATS.
type broker interface {
	// Publish sends a message to every subscriber of every process, in order.
	Publish(ctx context.Context, subject string, message []byte) error
	// Subscribe calls receive for each message, and reconnected when messages
	// may have been lost.
	Subscribe(subject string, receive func(message []byte), reconnected func()) (unsubscribe func(), err error)
}

// brokerBus is a [pubsub.Bus] over a broker. Each process receives every update; its Memory
// passes on the updates of the users that it has joined.
type brokerBus struct {
	*pubsub.Memory
	broker      broker
	unsubscribe func()
	closed      atomic.Bool
}

// message is sent over the broker.
type message struct {
	Users []pubsub.Update     `json:"users,omitempty"`
	Rooms []pubsub.RoomUpdate `json:"rooms,omitempty"`
	Wakes []int               `json:"wakes,omitempty"`
}

const subject = "badged"

func newBrokerBus(b broker) (*brokerBus, error) {
	bus := &brokerBus{Memory: pubsub.NewMemory(), broker: b}
	var err error
	bus.unsubscribe, err = b.Subscribe(subject, bus.receive, bus.Gap)
	return bus, err
}

// receive fails only while the bus is being closed.
func (b *brokerBus) receive(payload []byte) {
	var m message
	if json.Unmarshal(payload, &m) != nil {
		return // not from a brokerBus
	}
	_ = b.Memory.Publish(context.Background(), m.Users, m.Rooms)
	_ = b.Memory.Wake(context.Background(), m.Wakes)
}

// Publish implements [pubsub.Bus].
func (b *brokerBus) Publish(ctx context.Context, users []pubsub.Update, rooms []pubsub.RoomUpdate) error {
	return b.send(ctx, message{Users: users, Rooms: rooms})
}

// Wake implements [pubsub.Bus].
func (b *brokerBus) Wake(ctx context.Context, partitions []int) error {
	return b.send(ctx, message{Wakes: partitions})
}

func (b *brokerBus) send(ctx context.Context, m message) error {
	if b.closed.Load() {
		return pubsub.ErrClosed
	}
	payload, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return b.broker.Publish(ctx, subject, payload)
}

// HasSubscribers implements [pubsub.Bus]. Other processes may have joined the
// address.
func (b *brokerBus) HasSubscribers(pubsub.Address) bool { return true }

// Close implements [pubsub.Bus].
func (b *brokerBus) Close() error {
	if b.closed.CompareAndSwap(false, true) {
		b.unsubscribe()
	}
	return b.Memory.Close()
}

// printer is a [pubsub.Handler].
type printer struct{ done chan struct{} }

func (p printer) HandleUpdate(u *pubsub.Update) {
	fmt.Println(u.UserID, "has", u.Total)
	close(p.done)
}

func (printer) HandleRoom(*pubsub.RoomUpdate) {}

func (printer) HandleGap() {}

// A bus over a message broker. Test that your bus keeps the contract with pubsubtest.Run.
func ExampleBus() {
	bus, err := newBrokerBus(new(localBroker))
	if err != nil {
		panic(err)
	}
	defer bus.Close()

	ctx := context.Background()
	p := printer{make(chan struct{})}
	gateway, err := bus.Subscribe(p)
	if err != nil {
		panic(err)
	}
	ada := pubsub.Address{ID: "ada", Partition: 3}
	if err := gateway.Join(ctx, ada); err != nil {
		panic(err)
	}
	update := pubsub.Update{Badge: pubsub.Badge{UserID: ada.ID, Numbers: pubsub.Numbers{Total: 7}}, Partition: ada.Partition}
	if err := bus.Publish(ctx, []pubsub.Update{update}, nil); err != nil {
		panic(err)
	}
	<-p.done
	// Output: ada has 7
}
