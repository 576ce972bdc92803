// Package backpressure slows publishers down to the rate of folding. It delays events if the
// folding of their users' partitions is a little behind the log, and refuses events if the folding
// is too far behind.
//
// It does not know the projector: it measures the lag in the database. ADR 46 has the reasons.
package backpressure

import (
	"cmp"
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
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/fold/lag"
)

// Config configures a throttle. Layouts, and Database or Waiting, are required.
type Config struct {
	// Database is used to measure the lag of all partitions, whichever process folds them.
	Database events.Querier
	// Waiting replaces Database if there are several databases. It returns the lag and the
	// projector's position by partition. The result omits partitions that could not be measured.
	Waiting func(ctx context.Context) (map[int]lag.Waiting, error)
	// Layouts maps users to partitions.
	Layouts events.Layouts
	// MaxLag is the maximum accepted lag of a partition. While the lag of a partition is greater,
	// events for its users are refused. 0 means that no events are refused.
	MaxLag time.Duration
	// Logger defaults to a logger that discards everything.
	Logger *slog.Logger
	// Registerer registers the metrics; nil discards them.
	Registerer prometheus.Registerer
}

const (
	// slowLag is the lag above which publishers are delayed. If half of MaxLag is less than
	// slowLag, publishers are delayed above half of MaxLag.
	slowLag = 2 * time.Second
	// maxDelay limits the delay of one call. It is shorter than the usual timeouts of publishers.
	maxDelay = 2 * time.Second
	// A partition counts as being folded if the projector's position in it has moved within the
	// last progressWindow.
	progressWindow = 2 * time.Second
	// The lag is measured every busyInterval while there are unfolded events, otherwise every
	// calmInterval. busyInterval is much shorter than slowLag.
	busyInterval = 250 * time.Millisecond
	calmInterval = time.Second
	// measureTimeout bounds one measurement.
	measureTimeout = 5 * time.Second
	// The pause after a measurement is at least measureShare times as long as the measurement, so
	// that measuring costs little.
	measureShare = 25
)

// These constants bound the Retry-After of a refusal, before jitter.
const (
	minRetryAfter = time.Second
	maxRetryAfter = 30 * time.Second
)

// SmallBody is the maximum size, in bytes, of a request that is admitted without a slot. Slots
// limit the number of large requests that are decoded and appended at the same time. Small requests
// need no such limit: their appends share a transaction, and only one such transaction runs at a
// time.
const SmallBody = 32 << 10

// Throttle admits publishers. It is safe for concurrent use.
type Throttle struct {
	cfg     Config
	slow    time.Duration
	slots   chan struct{}
	metrics metrics

	mu         sync.Mutex
	partitions map[int]*partition
	// next is closed after each measurement and replaced by a new channel.
	next chan struct{}
	// stopped is true when measuring has ended.
	stopped bool
}

// partition is the measured state of one partition.
type partition struct {
	lag time.Duration
	// suspected is true if the last measurement found a lag above MaxLag. late is true if the last
	// two measurements found such a lag. A single measurement does not suffice: the age of an event
	// counts from the start of its transaction, and a long transaction may have committed just now.
	late, suspected bool
	folded          events.Position
	moved           time.Time // when folded last changed
}

