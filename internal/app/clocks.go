package app

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/badged/badged/internal/dbclock"
	"github.com/badged/badged/internal/obs"
	"github.com/badged/badged/internal/pgsession"
)

const (
	// noticedDifference is how far clocks may differ before that is logged.
	noticedDifference = time.Second
	// clockTimeout bounds one reading of a clock.
	clockTimeout = 5 * time.Second
)

// openClocks compares the clock of the process with the clocks of the databases, for the
// metric, the log and readiness. Work that cannot be undone does not depend on it: it
// compares the clocks itself.
func (a *App) openClocks() {
	for _, d := range a.databases {
		difference := promauto.With(d.registry).NewGauge(prometheus.GaugeOpts{
			Name: "badged_clock_difference_seconds",
			Help: "How far the clock of the database is ahead of this process's, negative if it is behind.",
		})
		a.stageOf(d, "clock", func(ctx context.Context) error { return followClock(ctx, d, difference) })
	}
	a.checks = append(a.checks, obs.Check{Name: "clocks", Run: func(context.Context) error {
		for _, d := range a.databases {
			if err := d.clock.Check(); err != nil {
				return fmt.Errorf("%w; until then nothing expires, no reminder is sent, and nothing is pruned, archived or forgotten", err)
			}
		}
		return nil
	}})
}

// followClock measures the clock of a database until ctx is done.
func followClock(ctx context.Context, d *database, difference prometheus.Gauge) error {
	tick := time.NewTicker(dbclock.Interval)
	defer tick.Stop()
	for noticed := false; ; {
		reading, cancel := context.WithTimeout(ctx, clockTimeout)
		err := d.clock.Measure(reading, func(ctx context.Context) (time.Time, error) { return pgsession.Now(ctx, d.watching) })
		cancel()
		if err == nil { // else others say that the database is away
			ahead := d.clock.Ahead()
			difference.Set(ahead.Seconds())
			if differs := ahead.Abs() > noticedDifference; differs != noticed {
				noticed = differs
				if differs {
					d.log.WarnContext(ctx, "the clocks of this machine and of the database differ", "database_ahead", ahead.Round(time.Millisecond))
				} else {
					d.log.InfoContext(ctx, "the clocks of this machine and of the database agree again")
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
