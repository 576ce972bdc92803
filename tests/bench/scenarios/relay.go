package scenarios

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
)

// relayScenario measures how fast a relay carries what waits in an outbox.
func relayScenario() contest.Scenario {
	const direct, sharded = "to a database", "to two shards"
	return contest.Scenario{
		Name: "relay",
		Says: "badged relay carries a full outbox to databases that nothing folds meanwhile; from its start until the outbox is empty",
		Main: "rate",
		Aims: []contest.Aim{
			{Measure: "rate", Of: direct, AtLeast: 50_000},
			{Measure: "rate", Of: sharded, AtLeast: 50_000},
		},
		Open: func(_ context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			load := relayLoad{calls: s.Pick(200, 3)}
			side := func(name, says string, shards int) contest.Side {
				return contest.Side{
					Name: name, Says: fmt.Sprintf("%s; %d,000 events for two of 2,000 users each, published in calls of 1,000", says, load.calls),
					Run: func(ctx context.Context) ([]measure.Measure, error) { return load.run(ctx, r, shards) },
				}
			}
			return contest.Of(side(direct, "--database-url", 1), side(sharded, "--shard, two databases of the same server", 2))
		},
	}
}

// relayLoad is what waits in an outbox: calls of 1,000 events.
type relayLoad struct{ calls int }

func (l relayLoad) run(ctx context.Context, r *rig.Rig, shards int) (_ []measure.Measure, err error) {
	var to []string
	for i := range shards {
		url, drop, err := r.Database(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, drop(context.WithoutCancel(ctx))) }()
		if shards == 1 {
			to = append(to, "--database-url="+url)
		} else {
			to = append(to, fmt.Sprintf("--shard=%c=%s", 'a'+i, url))
		}
	}
	if _, _, err := r.RunBinary(ctx, append([]string{"migrate", "up"}, to...)...); err != nil {
		return nil, err
	}
	outbox, drop, err := r.Database(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, drop(context.WithoutCancel(ctx))) }()
	if _, _, err := r.RunBinary(ctx, "relay", "install", "--outbox-url="+outbox); err != nil {
		return nil, err
	}
	backend, err := pgx.Connect(ctx, outbox)
	if err != nil {
		return nil, fmt.Errorf("connect as a backend: %w", err)
	}
	defer func() { err = errors.Join(err, backend.Close(context.WithoutCancel(ctx))) }()
	for n := range l.calls {
		if _, err := backend.Exec(ctx, thousandEventsSQL, n+1); err != nil {
			return nil, fmt.Errorf("publish as a backend: %w", err)
		}
	}
	// So that neither autovacuum nor a checkpoint of the filling is measured.
	if _, err := backend.Exec(ctx, `VACUUM ANALYZE badged.outbox`); err != nil {
		return nil, fmt.Errorf("vacuum the outbox: %w", err)
	}
	if err := r.Exec(ctx, "CHECKPOINT"); err != nil {
		return nil, err
	}

	before := rig.ReadCPU()
	began := time.Now()
	relay, err := rig.StartServer(r.Command(ctx, append([]string{"relay", "run", "--listen=127.0.0.1:0", "--max-lag=0s", "--outbox-url=" + outbox}, to...)...))
	if err != nil {
		return nil, err
	}
	waiting := 1
	for waiting > 0 && err == nil {
		err = backend.QueryRow(ctx, `SELECT count(*) FROM (SELECT FROM badged.outbox LIMIT 1) AS waiting`).Scan(&waiting)
		time.Sleep(10 * time.Millisecond)
	}
	took := time.Since(began)
	after := rig.ReadCPU()
	if err = errors.Join(err, relay.Stop()); err != nil {
		return nil, fmt.Errorf("carry the events: %w", err)
	}
	events := l.calls * 1000
	return append([]measure.Measure{measure.Of("rate", "/s", float64(events)/took.Seconds())}, rig.CPUMeasures(before, after, 0, events)...), nil
}
