package app

import (
	"context"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/bridge/backpressure"
	"github.com/badged/badged/internal/bridge/ingest"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/obs"
	"github.com/badged/badged/internal/server/config"
)

// openIngest adds the reader of brokers, if this process has the role ingest. throttle, for
// backpressure, slows the reader down while folding is behind.
func (a *App) openIngest(ctx context.Context, brokers []ingest.Source, throttle *backpressure.Throttle) error {
	if !a.cfg.Has(config.RoleIngest) || len(brokers) == 0 {
		return nil
	}
	home := a.byName()[0]
	var dbs *cluster.Cluster
	if a.cluster.Several() {
		dbs = a.cluster
	}
	x, err := ingest.New(ingest.Config{
		Pool: home.serving, Log: home.Log, Cluster: dbs, Sources: brokers, Logger: a.log, Metrics: ingest.NewMetrics(a.registry),
		Admit: func(ctx context.Context, evs []events.Event) error {
			ticket, err := throttle.Enter(ctx, 0)
			if err != nil {
				return err
			}
			defer ticket.Leave()
			return ticket.Admit(ctx, evs)
		},
		Appended: a.publisher.appendedElsewhere,
	})
	if err != nil {
		return err
	}
	a.closers = append(a.closers, x.Close)
	if a.cfg.NeedsBrokers() { // processes with other roles start even if the broker is unavailable
		if err := x.Check(ctx); err != nil {
			return err
		}
	}
	// This check is not vital: messages that are not read stay in the broker.
	a.checks = append(a.checks, obs.Check{Name: "ingest", Run: func(context.Context) error { return x.Health() }})
	a.stage("ingest", x.Run)
	return nil
}
