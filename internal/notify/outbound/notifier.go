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
	"github.com/badged/badged/internal/base/defaults"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/pg/dbclock"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/projector/badges"
)

// lockClass is the first key of the advisory locks on partitions. memberClass is the first key of
// the locks by which notifiers count each other.
const (
	lockClass   = 0x6261646e // "badn"
	memberClass = 0x6261646f // "bado"
)

// NotifierConfig configures a Notifier. Pool and Layouts are required.
type NotifierConfig struct {
	// Pool connects to the database. Configure its sessions with projector.ConfigurePool.
	Pool *pgxpool.Pool
	// Layouts returns the partitions of users; usually it is the log.
	Layouts events.Layouts
	// Held returns the partitions that this database holds. Set it if there are several
	// databases. Default: all partitions of Layouts.
	Held func() []int
	// Clock returns the time of the database. Its method Check fails while the clocks of the
	// process and the database differ by too much. Default: the clock of the process.
	Clock interface {
		Now() time.Time
		Check() error
	}
	// Logger defaults to a logger that discards everything.
	Logger *slog.Logger
	// Metrics defaults to metrics that are not registered.
	Metrics *Metrics

	// LongestReminder is the longest time that messages must be unread before a webhook gets a
	// reminder. 0 means that there are no reminders.
	LongestReminder time.Duration
	// RoomInterval is the minimum time between the starts of two rounds through the members of a
	// room with more than MaxPromptMembers members in a partition. It is also the minimum time
	// between two calls of a webhook about a large room. Default 1m.
	RoomInterval time.Duration
	// PollInterval is how often the notifier checks a partition with devices for events that
	// other processes have folded. It is also the longest pause after the notifier has caught up
	// with the projector. Default 100ms.
	PollInterval time.Duration
	// CallInterval is the minimum time between two reads of a partition's log for webhooks. The
	// changes within this time are read and sent together. Default 500ms.
	CallInterval time.Duration
	// IdleInterval is how often the notifier checks a partition without targets, and how often
	// senders look for rows whose due time has come. Default 1s.
	IdleInterval time.Duration
	// OwnershipInterval is how often the notifier counts the other notifiers, and acquires or
	// releases partitions. Default 1s.
	OwnershipInterval time.Duration
	// PageEvents is the maximum number of events in one read of the log. Default 1,000.
	PageEvents int

	// silence is how long an owner may fail to respond before another process takes over its
	// partitions. Default three times OwnershipInterval.
	silence time.Duration
}

// Notifier owns partitions. It makes their devices due, reads the log for webhooks, and gives the
// due targets to the senders in the same process. Any number of notifiers may run on one database.
// Each partition has one owner at a time, because two owners would notify targets twice.
type Notifier struct {
	cfg     NotifierConfig
	log     *slog.Logger
	metrics *Metrics
	wakes   []chan struct{} // by partition
	feeds   []feed          // by partition
	queues  queues
	readers readers
	// tables reads the badges that are sent to webhooks.
	tables  *badges.Reader
	reports reports
	clocks  struct {
		mu       sync.Mutex
		differed bool
		agreedAt time.Time
	}
}

// NewNotifier returns a notifier that does nothing until Run, or an error if cfg is invalid.
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
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Metrics = cmp.Or(cfg.Metrics, NewMetrics(nil))
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
		cfg: cfg, log: cfg.Logger, metrics: cfg.Metrics, queues: newQueues(), reports: newReports(), feeds: make([]feed, eventlog.PartitionNumbers),
		readers: readers{all: map[string]map[int]*reader{}}, tables: badges.NewReader(cfg.Pool, cfg.Layouts),
	}
	for range eventlog.PartitionNumbers {
		n.wakes = append(n.wakes, make(chan struct{}, 1))
	}
	return n, nil
}

// Run runs until ctx is done. Then it stores the last reports and returns nil. Stop the senders
// before you cancel ctx, so that Run stores their last reports.
func (n *Notifier) Run(ctx context.Context) error {
	var g sync.WaitGroup
	g.Go(func() { _ = wait.Every(ctx, measureInterval, n.measure) })
	// Rows can become due without a signal in this process: their due time comes, or another
	// process makes them due.
	g.Go(func() { _ = wait.Every(ctx, n.cfg.IdleInterval, func(context.Context) { n.queues.markAllDue() }) })
	g.Go(func() { n.store(ctx) })
	owner := pgsession.Owner{
		Connect: n.cfg.Pool.Config().ConnConfig, Kind: "notifier", Class: lockClass, MemberClass: memberClass,
		Held: n.cfg.Held, Interval: n.cfg.OwnershipInterval, Silence: n.cfg.silence,
		Work: n.work, Logger: n.log,
		Changed: func(owned []int) {
			n.metrics.setOwned(owned)
			n.queues.setOwned(owned)
			n.readers.setOwned(owned)
		},
	}
	owner.Run(ctx)
	g.Wait()
	return nil
}