// New returns a throttle. The throttle admits all events until Run has measured the lag.
func New(cfg Config) (*Throttle, error) {
	if cfg.Waiting == nil && cfg.Database != nil {
		cfg.Waiting = func(ctx context.Context) (map[int]lag.Waiting, error) {
			return lag.WaitingIn(ctx, cfg.Database, cfg.Layouts.Layout().Living())
		}
	}
	if cfg.Waiting == nil || cfg.Layouts == nil {
		return nil, errors.New("backpressure: Layouts, and Database or Waiting, are required")
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	th := &Throttle{
		cfg:        cfg,
		slow:       slowLag,
		slots:      make(chan struct{}, min(max(4, 2*runtime.GOMAXPROCS(0)), 8)),
		metrics:    newMetrics(cfg.Registerer),
		partitions: map[int]*partition{},
		next:       make(chan struct{}),
	}
	if cfg.MaxLag > 0 {
		th.slow = min(slowLag, cfg.MaxLag/2)
	}
	return th, nil
}

// BehindError means that events are refused because folding is too far behind.
type BehindError struct {
	// Lag is the greatest lag among the partitions of the events.
	Lag time.Duration
	// RetryAfter is how long the publisher should wait before the next attempt, with jitter.
	RetryAfter time.Duration
}

// Error implements error.
func (e *BehindError) Error() string {
	return fmt.Sprintf("badges of users of this request are %s behind", e.Lag.Round(time.Second))
}

// Ticket admits one call of a publisher. It is not safe for concurrent use.
type Ticket struct {
	throttle *Throttle
	slot     bool
}

// Enter waits for a slot if the request, whose size is given in bytes, is larger than SmallBody.
// The caller must call Leave after appending the events. If the throttle is nil, Enter does not
// wait.
func (th *Throttle) Enter(ctx context.Context, bytes int) (*Ticket, error) {
	if th == nil {
		return &Ticket{}, nil
	}
	t := &Ticket{throttle: th}
	if bytes <= SmallBody {
		return t, nil
	}
	return t, t.take(ctx)
}

func (t *Ticket) take(ctx context.Context) error {
	select {
	case t.throttle.slots <- struct{}{}:
		t.slot = true
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Leave frees the slot. It is idempotent.
func (t *Ticket) Leave() {
	if t.slot {
		<-t.throttle.slots
		t.slot = false
	}
}

// Admit returns nil when evs may be appended: at once, or after a delay of up to 2 s if a partition
// of evs has a high lag and is being folded. During the delay the ticket has no slot. If two
// measurements in a row have found a lag above MaxLag in a partition of evs, Admit returns a
// [*BehindError]. ADR 46 has the reasons.
func (t *Ticket) Admit(ctx context.Context, evs []events.Event) error {
	th := t.throttle
	if th == nil {
		return nil
	}
	began := time.Now()
	needsSlot := t.slot
	for held := false; ; held = true {
		worst, late, next := th.worstLag(evs, time.Now())
		if late {
			th.metrics.refused.Inc()
			return &BehindError{Lag: worst, RetryAfter: retryAfter(worst - th.cfg.MaxLag)}
		}
		waited := time.Since(began)
		if next == nil || waited >= maxDelay {
			if held {
				th.metrics.heldSeconds.Add(waited.Seconds())
			}
			return nil
		}
		t.Leave()
		if _, err := wait.Signal(ctx, next, maxDelay-waited); err != nil {
			return err
		}
		if needsSlot {
			if err := t.take(ctx); err != nil {
				return err
			}
		}
	}
}

// retryAfter returns the Retry-After of a refusal. excess is the lag minus MaxLag: folding needs
// about this time to catch up. The result has jitter, so that the retries of publishers are spread.
func retryAfter(excess time.Duration) time.Duration {
	base := min(max(excess, minRetryAfter), maxRetryAfter)
	return base/2 + rand.N(base) + 500*time.Millisecond //nolint:gosec // spreads load, guards nothing
}

// worstLag returns the greatest lag among the partitions of evs. late reports whether events for
// one of these partitions must be refused. next is nil if the caller need not wait; otherwise next
// is closed after the next measurement.
func (th *Throttle) worstLag(evs []events.Event, now time.Time) (worst time.Duration, late bool, next <-chan struct{}) {
	th.mu.Lock()
	defer th.mu.Unlock()
	matters := false
	for _, p := range th.partitions {
		matters = matters || p.late || p.lag > th.slow
	}
	if !matters || th.stopped {
		return 0, false, nil
	}
	seen := map[int]bool{}
	slow := false
	layout := th.cfg.Layouts.Layout()
	for i := range evs {
		for _, user := range evs[i].Data.UserIDs {
			id := layout.PartitionOf(user)
			p := th.partitions[id]
			if p == nil || seen[id] {
				continue
			}
			seen[id] = true
			late = late || p.late
			worst = max(worst, p.lag)
			// A delay is useful only if the partition is being folded.
			slow = slow || p.lag > th.slow && now.Sub(p.moved) < progressWindow
		}
	}
	if slow {
		return worst, late, th.next
	}
	return worst, late, nil
}
