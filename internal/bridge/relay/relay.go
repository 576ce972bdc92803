// Package relay carries events from the outbox, a table in the database of a chat backend, to
// badged. It carries them in order and at least once. Each event has a key, so that repeated events
// count only once, even if processes are killed.
//
// It does not know badged's database: it publishes over HTTP or through a log. ADR 84 has the
// reasons.
package relay

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/pg/pgsession"
)

// Target is the destination of the events.
type Target interface {
	// Append appends all events in order, or none of them. If badged refuses events, it returns a
	// [*traffic.ServerError] or an [*events.BatchError]. If the same call may succeed later, it
	// returns a [*traffic.TransientError]. After any error it may be called again with the same
	// events.
	Append(ctx context.Context, evs []events.Event) (transactionID int64, err error)
}

// Config configures a relay. Outbox and one of Target and Divided are required.
type Config struct {
	Outbox  *Outbox
	Target  Target
	Divided Divided
	// Check, usually [Outbox.Check], is needed if the outbox could not be reached yet. Run repeats
	// Check while the error of Check means that the database is unavailable: see [Away]. Nil means
	// that the outbox has been checked already.
	Check func(ctx context.Context) error
	// Logger defaults to a logger that discards everything.
	Logger *slog.Logger
	// Metrics defaults to unregistered metrics.
	Metrics *Metrics
	// PollInterval is the pause before the next read if the outbox is empty. Default 100ms.
	PollInterval time.Duration
	// OwnershipInterval is how often a process on standby tries to acquire the lock. Default
	// 1s.
	OwnershipInterval time.Duration
	// MeasureInterval is how often the backlog is measured. Default 5s.
	MeasureInterval time.Duration
}

// Relay carries events. If several processes run a relay, one of them carries events and the others
// are on standby.
type Relay struct {
	cfg Config
	// opening is true until the outbox has been checked. carrying is true while this process holds
	// the advisory lock and so carries events.
	opening, carrying atomic.Bool
	mu                sync.Mutex
	// trouble is the reason why events cannot be carried at present, nil if events can be carried.
	trouble error
}

// New returns a relay. It does nothing before Run.
func New(cfg Config) (*Relay, error) {
	if cfg.Outbox == nil || (cfg.Target == nil) == (cfg.Divided == nil) {
		return nil, errors.New("relay: Outbox and one of Target and Divided are required")
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Metrics = cmp.Or(cfg.Metrics, NewMetrics(nil))
	for _, d := range []struct {
		value *time.Duration
		unset time.Duration
	}{{&cfg.PollInterval, 100 * time.Millisecond}, {&cfg.OwnershipInterval, time.Second}, {&cfg.MeasureInterval, 5 * time.Second}} {
		if *d.value <= 0 {
			*d.value = d.unset
		}
	}
	r := &Relay{cfg: cfg}
	if cfg.Check != nil {
		r.opening.Store(true)
		r.trouble = errors.New("the outbox was not reached yet")
	}
	return r, nil
}

// First keys of the advisory locks in the database of the outbox.
const (
	lockClass       = 0x62726c79 // "brly"
	memberLockClass = 0x62726c6d // "brlm"
)

// Run carries events until ctx is done and then returns nil. It returns an error if [Config].Check
// fails although the database can be reached. Only the process that has an advisory lock carries
// events. The lock only saves work: if two processes carry the same events, the events count only
// once.
func (r *Relay) Run(ctx context.Context) error {
	if err := r.open(ctx); err != nil {
		return err
	}
	var g sync.WaitGroup
	g.Go(func() { r.measure(ctx) })
	owner := pgsession.Owner{
		Connect: r.cfg.Outbox.pool.Config().ConnConfig, Kind: "relay",
		Class: lockClass, MemberClass: memberLockClass,
		Held: func() []int { return []int{0} }, Interval: r.cfg.OwnershipInterval, Silence: 3 * r.cfg.OwnershipInterval,
		Work: func(ctx context.Context, _ int) { r.carry(ctx) },
		Changed: func(owned []int) {
			r.carrying.Store(len(owned) > 0)
			r.cfg.Metrics.active.Set(float64(len(owned)))
		},
		Logger: r.cfg.Logger,
	}
	owner.Run(ctx)
	g.Wait()
	return nil
}

// open calls Check until it succeeds. It returns an error if the outbox can be reached but is
// unusable.
func (r *Relay) open(ctx context.Context) error {
	pauses := newBackoff()
	for r.opening.Load() && ctx.Err() == nil {
		err := r.cfg.Check(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			_ = r.setTrouble(nil)
			r.opening.Store(false)
			r.cfg.Logger.InfoContext(ctx, "the outbox can be reached")
		case Away(err):
			_ = r.setTrouble(err)
			r.cfg.Metrics.failed.Inc()
			pauses.wait(ctx, err)
		default:
			return err
		}
	}
	return nil
}

func (r *Relay) setTrouble(err error) (before error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, r.trouble = r.trouble, err
	return before
}

// Health returns the reason why events cannot be carried now, or a [*WaitingError] if only the
// events of some users cannot be carried. It returns nil if all events can be carried, or if this
// process is on standby.
func (r *Relay) Health() error {
	if !r.carrying.Load() && !r.opening.Load() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.trouble
}

// report stores err for Health. It logs err unless the stored error has the same text. If err is
// nil and an error was stored, report logs that events are carried again.
func (r *Relay) report(ctx context.Context, err error) {
	if ctx.Err() != nil { // interrupted
		return
	}
	before := r.setTrouble(err)
	switch {
	case err != nil:
		r.cfg.Metrics.failed.Inc()
		if before == nil || before.Error() != err.Error() {
			r.cfg.Logger.ErrorContext(ctx, "cannot publish events of the outbox; trying again", "error", err)
		}
	case before != nil:
		r.cfg.Logger.InfoContext(ctx, "publishing of the outbox has resumed")
	}
}

// measure measures the backlog until ctx is done.
func (r *Relay) measure(ctx context.Context) {
	failing := false
	_ = wait.Repeat(ctx, r.cfg.MeasureInterval, func(ctx context.Context) {
		b, err := r.cfg.Outbox.Backlog(ctx)
		switch {
		case err == nil:
			r.cfg.Metrics.set(b)
		case !failing && ctx.Err() == nil:
			r.cfg.Logger.WarnContext(ctx, "cannot measure the backlog; its metrics keep their last values", "error", err)
		}
		failing = err != nil
	})
}
