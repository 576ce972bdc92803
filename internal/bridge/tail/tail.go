// Package tail publishes the events of the log, and badges that changed, to message brokers as
// CloudEvents. Delivery is at least once, and in order for each user.
//
// It does not know sockets or devices. ADR 84 has the reasons.
package tail

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/events/topics"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/pg/sqlfile"
	"github.com/badged/badged/projector/badges"
)

//go:embed tail.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// The names of the headers of a record (in Redis, of its fields), and the content type of records.
const (
	headerType      = "content-type"
	headerPartition = topics.MetadataPartition
	headerPlace     = topics.MetadataPlace
	structuredType  = events.ContentType
)

// Config configures a tail. Pool, Log and Targets are required.
type Config struct {
	Pool *pgxpool.Pool
	// Log is the log of Pool.
	Log     *events.Log
	Targets []Target
	// Held returns the partitions that the database of Pool holds, in ascending order. Default: all
	// partitions of the log.
	Held func() []int
	// Changed returns a channel that is closed when the result of Held may have changed. Required
	// if Held is given.
	Changed func() <-chan struct{}
	// Logger defaults to a logger that discards everything.
	Logger *slog.Logger
	// Metrics defaults to unregistered metrics.
	Metrics *Metrics
	// MeasureInterval is how often the lag is measured. Default 5s.
	MeasureInterval time.Duration
}

// Tail publishes to brokers. Several processes divide the partitions among themselves, so that each
// partition is published by one process. When a process ends, other processes continue with its
// partitions.
type Tail struct {
	cfg     Config
	reader  *badges.Reader
	writers []writer

	mu sync.Mutex
	// troubles has the current errors by target and partition: see troubleKey.
	troubles map[string]error
}

// New returns a tail. It does not connect.
func New(cfg Config) (*Tail, error) {
	if cfg.Pool == nil || cfg.Log == nil || len(cfg.Targets) == 0 {
		return nil, errors.New("tail: Pool, Log and Targets are required")
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Metrics = cmp.Or(cfg.Metrics, NewMetrics(nil))
	if cfg.MeasureInterval <= 0 {
		cfg.MeasureInterval = 5 * time.Second
	}
	if cfg.Held == nil {
		cfg.Held, cfg.Changed = func() []int { return cfg.Log.Layout().Living() }, cfg.Log.Changed
	}
	t := &Tail{cfg: cfg, reader: badges.NewReader(cfg.Pool, cfg.Log), troubles: map[string]error{}}
	for _, target := range cfg.Targets {
		w, err := target.open()
		if err != nil {
			t.Close()
			return nil, err
		}
		t.writers = append(t.writers, w)
	}
	return t, nil
}

// Close closes the connections to the brokers. Run must have returned.
func (t *Tail) Close() {
	for _, w := range t.writers {
		w.close()
	}
}

// checkTimeout bounds the check of a broker.
const checkTimeout = 10 * time.Second

// Check connects to every broker. It returns an error for each broker that cannot be written to: it
// does not answer, or the topic, JetStream stream or subject is missing. A Redis stream need not
// exist yet.
func (t *Tail) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var errs []error
	for i, w := range t.writers {
		if err := w.check(ctx); err != nil {
			errs = append(errs, fmt.Errorf("--to %s: %w", t.cfg.Targets[i].Shown, err))
		}
	}
	return errors.Join(errs...)
}

// Run publishes until ctx is done and then returns nil. If a subscription to the log fails for one
// target, Run stops publishing to all targets and returns the error.
func (t *Tail) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var g sync.WaitGroup
	errs := make([]error, len(t.cfg.Targets))
	for i := range t.cfg.Targets {
		g.Go(func() {
			if errs[i] = t.publish(ctx, i); errs[i] != nil {
				cancel()
			}
		})
	}
	g.Wait()
	return errors.Join(errs...)
}

