package scenarios

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/load"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
)

// The side of single whose cost is compared, and what its name ends with where
// something else differs.
const (
	compared   = "200 events/s"
	OfBaseline = ", baseline"
	OfFan      = ", centrifugo"
	withOpen   = ", 20 open transactions"
)

// single measures what most chat backends do: one event a message, over HTTP, at
// some rate. The loop is open, as in latency.
func single() contest.Scenario {
	aims := []contest.Aim{
		{Measure: transactionsMeasure, Of: compared, AtMost: 1.2},
		{Measure: load.LatencyTail, Of: compared + withOpen, Over: compared, AtMost: 1.2},
	}
	for _, rate := range []int{200, 1000} {
		aims = append(aims, contest.Aim{Measure: bothCPU, Of: rateSide(rate), Over: rateSide(rate) + OfBaseline, AtMost: 0.3})
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
		Open: openSingle,
	}
}

func openSingle(_ context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
	loadOf := func(rate int) load.Load {
		return load.Load{
			Clients: s.Pick(200, 20), Conversations: 10, Connections: 64,
			Rate: float64(s.Pick(rate, min(rate, 100))), WarmUp: min(5*time.Second, s.Duration/4), Measured: s.Duration,
		}
	}
	var sides []contest.Side
	add := func(name, says string, run func(context.Context) ([]measure.Measure, error)) {
		sides = append(sides, contest.Side{Name: name, Says: says, Run: run})
	}
	product := func(name string, single singleLoad) {
		says := fmt.Sprintf("%s; %s, %d partitions", single.load, rig.OneProcess, single.partitions)
		add(name, says, func(ctx context.Context) ([]measure.Measure, error) { return single.round(ctx, r) })
	}
	for _, rate := range []int{50, 200, 500, 1000} {
		l := loadOf(rate)
		product(rateSide(rate), singleLoad{r.Binary, l, defaultPartitions, 0})
		if s.Baseline != "" {
			product(rateSide(rate)+OfBaseline, singleLoad{s.Baseline, l, defaultPartitions, 0})
		}
		if s.Centrifugo != "" && rate >= 500 {
			add(rateSide(rate)+OfFan, l.String()+"; in memory, nothing is kept", func(ctx context.Context) ([]measure.Measure, error) {
				return centrifugoRound(ctx, r, s.Centrifugo, l)
			})
		}
		if rate == 200 {
			product(compared+withOpen, singleLoad{r.Binary, l, defaultPartitions, 20})
		}
	}
	for _, partitions := range []int{1, 16, 64} {
		product(fmt.Sprintf("%s, %d partitions", rateSide(500), partitions), singleLoad{r.Binary, loadOf(500), partitions, 0})
	}
	return contest.Of(sides...)
}

func rateSide(rate int) string { return fmt.Sprintf("%d events/s", rate) }

// defaultPartitions is the default of badged migrate up.
const defaultPartitions = 4

// What single compares beside latency.
const (
	transactionsMeasure = "transactions" // in the database
	bothCPU             = "CPU badged and Postgres"
)

// singleLoad is a load on one process.
type singleLoad struct {
	binary     string
	load       load.Load
	partitions int
	// open is how many other transactions have written and stay open.
	open int
}

func (s singleLoad) round(ctx context.Context, r *rig.Rig) (_ []measure.Measure, err error) {
	defer func(ours string) { r.Binary = ours }(r.Binary)
	r.Binary = s.binary
	messages, err := s.load.Schedule()
	if err != nil {
		return nil, err
	}
	d, err := r.Deploy(ctx, rig.OneProcess, fmt.Sprintf("--partitions=%d", s.partitions))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Stop(ctx)) }()
	clients, err := load.ConnectAll(ctx, d.Gateway, s.load.Clients)
	defer load.CloseAll(clients)
	if err != nil {
		return nil, err
	}
	a := load.NewAPI(d.API, s.load.Connections)
	defer a.Close()
	end, err := leaveOpen(ctx, r, d.Database, s.open)
	defer func() { err = errors.Join(err, end(context.WithoutCancel(ctx))) }()
	if err != nil {
		return nil, err
	}
	before, err := transactionsOf(ctx, d.Database)
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
	after, err := transactionsOf(ctx, d.Database)
	if err != nil {
		return nil, err
	}
	measures := append(o.Measures(s.load.WarmUp),
		measure.Of(transactionsMeasure, "an event", float64(after-before)/float64(len(messages))),
		measure.Of(bothCPU, "µs/event", used.Resource("CPU badged")+used.Resource("CPU Postgres")))
	return append(measures, used.Resources...), errors.Join(o.Check(), load.CheckClients(ctx, a, clients, messages))
}

// transactionsOf returns how many transactions a database has committed, also
// those that only read. The statistics may lack the last second.
func transactionsOf(ctx context.Context, url string) (n int64, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, fmt.Errorf("connect: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	if err := conn.QueryRow(ctx, `SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`).Scan(&n); err != nil {
		return 0, fmt.Errorf("count transactions: %w", err)
	}
	return n, nil
}

// leaveOpen opens transactions that have written and do nothing more, every
// second one in another database of the same server. end ends them.
func leaveOpen(ctx context.Context, r *rig.Rig, url string, n int) (end func(context.Context) error, err error) {
	var conns []*pgx.Conn
	end = func(ctx context.Context) error {
		var errs []error
		for _, c := range conns {
			errs = append(errs, c.Close(ctx))
		}
		return errors.Join(errs...)
	}
	for i := range n {
		database := url
		if i%2 == 1 {
			database = r.Postgres.URL()
		}
		conn, err := pgx.Connect(ctx, database)
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

// centrifugoRound measures a load on centrifugo, as singleLoad.round does on badged.
func centrifugoRound(ctx context.Context, r *rig.Rig, binary string, l load.Load) (_ []measure.Measure, err error) {
	messages, err := l.Schedule()
	if err != nil {
		return nil, err
	}
	server, err := load.StartCentrifugo(ctx, binary, r.Dir, l.Connections)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	clients, err := server.ConnectAll(ctx, l.Clients)
	defer load.CloseAll(clients)
	if err != nil {
		return nil, err
	}
	var o load.Observation
	used, err := r.Meter(ctx, func(ctx context.Context) (int, error) {
		o, err = load.Observe(ctx, server.Publish, clients, messages)
		return len(messages), err
	})
	if err != nil {
		return nil, err
	}
	return append(o.Measures(l.WarmUp), used.Resources...), o.Check()
}
