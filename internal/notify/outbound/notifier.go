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

// First keys of the advisory locks on partitions (lockClass) and of the locks that count
// sessions.
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
	// Clock returns the time of the database. Its Check fails while the clock of the process and
	// the clock of the database differ. Default: the clock of the process.
	Clock interface {
		Now() time.Time
		Check() error
	}
	// Logger defaults to a logger that discards everything.
	Logger *slog.Logger
	// Metrics defaults to metrics that are not registered.
	Metrics *Metrics

	// LongestReminder is the longest delay of a reminder by a webhook, 0 if no webhook sends
	// reminders.
	LongestReminder time.Duration
	// RoomInterval is the least time between the starts of two rounds through the members of a
	// room, if the room has more than MaxPromptMembers members in a partition. Default 1m.
	RoomInterval time.Duration
	// PollInterval is how often the notifier checks for events that other processes have folded,
	// while there are targets. It is also the longest pause after the notifier has caught up with
	// the projector. Default 100ms.
	PollInterval time.Duration
	// CallInterval is the least time between two checks of a partition for webhooks. The changes
	// within this time are read and sent together. Default 500ms.
	CallInterval time.Duration
	// IdleInterval is how often the notifier checks a partition without targets, and how often
	// senders look for rows that have become due by time. Default 1s.
	IdleInterval time.Duration
	// OwnershipInterval is how often the notifier counts the other notifiers, and acquires or
	// releases partitions. Default 1s.
	OwnershipInterval time.Duration
	// PageEvents is the maximum number of events in one read of the log. Default 1,000.
	PageEvents int

	// silence is how long an owner may not respond before another process replaces it. Default
	// three times OwnershipInterval.
	silence time.Duration
}

