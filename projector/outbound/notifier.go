package outbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/dbclock"
	"github.com/badged/badged/internal/defaults"
	"github.com/badged/badged/internal/eventlog"
	"github.com/badged/badged/internal/pgsession"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/projector/internal/logread"
)

// First keys of advisory locks, on partitions and of sessions.
const (
	lockClass   = 0x6261646e // "badn"
	memberClass = 0x6261646f // "bado"
)

// NotifierConfig configures a Notifier. Pool and Layouts are required.
type NotifierConfig struct {
	// Pool connects to the database. Set up its sessions with
	// projector.ConfigurePool.
	Pool *pgxpool.Pool
	// Layouts says in which partition each user is: the log, in most cases.
	Layouts events.Layouts
	// Held returns the partitions that the database holds, if it is one of several.
	// Default: all that Layouts says.
	Held func() []int
	// Clock tells the time of the database. Its Check fails while the process has another
	// time. Default: the clock of the process.
	Clock interface {
		Now() time.Time
		Check() error
	}
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Metrics defaults to metrics that are not registered.
	Metrics *Metrics

	// LongestReminder is after how long the last reminder is due, if webhooks get any.
	LongestReminder time.Duration
	// RoomInterval is the least time between two rounds through the members of a
	// room with more than MaxPromptMembers in a partition. Default 1m.
	RoomInterval time.Duration
	// PollInterval is how often the notifier looks for what other processes have
	// folded, while there are targets. It is also the longest pause after it has
	// caught up. Default 100ms.
	PollInterval time.Duration
	// CallInterval is the least time between two looks at what was folded in a partition for
	// webhooks: what changes meanwhile is told together, and costs one reading. Default 500ms.
	CallInterval time.Duration
	// IdleInterval is how often it looks otherwise, and looks for rows that became
	// due with time. Default 1s.
	IdleInterval time.Duration
	// OwnershipInterval is how often it counts the other notifiers and takes or
	// gives up partitions. Default 1s.
	OwnershipInterval time.Duration
	// PageEvents is the most events that are read at once. Default 1,000.
	PageEvents int

	// silence is after how long a silent owner is replaced. Default three times
	// OwnershipInterval.
	silence time.Duration
}

// Notifier owns partitions, makes their devices due, reads the log for webhooks, and hands
// what is due to senders in the same process. Any number of notifiers may run on one database. Each partition has
// one owner at a time; should it ever have two, targets are told twice.
type Notifier struct {
	cfg     NotifierConfig
	log     *slog.Logger
	metrics *Metrics
	wakes   []chan struct{} // by partition
	heard   []heard         // by partition
	lanes   lanes
	readers readers
	// tables reads the badges of users that webhooks are told.
	tables  *badges.Reader
	reports reports
	clocks  struct {
		mu       sync.Mutex
		differed bool
		agreedAt time.Time
	}
}

