package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// The side of single whose cost is compared, and what its name ends with where
// something else differs.
const (
	compared   = "200 events/s"
	ofBaseline = ", baseline"
	ofFan      = ", centrifugo"
	withOpen   = ", 20 open transactions"
)

// single measures what most chat backends do: one event a message, over HTTP, at
// some rate. The loop is open, as in latency.
func single() scenario {
	aims := []aim{
		{Measure: transactionsMeasure, Of: compared, AtMost: 1.2},
		{Measure: latencyTail, Of: compared + withOpen, Over: compared, AtMost: 1.2},
	}
	for _, rate := range []int{200, 1000} {
		aims = append(aims, aim{Measure: bothCPU, Of: rateSide(rate), Over: rateSide(rate) + ofBaseline, AtMost: 0.3})
	}
	for _, rate := range []int{500, 1000} {
		aims = append(aims,
			aim{Measure: latencyMedian, Of: rateSide(rate), Over: rateSide(rate) + ofFan, AtMost: 3},
			aim{Measure: latencyTail, Of: rateSide(rate), Over: rateSide(rate) + ofFan, AtMost: 4})
	}
	return scenario{
		name: "single",
		says: "single events over HTTP at rates of chat backends: processor time an event, and the time to the frame",
		main: latencyMedian,
		aims: aims,
		open: openSingle,
	}
}

func openSingle(_ context.Context, r *rig, s scale) (*contest, error) {
	loadOf := func(rate int) load {
		return load{
			clients: s.pick(200, 20), conversations: 10, connections: 64,
			rate: float64(s.pick(rate, min(rate, 100))), warmUp: min(5*time.Second, s.duration/4), measured: s.duration,
		}
	}
	var sides []side
	add := func(name, says string, run func(context.Context) ([]measure, error)) {
		sides = append(sides, side{name, says, run})
	}
	product := func(name string, single singleLoad) {
		says := fmt.Sprintf("%s; %s, %d partitions", single.load, oneProcess, single.partitions)
		add(name, says, func(ctx context.Context) ([]measure, error) { return single.round(ctx, r) })
	}
	for _, rate := range []int{50, 200, 500, 1000} {
		l := loadOf(rate)
		product(rateSide(rate), singleLoad{r.binary, l, defaultPartitions, 0})
		if s.baseline != "" {
			product(rateSide(rate)+ofBaseline, singleLoad{s.baseline, l, defaultPartitions, 0})
		}
		if s.centrifugo != "" && rate >= 500 {
			add(rateSide(rate)+ofFan, l.String()+"; in memory, nothing is kept", func(ctx context.Context) ([]measure, error) {
				return centrifugoRound(ctx, r, s.centrifugo, l)
			})
		}
		if rate == 200 {
			product(compared+withOpen, singleLoad{r.binary, l, defaultPartitions, 20})
		}
	}
	for _, partitions := range []int{1, 16, 64} {
		product(fmt.Sprintf("%s, %d partitions", rateSide(500), partitions), singleLoad{r.binary, loadOf(500), partitions, 0})
	}
	return contestOf(sides...)
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
	load       load
	partitions int
	// open is how many other transactions have written and stay open.
	open int
}

func (s singleLoad) round(ctx context.Context, r *rig) (_ []measure, err error) {
	defer func(ours string) { r.binary = ours }(r.binary)
	r.binary = s.binary
	messages, err := s.load.schedule()
	if err != nil {
		return nil, err
	}
	d, err := r.deploy(ctx, oneProcess, fmt.Sprintf("--partitions=%d", s.partitions))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.stop(ctx)) }()
	clients, err := connectAll(ctx, d.gateway, s.load.clients)
	defer closeAll(clients)
	if err != nil {
		return nil, err
	}
	a := newAPI(d.api, s.load.connections)
	defer a.close()
	end, err := r.leaveOpen(ctx, d.database, s.open)
	defer func() { err = errors.Join(err, end(context.WithoutCancel(ctx))) }()
	if err != nil {
		return nil, err
	}
	before, err := transactionsOf(ctx, d.database)
	if err != nil {
		return nil, err
	}
	var o observation
	used, err := r.meter(ctx, func(ctx context.Context) (int, error) {
		o, err = observe(ctx, a.deliver, clients, messages)
		return len(messages), err
	})
	if err != nil {
		return nil, err
	}
	after, err := transactionsOf(ctx, d.database)
	if err != nil {
		return nil, err
	}
	measures := append(o.measures(s.load.warmUp),
		measure{transactionsMeasure, "an event", float64(after-before) / float64(len(messages))},
		measure{bothCPU, "µs/event", used.resource("CPU badged") + used.resource("CPU Postgres")})
	return append(measures, used.resources...), errors.Join(o.check(), checkClients(ctx, a, clients, messages))
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
func (r *rig) leaveOpen(ctx context.Context, url string, n int) (end func(context.Context) error, err error) {
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
			database = r.pg.URL()
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