// Notifier owns partitions, makes their devices due, reads the log for webhooks, and gives the
// due targets to the senders in the same process. Any number of notifiers may run on one
// database. Each partition has one owner at a time, since two owners would notify targets twice.
type Notifier struct {
	cfg     NotifierConfig
	log     *slog.Logger
	metrics *Metrics
	wakes   []chan struct{} // by partition
	heard   []heard         // by partition
	lanes   lanes
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

// Run works until ctx is done. Then it stores the last reports and returns nil. Stop the senders
// before, so that their reports are stored.
func (n *Notifier) Run(ctx context.Context) error {
	var g sync.WaitGroup
	g.Go(func() { _ = wait.Every(ctx, measureInterval, n.measure) })
	// Rows also become due by time, or because of other processes.
	g.Go(func() { _ = wait.Every(ctx, n.cfg.IdleInterval, func(context.Context) { n.lanes.lookEverywhere() }) })
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

// Pauses between attempts while the database does not respond.
const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = 2 * time.Second
)

// work makes the devices of a partition due until ctx is done. ctx is canceled once this process
// no longer owns the partition.
func (n *Notifier) work(ctx context.Context, partition int) {
	w := n.worker(partition)
	defer w.heard.listen(false)
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

// worker makes the devices of one partition due. It also notifies the readers of webhooks when
// events were folded.
type worker struct {
	*Notifier
	partition int
	heard     *heard
	size      logread.Size
	// devices is set if there were devices when the partition state was last read, badges if
	// there were webhooks that want badges. Both may be stale, but a target that is added later
	// is due when it is added.
	devices, badges bool
	// awaited is when the worker began to wait for the projector to report folded events. It is
	// zero if the worker does not wait.
	awaited time.Time
	// settled is when old alerts were last deleted. settledWebhooks is when the positions of
	// webhooks were last checked. followed is when the position was last moved while there were
	// no devices.
	settled, settledWebhooks, followed time.Time
	// calledAt is when the readers of webhooks were last notified. shown is the position up to
	// which the projector had folded then, and revision the partition's revision then.
	shown    events.Position
	revision int64
	calledAt time.Time
}

func (n *Notifier) worker(partition int) *worker {
	return &worker{Notifier: n, partition: partition, heard: &n.heard[partition], size: logread.Size{Events: n.cfg.PageEvents, Bytes: pageBytes}}
}

// partitionState is the state of a partition at the start of a step.
type partitionState struct {
	folded   logread.Cursor
	position events.Position
	// revision is the revision of the partition, which grows when badges change without events.
	// marked is the last revision for which all devices were made due. If after is not nil, this
	// is not complete: it was done only for the users up to after.
	revision, marked int64
	after            *string
	devices, badges  bool // whether there are devices, and webhooks that want badges
	rounds           bool // whether a round through the members of a room is due
	// said has what the projector of this process has reported since the last call of heard.take.
	said said
	// caughtUp is set when the devices of all folded events are due.
	caughtUp bool
}

func (s *partitionState) targets() []any {
	return append(s.folded.Targets(), &s.position.TransactionID, &s.position.Offset, &s.revision, &s.marked, &s.after, &s.devices, &s.badges, &s.rounds)
}

// drain makes all devices due that can be made due now. It returns the time until the next drain.
func (w *worker) drain(ctx context.Context) (pause time.Duration, err error) {
	pause, err = w.drainHeld(ctx)
	if err != nil && eventlog.Gone(ctx, w.cfg.Pool, w.partition) {
		return w.cfg.IdleInterval, nil
	}
	return pause, err
}

// drainHeld drains a partition that this database holds.
func (w *worker) drainHeld(ctx context.Context) (pause time.Duration, err error) {
	for ctx.Err() == nil {
		began := time.Now()
		s := partitionState{said: w.heard.take()} // before the tables are read, so that the tables include the reports
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

// showFolded makes the readers of webhooks continue if events were folded or the revision has
// changed, at most once in each CallInterval.
func (w *worker) showFolded(s *partitionState) {
	if !w.badges || w.shown == s.folded.Position && w.revision == s.revision || time.Since(w.calledAt) < w.cfg.CallInterval {
		return
	}
	w.shown, w.revision, w.calledAt = s.folded.Position, s.revision, time.Now()
	w.readers.readOn(w.partition)
	w.lanes.lookForCalls(w.partition)
}

// withoutDevices does the work while there are no devices: at intervals, it moves the notifier's
// position to the projector's position without reading the log.
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

// rest pauses ten times as long as the last step took, but at most PollInterval. So following the
// projector uses a limited part of a processor.
func (w *worker) rest(ctx context.Context, took time.Duration) {
	_ = wait.For(ctx, min(10*took, w.cfg.PollInterval))
}

func (w *worker) idle() bool { return !w.devices && !w.badges }

// step makes devices due for one of these reasons: new events, a new revision, or a round through
// the members of a room. It reports whether there is more to do.
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
// the log. It waits if this projector has reported everything up to the notifier's position,
// since then it is probably about to report the next events too. If no report comes within
// PollInterval, another process has folded the events, and the log must be read.
func (w *worker) awaits(s *partitionState) bool {
	switch {
	case s.said.to != s.position || s.said.to == (events.Position{}): // a position may be zero, too
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
// second notifier: it fails with errFenced if the stored position is not from.
func (w *worker) move(ctx context.Context, tx pgx.Tx, from, to events.Position) error {
	tag, err := tx.Exec(ctx, statements.Of(w.partition, "move"), events.NotifierGroup, from.TransactionID, from.Offset, to.TransactionID, to.Offset)
	if err == nil && tag.RowsAffected() == 0 {
		err = errFenced
	}
	return err
}

// follow moves the notifier's position to the projector's position without reading the log. No
// target misses a change, since every target that is added later is due at once.
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

// transaction runs a transaction without waiting for its commit to be durable. If Postgres loses
// the commit in a crash, the work is done again.
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

// markAll makes the devices of the next usersPage users due. It is called after badges have
// changed without events, until the devices of all users are due.
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

// deleteSettled deletes old alerts, at most alertsStep in each call.
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
	// maxAlertAge is the age from which an alert is not pushed any more and is deleted.
	maxAlertAge = 24 * time.Hour
	// maxShownAge is how long an alert can be retracted after it was queued. Then it is deleted.
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