// These are the shortest and the longest pause between attempts while the database does not
// respond.
const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = 2 * time.Second
)

// work makes the devices of a partition due until ctx is done. ctx is canceled when this process
// stops owning the partition.
func (n *Notifier) work(ctx context.Context, partition int) {
	w := n.worker(partition)
	defer w.feed.listen(false)
	backoff := wait.Backoff{First: firstBackoff, Last: lastBackoff}
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.wakes[partition]:
			if w.idle() || !w.devices && time.Since(w.calledAt) < w.cfg.CallInterval {
				continue // the timer limits how often the position moves and webhooks are notified
			}
		case <-next.C:
		}
		pause, err := w.drain(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			n.metrics.failed.Inc()
			pause = backoff.Next()
			n.log.WarnContext(ctx, "cannot determine which devices and webhooks are due, will try again",
				"partition", partition, "error", err, "in", pause)
			next.Reset(pause)
		default:
			next.Reset(pause)
			backoff.Reset()
		}
	}
}

// pageBytes is the maximum size of the events in one read of the log, in bytes.
const pageBytes = 4 << 20

// worker makes the devices of one partition due. It also wakes the readers of webhooks after
// events were folded.
type worker struct {
	*Notifier
	partition int
	feed      *feed
	size      logread.Size
	// devices is true if the partition had devices when its state was last read. badges is true if
	// there were webhooks that want badges. Stale values do no harm, because a device or webhook is
	// due when it is added.
	devices, badges bool
	// awaited is the time at which the worker began to wait for a report of the projector. It is
	// zero if the worker does not wait.
	awaited time.Time
	// alertsDeleted is when old alerts were last deleted, webhooksChecked is when the positions of
	// webhooks were last checked, and positionMoved is when the notifier's position was last moved
	// while there were no devices.
	alertsDeleted, webhooksChecked, positionMoved time.Time
	// calledAt is when the readers of webhooks were last woken. shown and revision are the folded
	// position and the partition's revision at that time.
	shown    events.Position
	revision int64
	calledAt time.Time
}

func (n *Notifier) worker(partition int) *worker {
	return &worker{Notifier: n, partition: partition, feed: &n.feeds[partition], size: logread.Size{Events: n.cfg.PageEvents, Bytes: pageBytes}}
}

// partitionState is the state of a partition at the start of a step.
type partitionState struct {
	folded   logread.Cursor
	position events.Position
	// revision is the revision of the partition, which grows when badges change without events. All
	// devices then become due, one page of users after the other. marked is the last revision for
	// which the first page became due. Until the last page, `after` is the last user whose devices
	// became due; then `after` is nil.
	revision, marked int64
	after            *string
	devices, badges  bool // whether there are devices, and webhooks that want badges
	rounds           bool // whether a round through the members of a room is due
	// reported merges the batches since the last call of feed.take.
	reported lastBatches
	// caughtUp is true when the devices for all folded events are due.
	caughtUp bool
}

func (s *partitionState) targets() []any {
	return append(s.folded.Targets(), &s.position.TransactionID, &s.position.Offset, &s.revision, &s.marked, &s.after, &s.devices, &s.badges, &s.rounds)
}

// drain makes devices of the partition due: the devices of all users that folded events have
// changed. It returns the time until the next call of drain.
func (w *worker) drain(ctx context.Context) (pause time.Duration, err error) {
	pause, err = w.drainHeld(ctx)
	if err != nil && eventlog.IsGone(ctx, w.cfg.Pool, w.partition) {
		return w.cfg.IdleInterval, nil
	}
	return pause, err
}

