// Package load publishes messages at a rate, and times their arrival at clients that
// are connected to badged or to centrifugo.
package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/tests/bench/contest"
)

// Load is the load of a latency measurement.
type Load struct {
	Clients       int // connected, one user each
	Conversations int // of each user, in turn
	Connections   int // of the publisher
	Rate          float64
	WarmUp        time.Duration // not counted
	Measured      time.Duration
	// Rooms makes each conversation a room, whose messages name no users.
	Rooms bool
}

// String describes the load.
func (l Load) String() string {
	return fmt.Sprintf("%.0f events/s on %d connections for %s after %s of warm-up, to %d clients",
		l.Rate, l.Connections, l.Measured, l.WarmUp, l.Clients)
}

// Message is one event of a schedule: message seq of a conversation with a single
// recipient.
type Message struct {
	// Due is the scheduled time, from the start.
	Due          time.Duration
	Client       int
	conversation string
	seq          int64
	event        []byte // CloudEvents JSON
}

// Schedule returns the events in the order of their times, and the same events every time. The times
// are a Poisson process, as of many independent senders, so several may coincide. The conversations
// take turns, so messages of one conversation are seconds apart.
func (l Load) Schedule() ([]Message, error) {
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // the same schedule every time
	turns := random.Perm(l.Clients * l.Conversations)
	var due time.Duration
	var messages []Message
	for i := 0; ; i++ {
		due += time.Duration(random.ExpFloat64() / l.Rate * float64(time.Second))
		if due >= l.WarmUp+l.Measured {
			return messages, nil
		}
		turn := turns[i%len(turns)]
		m := Message{
			Due: due, Client: turn / l.Conversations,
			conversation: ConversationOf(turn), seq: int64(i/len(turns)) + 1,
		}
		e := events.Event{
			ID: fmt.Sprintf("%s/%d", m.conversation, m.seq), Source: "bench/latency", Type: events.MessageDelivered,
			Data: events.Data{ConversationID: m.conversation, Seq: m.seq, UserIDs: []string{UserOf(m.Client)}, SenderID: "sender"},
		}
		if l.Rooms {
			e.Type, e.Data.UserIDs = events.RoomPosted, nil
		}
		var err error
		if m.event, err = e.MarshalJSON(); err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
}

// ConversationOf returns conversation i of all clients, in their order.
func ConversationOf(i int) string { return fmt.Sprintf("conversation-%06d", i) }

// UserOf returns the user of a client.
func UserOf(client int) string { return fmt.Sprintf("user-%06d", client) }

// The measures that compare the sides.
const (
	LatencyMedian = "latency p50"
	LatencyTail   = "latency p99"
)

// Observation is the outcome of a schedule.
type Observation struct {
	start time.Time
	// sent are the messages in the order of their due times. accepted is when the server had
	// accepted each, from the start.
	sent     []Message
	accepted []time.Duration
	arrivals []arrival
}

// patience is how long after the last accepted message arrivals may come; later arrivals count as lost.
// It is shorter than the interval of the gateway's reconciliation, which would hide a lost update.
const patience = 10 * time.Second

// Observe publishes messages when they are due and records their arrivals. It
// fails if a message cannot be published or a connection breaks.
func Observe(ctx context.Context, publish func(context.Context, Message) error, clients []*Client, messages []Message) (Observation, error) {
	for _, m := range messages {
		c := clients[m.Client]
		c.sent[m.conversation] = append(c.sent[m.conversation], m.Due)
	}
	listenCtx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	var listening errgroup.Group
	for _, c := range clients {
		listening.Go(func() error {
			err := c.listen(listenCtx)
			if listenCtx.Err() != nil {
				return nil // missing arrivals count as lost
			}
			return err
		})
	}
	o, err := send(ctx, publish, messages)
	if err != nil {
		giveUp()
	}
	timer := time.AfterFunc(patience, giveUp)
	defer timer.Stop()
	err = errors.Join(err, listening.Wait())
	for _, c := range clients {
		o.arrivals = append(o.arrivals, c.arrivals...)
	}
	return o, errors.Join(err, ctx.Err())
}

// send publishes messages when they are due, without waiting for earlier messages.
func send(ctx context.Context, publish func(context.Context, Message) error, messages []Message) (Observation, error) {
	o := Observation{start: time.Now(), sent: messages, accepted: make([]time.Duration, len(messages))}
	due := func(i int) time.Duration { return messages[i].Due }
	return o, Paced(ctx, len(messages), -1, due, func(ctx context.Context, i int) error {
		if err := publish(ctx, messages[i]); err != nil {
			return fmt.Errorf("publish %s/%d: %w", messages[i].conversation, messages[i].seq, err)
		}
		o.accepted[i] = time.Since(o.start)
		return nil
	})
}

// Paced calls send for each of n messages when it is due, a time from now, and returns once all
// calls have returned. If the limit of concurrent calls is not negative, a call waits for earlier
// ones. The first failure ends it.
func Paced(ctx context.Context, n, limit int, due func(i int) time.Duration, send func(ctx context.Context, i int) error) error {
	start := time.Now()
	sending, within := errgroup.WithContext(ctx)
	sending.SetLimit(limit)
	for i := range n {
		if wait.For(within, time.Until(start.Add(due(i)))) != nil {
			break
		}
		sending.Go(func() error { return send(within, i) })
	}
	return cmp.Or(sending.Wait(), ctx.Err())
}

// Measures returns the latencies of the messages due after the warm-up.
func (o Observation) Measures(warmUp time.Duration) []contest.Measure {
	var latency, accepted []float64
	for _, a := range o.arrivals {
		if a.due >= warmUp {
			latency = append(latency, contest.Milliseconds(a.at.Sub(o.start)-a.due))
		}
	}
	for i, m := range o.sent {
		if m.Due >= warmUp {
			accepted = append(accepted, contest.Milliseconds(o.accepted[i]-m.Due))
		}
	}
	slices.Sort(latency)
	slices.Sort(accepted)
	ms := func(name string, sorted []float64, p float64) contest.Measure {
		return contest.Of(name, "ms", contest.Percentile(sorted, p))
	}
	return []contest.Measure{
		ms(LatencyMedian, latency, 50),
		ms(LatencyTail, latency, 99),
		ms("latency max", latency, 100),
		ms("accepted p50", accepted, 50),
		ms("accepted p99", accepted, 99),
	}
}

// Check reports losses.
func (o Observation) Check() error {
	if lost := len(o.sent) - len(o.arrivals); lost != 0 {
		return fmt.Errorf("%d of %d messages did not arrive within %s: %w", lost, len(o.sent), patience, contest.ErrWrong)
	}
	return nil
}
