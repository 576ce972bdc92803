package scenarios

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/load"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
)

const transactionsMeasure = "transactions" // in the databases

// timed is a load of single messages over HTTP. It measures the time until each message is in a frame
// of a client.
type timed struct {
	load   load.Load
	deploy rig.Deploy
	// members is how many members each room of the load has. The first member of each room is
	// connected, and no user is in two rooms.
	members int
	// open is how many other transactions have written and stay open.
	open int
}

// side returns the side of the load.
func (l timed) side(r *rig.Rig, name string) contest.Side {
	return contest.Side{Name: name, Says: fmt.Sprintf("%s; %s", l.load, l.deploy), Run: func(ctx context.Context) ([]measure.Measure, error) {
		return l.round(ctx, r)
	}}
}

func (l timed) round(ctx context.Context, r *rig.Rig) (_ []measure.Measure, err error) {
	messages, err := l.load.Schedule()
	if err != nil {
		return nil, err
	}
	d, err := r.Deploy(ctx, l.deploy)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Stop(ctx)) }()
	clients, err := load.ConnectAll(ctx, d.Gateway, l.load.Clients)
	defer load.CloseAll(clients)
	if err != nil {
		return nil, err
	}
	a := load.NewAPI(d.API, l.load.Connections)
	defer a.Close()
	if l.load.Rooms {
		if err := l.join(ctx, a); err != nil {
			return nil, err
		}
	}
	end, err := leaveOpen(ctx, []string{d.Databases[0], r.Postgres.URL()}, l.open)
	defer func() { err = errors.Join(err, end(context.WithoutCancel(ctx))) }()
	if err != nil {
		return nil, err
	}
	before, err := rig.Transactions(ctx, d.Databases)
	if err != nil {
		return nil, err
	}
	measures, err := observe(ctx, r, a.Deliver, clients, messages, l.load.WarmUp)
	if err != nil {
		return nil, err
	}
	after, err := rig.Transactions(ctx, d.Databases)
	if err != nil {
		return nil, err
	}
	measures = append(measures, measure.Of(transactionsMeasure, "an event", float64(after-before)/float64(len(messages))))
	return measures, a.CheckClients(ctx, clients, messages)
}

// observe sends the messages and returns the cost and latencies.
func observe(
	ctx context.Context, r *rig.Rig, deliver func(context.Context, load.Message) error, clients []*load.Client, messages []load.Message, warmUp time.Duration,
) ([]measure.Measure, error) {
	var o load.Observation
	used, err := r.Meter(ctx, func(ctx context.Context) (_ int, err error) {
		o, err = load.Observe(ctx, deliver, clients, messages)
		return len(messages), err
	})
	if err != nil {
		return nil, err
	}
	return append(o.Measures(warmUp), used.Resources...), o.Check()
}

// join lets the members join the rooms.
func (l timed) join(ctx context.Context, a *load.API) error {
	var joins []events.Event
	for room := range l.load.Clients {
		users := []string{load.UserOf(room)}
		for i := 1; i < l.members; i++ {
			users = append(users, fmt.Sprintf("member-%d-of-%d", i, room))
		}
		joins = append(joins, event(fmt.Sprint("join-", room), events.RoomJoined, events.Data{ConversationID: load.ConversationOf(room), UserIDs: users}))
	}
	return a.Settle(ctx, []string{load.UserOf(0)}, joins...)
}

// event returns an event of a chat backend.
func event(id string, typ events.Type, data events.Data) events.Event {
	return events.Event{ID: id, Source: "bench", Type: typ, Data: data}
}

// leaveOpen opens n transactions that write something and stay open, spread over the databases. end ends
// them.
func leaveOpen(ctx context.Context, urls []string, n int) (end func(context.Context) error, err error) {
	var conns []*pgx.Conn
	end = func(ctx context.Context) (err error) {
		for _, c := range conns {
			err = errors.Join(err, c.Close(ctx))
		}
		return err
	}
	for i := range n {
		conn, err := pgx.Connect(ctx, urls[i%len(urls)])
		if err != nil {
			return end, fmt.Errorf("connect: %w", err)
		}
		conns = append(conns, conn)
		if _, err := conn.Exec(ctx, `BEGIN; CREATE TEMPORARY TABLE written ON COMMIT DROP AS SELECT 1`); err != nil {
			return end, fmt.Errorf("leave a transaction open: %w", err)
		}
	}
	return end, nil
}

func rateSide(rate int) string { return fmt.Sprintf("%d events/s", rate) }

