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
	"github.com/badged/badged/tests/bench/ways"
)

// Rows per message.
const (
	rowsInLog   = "rows of the log"
	rowsWritten = "rows written in all"
)

// smallLoad is a rate of single messages to rooms of equal size, in turns. No user is in
// two of them, and the first member of each is connected.
type smallLoad struct {
	members, partitions, shards int
	rate                        int
}

func (l smallLoad) name() string {
	return fmt.Sprintf("%d members, %d partitions, %s, %d messages/s", l.members, l.partitions, shardsOf(l.shards), l.rate)
}

func shardsOf(n int) string {
	if n == 1 {
		return "1 shard"
	}
	return fmt.Sprintf("%d shards", n)
}

// smallLoads returns the compared loads: all sizes at one rate, and other rates for one size.
func smallLoads(s contest.Scale) (all []smallLoad) {
	const rate, another = 50, 200
	if s.Small {
		return []smallLoad{{2, 4, 1, another}, {5, 4, 3, another}}
	}
	for _, shards := range []int{1, 3} {
		for _, partitions := range []int{4, 16, 64} {
			for _, members := range []int{2, 5, 20, 100} {
				all = append(all, smallLoad{members, partitions, shards, rate})
			}
		}
	}
	for _, rate := range []int{10, another} {
		all = append(all, smallLoad{5, 16, 1, rate})
	}
	return all
}

// smallRooms measures what a message costs in rooms with few members, where writing to
// each partition does not pay.
func smallRooms() contest.Scenario {
	scenario := contest.Scenario{
		Name: "small-rooms",
		Says: "single messages over HTTP to rooms with few members: processor time, write-ahead log and rows a message, and the time to the frame",
		Main: bothCPU,
		Open: func(_ context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			var sides []contest.Side
			for _, l := range smallLoads(s) {
				add := func(name, binary string) {
					sides = append(sides, contest.Side{Name: name, Says: l.load(s).String(), Run: func(ctx context.Context) ([]measure.Measure, error) {
						return l.round(ctx, r, binary, s)
					}})
				}
				add(l.name(), r.Binary)
				if s.Baseline != "" {
					add(l.name()+OfBaseline, s.Baseline)
				}
			}
			return contest.Of(sides...)
		},
	}
	for _, l := range smallLoads(contest.Scale{}) {
		scenario.Aims = append(scenario.Aims, contest.Aim{Measure: bothCPU, Of: l.name(), Over: l.name() + OfBaseline, AtMost: 1.5})
	}
	return scenario
}

func (l smallLoad) load(s contest.Scale) load.Load {
	return load.Load{
		Clients: s.Pick(100, 10), Conversations: 1, Connections: 64, Rooms: true,
		Rate: float64(l.rate), WarmUp: min(2*time.Second, s.Duration/4), Measured: s.Duration,
	}
}

func (l smallLoad) round(ctx context.Context, r *rig.Rig, binary string, s contest.Scale) (_ []measure.Measure, err error) {
	defer func(ours string) { r.Binary = ours }(r.Binary)
	r.Binary = binary
	of := l.load(s)
	messages, err := of.Schedule()
	if err != nil {
		return nil, err
	}
	d, err := r.DeployShards(ctx, l.shards, l.partitions)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Stop(ctx)) }()
	clients, err := load.ConnectAll(ctx, d.Gateway, of.Clients)
	defer load.CloseAll(clients)
	if err != nil {
		return nil, err
	}
	a := load.NewAPI(d.API, of.Connections)
	defer a.Close()
	if err := l.join(ctx, a, of.Clients); err != nil {
		return nil, err
	}
	before, err := rowsOf(ctx, d.Shards)
	if err != nil {
		return nil, err
	}
	var o load.Observation
	used, err := r.Meter(ctx, func(ctx context.Context) (int, error) {
		o, err = load.Observe(ctx, a.Deliver, clients, messages)
		return len(messages), err
	})
	if err != nil {
		return nil, err
	}
	after, err := rowsOf(ctx, d.Shards)
	if err != nil {
		return nil, err
	}
	n := float64(len(messages))
	measures := append([]measure.Measure{
		measure.Of(bothCPU, "µs/message", used.Resource("CPU badged")+used.Resource("CPU Postgres")),
		measure.Of(rowsInLog, "a message", float64(after.log-before.log)/n),
		measure.Of(rowsWritten, "a message", float64(after.all-before.all)/n),
	}, o.Measures(of.WarmUp)...)
	return append(measures, used.Resources...), errors.Join(o.Check(), load.CheckClients(ctx, a, clients, messages))
}

// join lets the members join the rooms, in calls of 100 events.
func (l smallLoad) join(ctx context.Context, a *load.API, rooms int) error {
	var joins []events.Event
	for room := range rooms {
		users := []string{load.UserOf(room)}
		for i := 1; i < l.members; i++ {
			users = append(users, fmt.Sprintf("member-%d-of-%d", i, room))
		}
		joins = append(joins, events.Event{
			ID: fmt.Sprintf("join-%d", room), Source: ways.EventSource, Type: events.RoomJoined,
			Data: events.Data{ConversationID: load.ConversationOf(room), UserIDs: users},
		})
	}
	position, err := publishAll(ctx, a, joins)
	if err != nil {
		return err
	}
	query := fmt.Sprintf(`{"user_ids":[%q],"at_least":%q,"timeout":"10s"}`, load.UserOf(0), position)
	_, err = a.Do(ctx, "POST", "/v1/badges/query", "application/json", []byte(query), 200)
	return err
}

// writtenRows are rows inserted, updated and deleted since the databases were made.
type writtenRows struct{ log, all int64 }

// writtenRowsSQL reads the statistics of Postgres, which may lack the last second.
const writtenRowsSQL = `SELECT coalesce(sum(n_tup_ins) FILTER (WHERE relname ~ '^events_p[0-9]+_r[0-9]+$'), 0)::bigint, sum(n_tup_ins + n_tup_upd + n_tup_del)::bigint
FROM pg_stat_user_tables WHERE schemaname = 'badged'`

func rowsOf(ctx context.Context, urls []string) (sum writtenRows, err error) {
	for _, url := range urls {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return sum, fmt.Errorf("connect: %w", err)
		}
		var rows writtenRows
		err = conn.QueryRow(ctx, writtenRowsSQL).Scan(&rows.log, &rows.all)
		if err := errors.Join(err, conn.Close(ctx)); err != nil {
			return sum, fmt.Errorf("count rows: %w", err)
		}
		sum.log, sum.all = sum.log+rows.log, sum.all+rows.all
	}
	return sum, nil
}
