package scenarios

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/load"
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
	return contest.Side{Name: name, Says: fmt.Sprintf("%s; %s", l.load, l.deploy), Run: func(run *contest.Run) []contest.Measure { return l.round(run, r) }}
}

func (l timed) round(run *contest.Run, r *rig.Rig) []contest.Measure {
	messages := contest.Must(l.load.Schedule())
	d := r.Deploy(run, l.deploy)
	clients := load.ConnectAll(run, l.load.Clients, func(ctx context.Context, _ int, token string) (*load.Client, error) {
		return load.ConnectNew(ctx, d.Gateway.URL, token, nil)
	})
	a := load.NewAPI(run, d.API.URL, load.Connections)
	if l.load.Rooms {
		contest.Check(a.Settle(run.Context(), []string{load.UserOf(0)}, l.joins()...))
	}
	for i := range l.open {
		leaveOpen(run, []string{d.Databases[0], r.Postgres.URL()}[i%2])
	}
	before := rig.Transactions(run, d.Databases)
	measures := l.observe(run, r, a.Deliver, clients, messages)
	transactions := float64(rig.Transactions(run, d.Databases)-before) / float64(len(messages))
	contest.Check(a.CheckClients(run.Context(), clients, messages))
	return append(measures, contest.Of(transactionsMeasure, "an event", transactions))
}

// observe sends the messages and returns the cost and latencies.
func (l timed) observe(
	run *contest.Run, r *rig.Rig, deliver func(context.Context, load.Message) error, clients []*load.Client, messages []load.Message,
) (latencies []contest.Measure) {
	used := r.Meter(run, func() int {
		latencies = contest.Must(load.Observe(run.Context(), deliver, clients, messages, l.load.WarmUp))
		return len(messages)
	})
	return append(latencies, used...)
}

// joins returns the events by which the members join the rooms.
func (l timed) joins() (joins []events.Event) {
	for room := range l.load.Clients {
		users := []string{load.UserOf(room)}
		for i := 1; i < l.members; i++ {
			users = append(users, fmt.Sprintf("member-%d-of-%d", i, room))
		}
		joins = append(joins, event(fmt.Sprint("join-", room), events.RoomJoined, events.Data{ConversationID: load.ConversationOf(room), UserIDs: users}))
	}
	return joins
}

// leaveOpen opens a transaction that writes something and stays open until the end of the run.
func leaveOpen(run *contest.Run, url string) {
	conn := contest.Must(pgx.Connect(run.Context(), url))
	run.Cleanup(conn.Close)
	contest.Must(conn.Exec(run.Context(), `BEGIN; CREATE TEMPORARY TABLE written ON COMMIT DROP AS SELECT 1`))
}

func rateSide(rate int) string { return fmt.Sprintf("%d events/s", rate) }

// single measures the usual traffic of chat backends: one event for each message, over HTTP, at a rate.
// The loop is open: a message is sent when it is due, without waiting for answers.
func single(r *rig.Rig, s contest.Scale) contest.Scenario {
	const withOpen = ", 20 open transactions"
	aims := []contest.Aim{
		{Measure: transactionsMeasure, Of: rateSide(200), AtMost: 1.2},
		{Measure: load.LatencyTail, Of: rateSide(200) + withOpen, Over: rateSide(200), AtMost: 1.2},
		{Measure: rig.ProcessorTime, Of: rateSide(200), Over: rateSide(200) + OfBaseline, AtMost: 0.3},
		{Measure: rig.ProcessorTime, Of: rateSide(1000), Over: rateSide(1000) + OfBaseline, AtMost: 0.3},
	}
	at := func(rate int) timed {
		return timed{deploy: rig.Deploy{Partitions: defaultPartitions}, load: load.Load{
			Clients: s.Pick(200, 20), Conversations: 10,
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
		if rate < 500 {
			continue
		}
		fan := rateSide(rate) + OfFan
		aims = append(aims,
			contest.Aim{Measure: load.LatencyMedian, Of: rateSide(rate), Over: fan, AtMost: 3},
			contest.Aim{Measure: load.LatencyTail, Of: rateSide(rate), Over: fan, AtMost: 4})
		if s.Centrifugo != "" {
			sides = append(sides, contest.Side{Name: fan, Says: l.load.String() + "; in memory, nothing is kept", Run: func(run *contest.Run) []contest.Measure {
				messages := contest.Must(l.load.Schedule())
				server := load.StartCentrifugo(run, s.Centrifugo, load.Connections)
				return l.observe(run, r, server.Deliver, load.ConnectAll(run, l.load.Clients, server.Connect), messages)
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
	return contest.Scenario{
		Name:  "single",
		Says:  "single events over HTTP at rates of chat backends: processor time an event, and the time to the frame",
		Main:  load.LatencyMedian,
		Aims:  aims,
		Sides: sides,
	}
}

// smallRooms measures the cost of a message in rooms with few members, for which one row for each
// partition, instead of one for each member, does not pay.
func smallRooms(r *rig.Rig, s contest.Scale) contest.Scenario {
	scenario := contest.Scenario{
		Name: "small-rooms",
		Says: "single messages over HTTP to rooms with few members: processor time and write-ahead log a message, and the time to the frame",
		Main: rig.ProcessorTime,
	}
	add := func(members, partitions, databases, rate int) {
		name := fmt.Sprintf("%d members, %d partitions, %s, %d messages/s", members, partitions, shardsOf(databases), rate)
		scenario.Sides = append(scenario.Sides, ofBuilds(s, name, func(name, binary string) contest.Side {
			return timed{members: members, deploy: rig.Deploy{Binary: binary, Databases: databases, Partitions: partitions}, load: load.Load{
				Clients: s.Pick(100, 10), Conversations: 1, Rooms: true,
				Rate: float64(rate), WarmUp: min(2*time.Second, s.Duration/4), Measured: s.Duration,
			}}.side(r, name)
		})...)
		scenario.Aims = append(scenario.Aims, contest.Aim{Measure: rig.ProcessorTime, Of: name, Over: name + OfBaseline, AtMost: 1.5})
	}
	if s.Small {
		add(2, 4, 1, 200)
		add(5, 4, 3, 200)
		return scenario
	}
	add(5, 16, 1, 10)
	add(5, 16, 1, 200)
	for _, databases := range []int{1, 3} {
		for _, partitions := range []int{4, 16, 64} {
			for _, members := range []int{2, 5, 20, 100} {
				add(members, partitions, databases, 50)
			}
		}
	}
	return scenario
}