// single measures the usual traffic of chat backends: one event for each message, over HTTP, at a rate.
// The loop is open: a message is sent when it is due, without waiting for answers.
func single() contest.Scenario {
	const withOpen = ", 20 open transactions"
	aims := []contest.Aim{
		{Measure: transactionsMeasure, Of: rateSide(200), AtMost: 1.2},
		{Measure: load.LatencyTail, Of: rateSide(200) + withOpen, Over: rateSide(200), AtMost: 1.2},
	}
	for _, rate := range []int{200, 1000} {
		aims = append(aims, contest.Aim{Measure: rig.ProcessorTime, Of: rateSide(rate), Over: rateSide(rate) + OfBaseline, AtMost: 0.3})
	}
	for _, rate := range []int{500, 1000} {
		aims = append(aims,
			contest.Aim{Measure: load.LatencyMedian, Of: rateSide(rate), Over: rateSide(rate) + OfFan, AtMost: 3},
			contest.Aim{Measure: load.LatencyTail, Of: rateSide(rate), Over: rateSide(rate) + OfFan, AtMost: 4})
	}
	return contest.Scenario{
		Name: "single",
		Says: "single events over HTTP at rates of chat backends: processor time an event, and the time to the frame",
		Main: load.LatencyMedian,
		Aims: aims,
		Open: func(_ context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			at := func(rate int) timed {
				return timed{deploy: rig.Deploy{Partitions: defaultPartitions}, load: load.Load{
					Clients: s.Pick(200, 20), Conversations: 10, Connections: 64,
					Rate: float64(s.Pick(rate, min(rate, 100))), WarmUp: min(5*time.Second, s.Duration/4), Measured: s.Duration,
				}}
			}
			var sides []contest.Side
			for _, rate := range []int{50, 200, 500, 1000} {
				l := at(rate)
				sides = append(sides, ofBuilds(s, rateSide(rate), func(name, binary string) contest.Side {
					l.deploy.Binary = binary
					return l.side(r, name)
				})...)
				if s.Centrifugo != "" && rate >= 500 {
					sides = append(sides, contest.Side{Name: rateSide(rate) + OfFan, Says: l.load.String() + "; in memory, nothing is kept", Run: func(ctx context.Context) ([]measure.Measure, error) {
						return centrifugoRound(ctx, r, s.Centrifugo, l.load)
					}})
				}
			}
			open := at(200)
			open.open = 20
			sides = append(sides, open.side(r, rateSide(200)+withOpen))
			for _, partitions := range []int{1, 16, 64} {
				l := at(500)
				l.deploy.Partitions = partitions
				sides = append(sides, l.side(r, fmt.Sprintf("%s, %d partitions", rateSide(500), partitions)))
			}
			return contest.Of(sides...)
		},
	}
}

// centrifugoRound measures a load on centrifugo, as timed.round does on badged.
func centrifugoRound(ctx context.Context, r *rig.Rig, binary string, l load.Load) (_ []measure.Measure, err error) {
	messages, err := l.Schedule()
	if err != nil {
		return nil, err
	}
	server, err := load.StartCentrifugo(ctx, binary, l.Connections)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	clients, err := server.ConnectAll(ctx, l.Clients)
	defer load.CloseAll(clients)
	if err != nil {
		return nil, err
	}
	return observe(ctx, r, server.Deliver, clients, messages, l.WarmUp)
}

// smallRooms measures the cost of a message in rooms with few members, for which one row for each
// partition, instead of one for each member, does not pay.
func smallRooms() contest.Scenario {
	type small struct{ members, partitions, databases, rate int }
	all := []small{{5, 16, 1, 10}, {5, 16, 1, 200}}
	for _, databases := range []int{1, 3} {
		for _, partitions := range []int{4, 16, 64} {
			for _, members := range []int{2, 5, 20, 100} {
				all = append(all, small{members, partitions, databases, 50})
			}
		}
	}
	name := func(l small) string {
		return fmt.Sprintf("%d members, %d partitions, %s, %d messages/s", l.members, l.partitions, shardsOf(l.databases), l.rate)
	}
	scenario := contest.Scenario{
		Name: "small-rooms",
		Says: "single messages over HTTP to rooms with few members: processor time and write-ahead log a message, and the time to the frame",
		Main: rig.ProcessorTime,
		Open: func(_ context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			some := all
			if s.Small {
				some = []small{{2, 4, 1, 200}, {5, 4, 3, 200}}
			}
			var sides []contest.Side
			for _, l := range some {
				sides = append(sides, ofBuilds(s, name(l), func(name, binary string) contest.Side {
					return timed{members: l.members, deploy: rig.Deploy{Binary: binary, Databases: l.databases, Partitions: l.partitions}, load: load.Load{
						Clients: s.Pick(100, 10), Conversations: 1, Connections: 64, Rooms: true,
						Rate: float64(l.rate), WarmUp: min(2*time.Second, s.Duration/4), Measured: s.Duration,
					}}.side(r, name)
				})...)
			}
			return contest.Of(sides...)
		},
	}
	for _, l := range all {
		scenario.Aims = append(scenario.Aims, contest.Aim{Measure: rig.ProcessorTime, Of: name(l), Over: name(l) + OfBaseline, AtMost: 1.5})
	}
	return scenario
}