// publish publishes the partitions that the database holds to a target, until ctx is done.
func (t *Tail) publish(ctx context.Context, i int) error {
	target := &t.cfg.Targets[i]
	subscriber, err := topics.NewSubscriber(topics.SubscriberConfig{
		Pool: t.cfg.Pool, Log: t.cfg.Log,
		ConsumerGroup: target.group(), RetryInterval: retryInterval, Logger: watermill.NewSlogLogger(t.cfg.Logger),
	})
	if err != nil {
		return fmt.Errorf("publish to %s: %w", target.Shown, err)
	}
	defer subscriber.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var g sync.WaitGroup
	defer g.Wait()
	following := map[int]context.CancelFunc{}
	for measures := false; ; {
		changed, held := t.cfg.Changed(), t.cfg.Held()
		for p, stop := range following {
			if !slices.Contains(held, p) { // the partition was moved to another database
				stop()
				delete(following, p)
				t.forget(target, p)
			}
		}
		added := slices.DeleteFunc(slices.Clone(held), func(p int) bool { return following[p] != nil })
		for _, p := range added { // initialize all added partitions before publishing any of them
			t.initialize(ctx, subscriber, target, p)
		}
		if !measures {
			measures = true
			g.Go(func() { t.measure(ctx, target) })
		}
		for _, p := range added {
			ctx, stop := context.WithCancel(ctx)
			following[p] = stop
			w := &worker{Tail: t, target: target, writer: t.writers[i], partition: p}
			g.Go(func() {
				defer stop()
				if err := subscriber.Follow(ctx, events.Topic(p), w.handle); err != nil {
					cancel(err)
				}
			})
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if err := context.Cause(ctx); !errors.Is(err, ctx.Err()) {
				return err
			}
			return nil
		}
	}
}

// forget deletes the error and the lag of a partition that this process no longer publishes.
func (t *Tail) forget(target *Target, partition int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.troubles, troubleKey(target, partition))
	t.cfg.Metrics.lag.DeleteLabelValues(target.Name, strconv.Itoa(partition))
}

func troubleKey(target *Target, partition int) string {
	return fmt.Sprintf("%s, partition %d", target.Name, partition)
}

// retryInterval is the pause after an error.
const retryInterval = 500 * time.Millisecond

// initialize stores the position at which a new target begins in a partition. It retries while
// Postgres cannot be reached.
func (t *Tail) initialize(ctx context.Context, subscriber *topics.Subscriber, target *Target, partition int) {
	for {
		err := subscriber.SubscribeInitialize(events.Topic(partition))
		if err == nil {
			_, err = t.cfg.Pool.Exec(ctx, statements.Get("create the state"), target.group(), partition)
		}
		t.report(ctx, target, partition, err)
		if err == nil || ctx.Err() != nil {
			return
		}
		_ = wait.For(ctx, retryInterval)
	}
}

// report stores err for Health. It logs err unless the stored error has the same text. If err is
// nil and an error was stored, report logs that publishing works again.
func (t *Tail) report(ctx context.Context, target *Target, partition int, err error) {
	if ctx.Err() != nil || err != nil && eventlog.IsGone(ctx, t.cfg.Pool, partition) { // not a failure: the process is stopping, or the partition has moved to another database
		return
	}
	key := troubleKey(target, partition)
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.troubles[key]
	switch {
	case err != nil:
		t.cfg.Metrics.failed.WithLabelValues(target.Name).Inc()
		t.troubles[key] = err
		if before == nil || before.Error() != err.Error() {
			t.cfg.Logger.ErrorContext(ctx, "cannot publish to a broker; trying again", "target", target.Name, "partition", partition, "error", err)
		}
	case before != nil:
		delete(t.troubles, key)
		t.cfg.Logger.InfoContext(ctx, "publishing again", "target", target.Name, "partition", partition)
	}
}

// Health returns an error that names each target and partition that cannot be published at present,
// or nil if there is none.
func (t *Tail) Health() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var texts []string
	for _, key := range slices.Sorted(maps.Keys(t.troubles)) {
		texts = append(texts, key+": "+t.troubles[key].Error())
	}
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

// measure measures the lag of a target until ctx is done.
func (t *Tail) measure(ctx context.Context, target *Target) {
	_ = wait.Repeat(ctx, t.cfg.MeasureInterval, func(ctx context.Context) {
		for _, p := range t.cfg.Held() {
			var seconds float64
			if err := t.cfg.Pool.QueryRow(ctx, statements.Of(p, "measure"), events.ProjectorGroup, target.group()).Scan(&seconds); err != nil {
				if eventlog.IsGone(ctx, t.cfg.Pool, p) {
					continue
				}
				if ctx.Err() == nil {
					t.cfg.Logger.WarnContext(ctx, "cannot measure the lag; its metrics keep their last values", "target", target.Name, "error", err)
				}
				break
			}
			t.cfg.Metrics.lag.WithLabelValues(target.Name, strconv.Itoa(p)).Set(seconds)
		}
	})
}
