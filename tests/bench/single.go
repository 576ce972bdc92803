package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// single measures what most chat backends do: one event a message, over HTTP, at
// some rate. The loop is open, as in latency.
func single() scenario {
	return scenario{
		name: "single",
		says: "single events over HTTP at rates of chat backends: processor time an event, and the time to the frame",
		main: latencyMedian,
		aims: []aim{
			{Measure: transactionsMeasure, Of: singleSide(200, defaultPartitions), AtMost: 1.2},
		},
		open: func(_ context.Context, r *rig, s scale) (*contest, error) {
			var sides []side
			add := func(name, binary string, rate, partitions int) {
				l := load{
					clients: s.pick(200, 20), conversations: 10, connections: 64,
					rate: float64(s.pick(rate, min(rate, 100))), warmUp: min(5*time.Second, s.duration/4), measured: s.duration,
				}
				sides = append(sides, side{name, fmt.Sprintf("%s; %s, %d partitions", l, oneProcess, partitions), func(ctx context.Context) ([]measure, error) {
					defer func(ours string) { r.binary = ours }(r.binary)
					r.binary = binary
					return singleRound(ctx, r, l, partitions)
				}})
			}
			for _, rate := range []int{50, 200, 500, 1000} {
				add(singleSide(rate, defaultPartitions), r.binary, rate, defaultPartitions)
				if s.baseline != "" {
					add("baseline, "+singleSide(rate, defaultPartitions), s.baseline, rate, defaultPartitions)
				}
			}
			for _, partitions := range []int{1, 4, 64} {
				add(singleSide(500, partitions), r.binary, 500, partitions)
			}
			return contestOf(sides...)
		},
	}
}

// defaultPartitions is the default of badged migrate up.
const defaultPartitions = 16

// transactionsMeasure counts the transactions in the database.
const transactionsMeasure = "transactions"

func singleSide(rate, partitions int) string {
	if partitions == defaultPartitions {
		return fmt.Sprintf("%d events/s", rate)
	}
	return fmt.Sprintf("%d events/s, %d partitions", rate, partitions)
}

func singleRound(ctx context.Context, r *rig, l load, partitions int) (_ []measure, err error) {
	messages, err := l.schedule()
	if err != nil {
		return nil, err
	}
	d, err := r.deploy(ctx, oneProcess, fmt.Sprintf("--partitions=%d", partitions))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.stop(ctx)) }()
	clients, err := connectAll(ctx, d.gateway, l.clients)
	defer func() {
		for _, c := range clients {
			_ = c.conn.CloseNow() // an error means that it is already closed
		}
	}()
	if err != nil {
		return nil, err
	}
	a := newAPI(d.api, l.connections)
	defer a.close()
	before, err := transactionsOf(ctx, d.database)
	if err != nil {
		return nil, err
	}
	var o observation
	used, err := r.meter(ctx, func(ctx context.Context) (int, error) {
		o, err = observe(ctx, a.publish, clients, messages)
		return len(messages), err
	})
	if err != nil {
		return nil, err
	}
	after, err := transactionsOf(ctx, d.database)
	if err != nil {
		return nil, err
	}
	measures := append(o.measures(l.warmUp), measure{transactionsMeasure, "an event", float64(after-before) / float64(len(messages))})
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