// NewNotifier returns a notifier that does nothing until Run.
func NewNotifier(cfg NotifierConfig) (*Notifier, error) {
	if cfg.Pool == nil || cfg.Layouts == nil {
		return nil, errors.New("outbound: Pool and Layouts are required")
	}
	if cfg.Held == nil {
		cfg.Held = func() []int { return cfg.Layouts.Layout().Living() }
	}
	if cfg.Clock == nil {
		cfg.Clock = &dbclock.Clock{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	if err := cmp.Or(
		defaults.Set("RoomInterval", &cfg.RoomInterval, time.Minute),
		defaults.Set("PollInterval", &cfg.PollInterval, 100*time.Millisecond),
		defaults.Set("CallInterval", &cfg.CallInterval, 500*time.Millisecond),
		defaults.Set("IdleInterval", &cfg.IdleInterval, time.Second),
		defaults.Set("OwnershipInterval", &cfg.OwnershipInterval, time.Second),
		defaults.Set("PageEvents", &cfg.PageEvents, 1000),
	); err != nil {
		return nil, fmt.Errorf("outbound: %w", err)
	}
	if cfg.silence <= 0 {
		cfg.silence = 3 * cfg.OwnershipInterval
	}
	n := &Notifier{
		cfg: cfg, log: cfg.Logger, metrics: cfg.Metrics, lanes: newLanes(), reports: newReports(), heard: make([]heard, eventlog.PartitionNumbers),
		readers: readers{all: map[string]map[int]*reader{}}, tables: badges.NewReader(cfg.Pool, cfg.Layouts),
	}
	for range eventlog.PartitionNumbers {
		n.wakes = append(n.wakes, make(chan struct{}, 1))
	}
	return n, nil
}

// Run works until ctx is done and then returns nil, after what was reported is
// stored. Stop the senders before.
func (n *Notifier) Run(ctx context.Context) error {
	var g sync.WaitGroup
	g.Go(func() { n.measure(ctx) })
	g.Go(func() { n.poll(ctx) })
	g.Go(func() { n.store(ctx) })
	owner := pgsession.Owner{
		Connect: n.cfg.Pool.Config().ConnConfig, Kind: "notifier", Class: lockClass, MemberClass: memberClass,
		Held: n.cfg.Held, Interval: n.cfg.OwnershipInterval, Silence: n.cfg.silence,
		Work: n.work, Logger: n.log,
		Changed: func(owned []int) {
			n.metrics.own(owned)
			n.lanes.own(owned)
			n.readers.own(owned)
		},
	}
	owner.Run(ctx)
	g.Wait()
	return nil
}

// poll lets the lanes look at all partitions now and then, for rows that became due
// with time or in another process.
func (n *Notifier) poll(ctx context.Context) {
	tick := time.NewTicker(n.cfg.IdleInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			n.lanes.lookEverywhere()
		}
	}
}

// Pauses between attempts while the database does not answer.
const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = 2 * time.Second
)

// work makes the devices of a partition due until ctx, which lasts as long as the
// ownership, is done.
func (n *Notifier) work(ctx context.Context, partition int) {
	w := n.worker(partition)
	defer w.heard.listen(false)
	backoff := firstBackoff
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.wakes[partition]:
			if w.idle() || !w.devices && time.Since(w.calledAt) < w.cfg.CallInterval {
				continue // the timer limits how often the position follows, and webhooks are told
			}
		case <-next.C:
		}
		pause, err := w.drain(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			n.metrics.failed.Inc()
			n.log.WarnContext(ctx, "cannot find out what changed for devices and webhooks, will try again",
				"partition", partition, "error", err, "in", backoff)
			next.Reset(backoff)
			backoff = min(2*backoff, lastBackoff)
		default:
			next.Reset(pause)
			backoff = firstBackoff
		}
	}
}

// pageBytes is the most bytes of events that are read at once.
const pageBytes = 4 << 20

// worker makes the devices of one partition due, and lets the readers of webhooks know what
// was folded.
type worker struct {
	*Notifier
	partition int
	heard     *heard
	size      logread.Size
	// devices and badges are those of the last partition state: whether there are such
	// targets. One that comes later is due when it comes.
	devices, badges bool
	// awaited is when a look first left it to the projector to say what it has folded,
	// or zero.
	awaited time.Time
	// settled is when settled alerts were deleted last, settledWebhooks when the positions of
	// webhooks were looked at, and followed when the position followed without devices.
	settled, settledWebhooks, followed time.Time
	// shown and revision are what the readers of webhooks know of, since calledAt.
	shown    events.Position
	revision int64
	calledAt time.Time
}

func (n *Notifier) worker(partition int) *worker {
	return &worker{Notifier: n, partition: partition, heard: &n.heard[partition], size: logread.Size{Events: n.cfg.PageEvents, Bytes: pageBytes}}
}

