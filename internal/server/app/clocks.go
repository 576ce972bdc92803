package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/base/metric"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/obs"
	"github.com/badged/badged/internal/pg/dbclock"
	"github.com/badged/badged/internal/pg/pgsession"
)

const (
	// Differences between clocks above noticedDifference are logged.
	noticedDifference = time.Second
	// clockTimeout limits the time to read the clock of a database.
	clockTimeout = 5 * time.Second
)

// now returns the median of the clocks of all databases and of this machine. Use it for work that
// does not belong to one database.
func (a *App) now() time.Time {
	return dbclock.Middle(func(yield func(*dbclock.Clock) bool) {
		for _, d := range a.databases {
			if !yield(&d.clock) {
				return
			}
		}
	})
}

// openClocks adds the stages that compare the clock of this process with the clock of each
// database. The result is used for a metric, the log and readiness. Work that cannot be undone,
// such as pruning the audit trail, compares the clocks again.
func (a *App) openClocks() {
	for _, d := range a.databases {
		difference := metric.Gauge(d.registry, "badged_clock_difference_seconds", "Seconds by which the clock of the database is ahead of the clock of this process; negative if it is behind.")
		a.stageOf(d, "clock", func(ctx context.Context) error { return followClock(ctx, d, difference) })
	}
	a.checks = append(a.checks, obs.Check{Name: "clocks", Run: func(context.Context) error {
		var errs []error
		for _, d := range a.databases {
			if err := d.clock.Check(); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w; until then nothing expires there, no reminder is sent, and nothing is pruned, archived or forgotten", d.config.Label(), err))
			}
		}
		return errors.Join(errs...)
	}})
}

// measureClock measures how far the clock of a database is ahead of the clock of this process.
func (d *database) measureClock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	return d.clock.Measure(ctx, func(ctx context.Context) (time.Time, error) { return pgsession.Now(ctx, d.watching) })
}

// followClock measures the clock of a database at intervals until ctx is done.
func followClock(ctx context.Context, d *database, difference prometheus.Gauge) error {
	noticed := false
	return wait.Repeat(ctx, dbclock.Interval, func(ctx context.Context) {
		if err := d.measureClock(ctx); err == nil { // after an error, other checks report that the database is unavailable
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
	})
}
