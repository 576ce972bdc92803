// Package backpressure keeps publishing from outrunning folding: publishers
// are slowed while badges are slightly late, and refused once they are too
// late.
//
// It does not know the projector: it measures lag in the database. ADR 46 has the reasons.
package backpressure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/lag"
)

// Config configures a gate. Layouts, and Database or Waiting, are required.
type Config struct {
	// Database is where the lag is measured, whichever process folds.
	Database events.Querier
	// Waiting measures instead, by partition, if there are several databases. Partitions
	// that cannot be measured are left out.
	Waiting func(ctx context.Context) (map[int]lag.Waiting, error)
	// Layouts says in which partition each user is.
	Layouts events.Layouts
	// MaxLag is the lag of a partition past which events for its users are
	// refused. 0 refuses nothing.
	MaxLag time.Duration
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil discards them.
	Registerer prometheus.Registerer
}

const (
	// slowLag is the lag past which publishers wait for folding. It is at most
	// half of MaxLag.
	slowLag = 2 * time.Second
	// holdMost is the longest that one call waits for folding: less than clients'
	// timeouts.
	holdMost = 2 * time.Second
	// progressWindow is how long a partition counts as being folded after its
	// position moved.
	progressWindow = 2 * time.Second
	// busyInterval is the time between two measurements while events wait to be
	// folded, and calmInterval while none do. It is well below slowLag.
	busyInterval = 250 * time.Millisecond
	calmInterval = time.Second
	// measureTimeout bounds one measurement.
	measureTimeout = 5 * time.Second
	// measureShare bounds the time spent measuring to 1/measureShare.
	measureShare = 25
)

// Limits of the Retry-After of a refused publisher, before jitter.
const (
	minRetryAfter = time.Second
	maxRetryAfter = 30 * time.Second
)

// SmallBody is the size of a request, in bytes, up to which it needs no slot:
// small appends share a transaction, one at a time, and so bound themselves.
const SmallBody = 32 << 10

// Gate admits publishers. It is safe for concurrent use.
type Gate struct {
	cfg     Config
	slow    time.Duration
	slots   chan struct{}
	metrics metrics

	mu         sync.Mutex
	partitions map[int]*partition
	// next is closed with the next measurement.
	next chan struct{}
	// stopped is set once measuring has ended.
	stopped bool
}

// partition is the measured state of one partition.
type partition struct {
	lag time.Duration
	// late is set when two measurements in a row found the lag past MaxLag. One
	// is no proof: an event's age counts from the start of its transaction, and
	// that may have committed only now.
	late, suspected bool
	folded          events.Position
	moved           time.Time // when folded last changed
}

// New returns a gate that admits everything until Run has measured.
func New(cfg Config) (*Gate, error) {
	if cfg.Waiting == nil && cfg.Database != nil {
		cfg.Waiting = func(ctx context.Context) (map[int]lag.Waiting, error) {
			return lag.WaitingIn(ctx, cfg.Database, cfg.Layouts.Layout().Living())
		}
	}
	if cfg.Waiting == nil || cfg.Layouts == nil {
		return nil, errors.New("backpressure: Layouts, and Database or Waiting, are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	g := &Gate{
		cfg:        cfg,
		slow:       slowLag,
		slots:      make(chan struct{}, min(max(4, 2*runtime.GOMAXPROCS(0)), 8)),
		metrics:    newMetrics(cfg.Registerer),
		partitions: map[int]*partition{},
		next:       make(chan struct{}),
	}
	if cfg.MaxLag > 0 {
		g.slow = min(slowLag, cfg.MaxLag/2)
	}
	return g, nil
}

// BehindError refuses events because folding is too far behind.
type BehindError struct {
	// Lag is the greatest lag among the partitions of the events.
	Lag time.Duration
	// RetryAfter is how long to wait before the next attempt, with jitter.
	RetryAfter time.Duration
}

// Error implements error.
func (e *BehindError) Error() string {
	return fmt.Sprintf("badges of users of this request are %s behind", e.Lag.Round(time.Second))
}

// Ticket is one call of a publisher. It is not safe for concurrent use.
type Ticket struct {
	gate *Gate
	slot bool
}

// Enter waits for the caller's turn to decode and append a request of the given
// size. The caller must call Leave. A nil gate admits everything.
func (g *Gate) Enter(ctx context.Context, bytes int) (*Ticket, error) {
	if g == nil {
		return &Ticket{}, nil
	}
	t := &Ticket{gate: g}
	if bytes <= SmallBody {
		return t, nil
	}
	return t, t.take(ctx)
}

func (t *Ticket) take(ctx context.Context) error {
	select {
	case t.gate.slots <- struct{}{}:
		t.slot = true
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Leave ends the turn. It is idempotent.
func (t *Ticket) Leave() {
	if t.slot {
		<-t.gate.slots
		t.slot = false
	}
}

// Admit returns nil when evs may be appended: at once, or after waiting up to 2 s
// for folding, during which others may take their turn. It returns a
// [*BehindError] if a partition of evs is further behind than MaxLag. ADR 46 has the reasons.
func (t *Ticket) Admit(ctx context.Context, evs []events.Event) error {
	g := t.gate
	if g == nil {
		return nil
	}
	began := time.Now()
	needsSlot := t.slot
	for held := false; ; held = true {
		worst, late, next := g.look(evs, time.Now())
		if late {
			g.metrics.refused.Inc()
			return &BehindError{Lag: worst, RetryAfter: retryAfter(worst - g.cfg.MaxLag)}
		}
		waited := time.Since(began)
		if next == nil || waited >= holdMost {
			if held {
				g.metrics.heldSeconds.Add(waited.Seconds())
			}
			return nil
		}
		t.Leave()
		timer := time.NewTimer(holdMost - waited)
		select {
		case <-next:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if needsSlot {
			if err := t.take(ctx); err != nil {
				return err
			}
		}
	}
}

// retryAfter returns the wait after a refusal. excess is how far the lag exceeds
// its limit: folding takes about as long to catch up. Jitter spreads retries.
func retryAfter(excess time.Duration) time.Duration {
	base := min(max(excess, minRetryAfter), maxRetryAfter)
	return base/2 + rand.N(base) + 500*time.Millisecond //nolint:gosec // spreads load, guards nothing
}

// look returns the greatest lag among the partitions of evs, and whether one is
// too late. next is nil if there is no need to wait; otherwise the next
// measurement closes it.
func (g *Gate) look(evs []events.Event, now time.Time) (worst time.Duration, late bool, next <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	matters := false
	for _, p := range g.partitions {
		matters = matters || p.late || p.lag > g.slow
	}
	if !matters || g.stopped {
		return 0, false, nil
	}
	seen := map[int]bool{}
	slow := false
	layout := g.cfg.Layouts.Layout()
	for i := range evs {
		for _, user := range evs[i].Data.UserIDs {
			id := layout.PartitionOf(user)
			p := g.partitions[id]
			if p == nil || seen[id] {
				continue
			}
			seen[id] = true
			late = late || p.late
			worst = max(worst, p.lag)
			// Waiting helps only if the partition is being folded.
			slow = slow || p.lag > g.slow && now.Sub(p.moved) < progressWindow
		}
	}
	if slow {
		return worst, late, g.next
	}
	return worst, late, nil
}