// partitionState is what a worker starts from.
type partitionState struct {
	folded   logread.Cursor
	position events.Position
	// revision is that of the partition, and marked the one for which all targets
	// are due, or will be once after is null.
	revision, marked int64
	after            *string
	devices, badges  bool // whether there are devices, and webhooks that want badges
	rounds           bool // whether a round through a room is due
	// said is what the projector has said since the worker took it last.
	said said
	// caughtUp is set once everything is marked that was folded.
	caughtUp bool
}

func (s *partitionState) targets() []any {
	return append(s.folded.Targets(), &s.position.TransactionID, &s.position.Offset, &s.revision, &s.marked, &s.after, &s.devices, &s.badges, &s.rounds)
}

// drain makes due what can be, and returns how long to pause.
func (w *worker) drain(ctx context.Context) (pause time.Duration, err error) {
	pause, err = w.drainHeld(ctx)
	if err != nil && eventlog.Gone(ctx, w.cfg.Pool, w.partition) {
		return w.cfg.IdleInterval, nil
	}
	return pause, err
}

// drainHeld drains a partition that the database holds.
func (w *worker) drainHeld(ctx context.Context) (pause time.Duration, err error) {
	for ctx.Err() == nil {
		began := time.Now()
		s := partitionState{said: w.heard.take()} // before the tables are read: these have it
		if err := w.cfg.Pool.QueryRow(ctx, statements.Of(w.partition, "read the partition state"), w.cfg.RoomInterval, w.partition, events.ProjectorGroup, events.NotifierGroup).Scan(s.targets()...); err != nil {
			return 0, fmt.Errorf("read the position of the notifier in partition %d: %w", w.partition, err)
		}
		w.devices, w.badges = s.devices, s.badges
		w.heard.listen(w.devices)
		if err := w.settleWebhooks(ctx); err != nil {
			return 0, err
		}
		w.showFolded(&s)
		if !w.devices {
			return w.withoutDevices(ctx, &s)
		}
		more, err := w.step(ctx, &s)
		if err != nil && !errors.Is(err, errFenced) {
			return 0, err
		}
		if err == nil && !more {
			break
		}
		if err == nil && s.caughtUp {
			w.rest(ctx, time.Since(began))
		}
	}
	return w.cfg.PollInterval, w.deleteSettled(ctx)
}

// showFolded lets the readers of webhooks read on if something was folded.
func (w *worker) showFolded(s *partitionState) {
	if !w.badges || w.shown == s.folded.Position && w.revision == s.revision || time.Since(w.calledAt) < w.cfg.CallInterval {
		return
	}
	w.shown, w.revision, w.calledAt = s.folded.Position, s.revision, time.Now()
	w.readers.readOn(w.partition)
	w.lanes.lookForCalls(w.partition)
}

// withoutDevices lets the position follow the projector, now and then.
func (w *worker) withoutDevices(ctx context.Context, s *partitionState) (pause time.Duration, err error) {
	if w.idle() || time.Since(w.followed) >= w.cfg.IdleInterval {
		w.followed = time.Now()
		err = w.follow(ctx, s)
	}
	if w.idle() || err != nil {
		return w.cfg.IdleInterval, err
	}
	return w.cfg.CallInterval, nil
}

// rest pauses ten times as long as it took to catch up. So following the projector
// costs a bounded share of a processor, and what changes meanwhile is marked at once.
func (w *worker) rest(ctx context.Context, took time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(min(10*took, w.cfg.PollInterval)):
	}
}

// idle reports whether the partition has no targets.
func (w *worker) idle() bool { return !w.devices && !w.badges }

// step makes devices due for one reason, and reports whether there is more to do.
func (w *worker) step(ctx context.Context, s *partitionState) (more bool, err error) {
	if !s.position.Before(s.folded.Position) {
		w.awaited = time.Time{}
	} else if !w.awaits(s) {
		return true, w.mark(ctx, s)
	}
	if s.revision != s.marked || s.after != nil {
		return true, w.markAll(ctx, s)
	}
	if s.rounds {
		return true, w.round(ctx)
	}
	return false, nil
}