// drainHeld does the work of drain for a partition that this database holds.
func (w *worker) drainHeld(ctx context.Context) (pause time.Duration, err error) {
	for ctx.Err() == nil {
		began := time.Now()
		s := partitionState{reported: w.feed.take()} // take the reports before reading the tables, so that the tables include them
		if err := w.cfg.Pool.QueryRow(ctx, statements.Of(w.partition, "read the partition state"), w.cfg.RoomInterval, w.partition, events.ProjectorGroup, events.NotifierGroup).Scan(s.targets()...); err != nil {
			return 0, fmt.Errorf("read the position of the notifier in partition %d: %w", w.partition, err)
		}
		w.devices, w.badges = s.devices, s.badges
		w.feed.listen(w.devices)
		if err := w.settleWebhooks(ctx); err != nil {
			return 0, err
		}
		w.wakeReaders(&s)
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
	return w.cfg.PollInterval, w.deleteOldAlerts(ctx)
}

// wakeReaders wakes the readers of webhooks if events were folded or the revision has changed
// since the last wake-up. It does this at most once in each CallInterval.
func (w *worker) wakeReaders(s *partitionState) {
	if !w.badges || w.shown == s.folded.Position && w.revision == s.revision || time.Since(w.calledAt) < w.cfg.CallInterval {
		return
	}
	w.shown, w.revision, w.calledAt = s.folded.Position, s.revision, time.Now()
	w.readers.readOn(w.partition)
	w.queues.markCallsDue(w.partition)
}

// withoutDevices is called instead of the method step while there are no devices. At intervals, it
// moves the notifier's position to the projector's position without reading the log.
func (w *worker) withoutDevices(ctx context.Context, s *partitionState) (pause time.Duration, err error) {
	if w.idle() || time.Since(w.positionMoved) >= w.cfg.IdleInterval {
		w.positionMoved = time.Now()
		err = w.follow(ctx, s)
	}
	if w.idle() || err != nil {
		return w.cfg.IdleInterval, err
	}
	return w.cfg.CallInterval, nil
}

// rest pauses for ten times the duration of the last step, but at most for PollInterval. This
// limits the CPU time that the notifier uses to follow the projector.
func (w *worker) rest(ctx context.Context, took time.Duration) {
	_ = wait.For(ctx, min(10*took, w.cfg.PollInterval))
}

func (w *worker) idle() bool { return !w.devices && !w.badges }

// step makes devices due: the devices of the users that new events have changed; or, after badges
// have changed without events, the devices of the next page of users; or the devices of the next
// page of members in a round through a room. more reports whether to call step again.
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

// awaits reports whether to wait for a report of the projector in this process instead of reading
// the log. If the last report ends at the notifier's position, this projector will probably
// report the next events soon, so awaits returns true. If no report comes within PollInterval,
// another process has folded the events, and the log must be read.
func (w *worker) awaits(s *partitionState) bool {
	switch {
	case s.reported.to != s.position || s.reported.to == (events.Position{}): // without a report, reported.to is zero, which can equal s.position
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

// move moves the position of the notifier, in the transaction that makes targets due. It fences a
// second notifier: it fails with errFenced unless the stored position equals `from`.
func (w *worker) move(ctx context.Context, tx pgx.Tx, from, to events.Position) error {
	tag, err := tx.Exec(ctx, statements.Of(w.partition, "move"), events.NotifierGroup, from.TransactionID, from.Offset, to.TransactionID, to.Offset)
	if err == nil && tag.RowsAffected() == 0 {
		err = errFenced
	}
	return err
}

// follow moves the notifier's position to the projector's position without reading the log. It is
// called while there are no devices. No device misses a change, because a device is due when it is
// added.
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

// transaction runs the function `do` in a transaction whose commit does not wait for the disk. If
// Postgres loses the commit in a crash, the work is done again.
func (n *Notifier) transaction(ctx context.Context, do func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, n.cfg.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL synchronous_commit = off`); err != nil {
			return err
		}
		return do(tx)
	})
}

// usersPage is the maximum number of users that one query returns when it pages through users.
const usersPage = 1000

// markAll makes the devices of the next usersPage users due. After badges have changed without
// events, it is called until the devices of all users are due.
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

// deleteOldAlerts deletes old alerts, at most alertsStep in each call.
func (w *worker) deleteOldAlerts(ctx context.Context) error {
	if time.Since(w.alertsDeleted) < alertsInterval {
		return nil
	}
	w.alertsDeleted = time.Now()
	deleted, err := w.cfg.Pool.Exec(ctx, statements.Of(w.partition, "delete old alerts"), maxAlertAge, maxShownAge, time.Now(), alertsStep)
	if err != nil {
		return fmt.Errorf("delete old alerts of partition %d: %w", w.partition, err)
	}
	if deleted.RowsAffected() == alertsStep { // there may be more
		w.alertsDeleted = time.Time{}
	}
	return nil
}

const (
	// maxAlertAge is the age at which an alert that was not pushed is dropped and deleted.
	maxAlertAge = 24 * time.Hour
	// maxShownAge is how long a pushed alert can be retracted, counted from the time it was queued.
	// Then the alert is deleted.
	maxShownAge = 7 * 24 * time.Hour
	// alertsInterval is how often old alerts are deleted.
	alertsInterval = time.Minute
	// alertsStep is the maximum number of alerts that one statement deletes.
	alertsStep = 1000
)

// sortedUnique returns the distinct texts in ascending order.
func sortedUnique(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}
