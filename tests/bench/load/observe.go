package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/internal/auth"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
)

// The measures that compare the sides.
const (
	LatencyMedian = "latency p50"
	LatencyTail   = "latency p99"
)

// ConnectAtOnce bounds how many clients connect at the same time.
const ConnectAtOnce = 16

// ConnectAll connects the clients of a load to a gateway.
func ConnectAll(ctx context.Context, gateway string, n int) ([]*client, error) {
	return connectEach(ctx, n, func(ctx context.Context, token string) (*client, error) {
		return Connect(ctx, gateway, token, http.DefaultClient)
	})
}

// connectEach connects a client for each user of a load, with a token. If it
// fails, it returns the connected clients with the error.
func connectEach(ctx context.Context, n int, connect func(ctx context.Context, token string) (*client, error)) ([]*client, error) {
	tokens, err := auth.NewTokens(auth.TokenConfig{Keys: []string{rig.JWTKeys}})
	if err != nil {
		return nil, err
	}
	clients := make([]*client, n)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(ConnectAtOnce)
	for i := range clients {
		group.Go(func() error {
			token, err := tokens.Sign(UserOf(i), time.Hour, time.Now())
			if err != nil {
				return err
			}
			clients[i], err = connect(groupCtx, token)
			return err
		})
	}
	err = group.Wait()
	return slices.DeleteFunc(clients, func(c *client) bool { return c == nil }), err
}

// CloseAll closes the connections of clients.
func CloseAll(clients []*client) {
	for _, c := range clients {
		_ = c.Conn.CloseNow() // an error means that it is already closed
	}
}

// Observation is the outcome of a schedule.
type Observation struct {
	Start time.Time
	// sent are the messages in the order in which they were due.
	sent []Message
	// handed is when each was handed to the HTTP client, accepted when the
	// server had taken it; both from the start.
	handed, Accepted []time.Duration
	arrivals         []arrival
}

// Patience is how long after the last message is accepted an arrival may come;
// later ones count as lost. It is shorter than the gateway's reconciliation, which
// would repair a lost update.
const Patience = 10 * time.Second

// Observe publishes messages when they are due and records their arrivals. It
// fails if a message cannot be published or a connection breaks.
func Observe(ctx context.Context, publish func(context.Context, Message) error, clients []*client, messages []Message) (Observation, error) {
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
				return nil // what is missing counts as lost
			}
			return err
		})
	}
	o, err := Send(ctx, publish, messages)
	if err != nil {
		giveUp()
	}
	timer := time.AfterFunc(Patience, giveUp)
	defer timer.Stop()
	err = errors.Join(err, listening.Wait())
	for _, c := range clients {
		o.arrivals = append(o.arrivals, c.arrivals...)
	}
	return o, errors.Join(err, ctx.Err())
}

// Send publishes messages when they are due, without waiting for those before.
func Send(ctx context.Context, publish func(context.Context, Message) error, messages []Message) (Observation, error) {
	o := Observation{
		Start: time.Now(), sent: messages,
		handed: make([]time.Duration, len(messages)), Accepted: make([]time.Duration, len(messages)),
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var sending sync.WaitGroup
	due := time.NewTimer(0)
	defer due.Stop()
	for i, m := range messages {
		due.Reset(time.Until(o.Start.Add(m.Due)))
		select {
		case <-due.C:
		case <-ctx.Done():
			sending.Wait()
			return o, context.Cause(ctx)
		}
		o.handed[i] = time.Since(o.Start)
		sending.Go(func() {
			if err := publish(ctx, m); err != nil {
				cancel(fmt.Errorf("publish %s/%d: %w", m.conversation, m.seq, err))
				return
			}
			o.Accepted[i] = time.Since(o.Start)
		})
	}
	sending.Wait()
	return o, context.Cause(ctx)
}

// Measures returns the latencies of the messages due after the warm-up.
func (o Observation) Measures(warmUp time.Duration) []measure.Measure {
	var latency, accepted, late []float64
	for _, a := range o.arrivals {
		if a.due >= warmUp {
			latency = append(latency, measure.Milliseconds(a.at.Sub(o.Start)-a.due))
		}
	}
	for i, m := range o.sent {
		if m.Due >= warmUp {
			accepted = append(accepted, measure.Milliseconds(o.Accepted[i]-m.Due))
			late = append(late, measure.Milliseconds(o.handed[i]-m.Due))
		}
	}
	slices.Sort(latency)
	slices.Sort(accepted)
	slices.Sort(late)
	ms := func(name string, sorted []float64, p float64) measure.Measure {
		return measure.Of(name, "ms", measure.Percentile(sorted, p))
	}
	return []measure.Measure{
		ms(LatencyMedian, latency, 50),
		ms("latency p90", latency, 90),
		ms(LatencyTail, latency, 99),
		ms("latency max", latency, 100),
		ms("accepted p50", accepted, 50),
		ms("accepted p99", accepted, 99),
		ms("sent late p99", late, 99),
		measure.Of("sent", "events", float64(len(accepted))),
		measure.Of("lost", "events", float64(len(o.sent)-len(o.arrivals))),
	}
}

// Check reports losses.
func (o Observation) Check() error {
	if lost := len(o.sent) - len(o.arrivals); lost != 0 {
		return fmt.Errorf("%d of %d messages did not arrive within %s: %w", lost, len(o.sent), Patience, measure.ErrWrong)
	}
	return nil
}

// CheckClients compares the final counts of clients and tables with the sent
// messages.
func CheckClients(ctx context.Context, a *API, clients []*client, messages []Message) error {
	want, held := map[string]int64{}, map[string]int64{}
	for _, m := range messages {
		want[UserOf(m.Client)]++
	}
	var users []string
	for i, c := range clients {
		users = append(users, UserOf(i))
		held[UserOf(i)] = c.total
	}
	totals, err := a.Totals(ctx, users)
	if err != nil {
		return err
	}
	if err := measure.Check(totals, want); err != nil {
		return fmt.Errorf("in the tables: %w", err)
	}
	if err := measure.Check(held, want); err != nil {
		return fmt.Errorf("on the clients: %w", err)
	}
	return nil
}