// awaits reports whether the projector of this process, which has said everything up
// to the position, may be about to say the rest. If it has not within PollInterval,
// another process has folded it.
func (w *worker) awaits(s *partitionState) bool {
	switch {
	case s.said.to != s.position || s.said.to == (events.Position{}): // the position may be zero, too
		w.awaited = time.Time{}
	case w.awaited.IsZero():
		w.awaited = time.Now()
	case time.Since(w.awaited) >= w.cfg.PollInterval:
		w.awaited = time.Time{}
	}
	return !w.awaited.IsZero()
}

// errFenced means that another notifier has moved the position.
var errFenced = errors.New("another notifier has moved the position")

// move moves the position of the notifier to that of an event, in a transaction that
// makes targets due.
func (w *worker) move(ctx context.Context, tx pgx.Tx, from, to events.Position) error {
	tag, err := tx.Exec(ctx, statements.Of(w.partition, "move"), events.NotifierGroup, from.TransactionID, from.Offset, to.TransactionID, to.Offset)
	if err == nil && tag.RowsAffected() == 0 {
		err = errFenced
	}
	return err
}

// follow moves the position behind that of the projector without reading: nothing
// that was folded up to there needs to be told, since a target that comes is due.
func (w *worker) follow(ctx context.Context, s *partitionState) error {
	if s.position == s.folded.Position && s.revision == s.marked && s.after == nil {
		return nil
	}
	err := w.transaction(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statements.Get("set the revision"), w.partition, s.revision, nil); err != nil {
			return err
		}
		return w.move(ctx, tx, s.position, s.folded.Position)
	})
	if err != nil && !errors.Is(err, errFenced) {
		return fmt.Errorf("move the notifier's position in partition %d: %w", w.partition, err)
	}
	return nil
}

// transaction runs a transaction that need not be durable at once: what is lost with
// it is done again.
func (n *Notifier) transaction(ctx context.Context, do func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, n.cfg.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL synchronous_commit = off`); err != nil {
			return err
		}
		return do(tx)
	})
}

// usersPage is the most users who are made due at once, other than by events.
const usersPage = 1000

// markAll makes a page of all devices due, since badges have changed without the log.
func (w *worker) markAll(ctx context.Context, s *partitionState) error {
	after := ""
	if s.revision == s.marked {
		after = *s.after
	}
	err := w.marking(ctx, func(m *marking) error {
		rows, _ := m.tx.Query(ctx, statements.Of(w.partition, "page through the users of devices"), after, usersPage)
		users, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		var next *string
		if len(users) == usersPage {
			next = &users[len(users)-1]
		}
		if _, err := m.tx.Exec(ctx, statements.Get("set the revision"), w.partition, s.revision, next); err != nil {
			return err
		}
		return m.users(ctx, users)
	})
	if err != nil {
		return fmt.Errorf("make all devices of partition %d due: %w", w.partition, err)
	}
	return nil
}

// deleteSettled deletes alerts that were settled long ago, some at a time.
func (w *worker) deleteSettled(ctx context.Context) error {
	if time.Since(w.settled) < alertsInterval {
		return nil
	}
	w.settled = time.Now()
	deleted, err := w.cfg.Pool.Exec(ctx, statements.Of(w.partition, "delete old alerts"), maxAlertAge, maxShownAge, time.Now(), alertsStep)
	if err != nil {
		return fmt.Errorf("delete old alerts of partition %d: %w", w.partition, err)
	}
	if deleted.RowsAffected() == alertsStep { // there may be more
		w.settled = time.Time{}
	}
	return nil
}

const (
	// maxAlertAge is after how long an alert is not pushed any more, and forgotten.
	maxAlertAge = 24 * time.Hour
	// maxShownAge is for how long an alert that was sent can be retracted.
	maxShownAge = 7 * 24 * time.Hour
	// alertsInterval is how often old alerts are deleted.
	alertsInterval = time.Minute
	// alertsStep is how many one statement deletes.
	alertsStep = 1000
)

// sortedUnique returns the distinct texts in ascending order.
func sortedUnique(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}
