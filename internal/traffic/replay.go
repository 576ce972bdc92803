package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/progress"
)

const (
	defaultBatchSize   = 1000
	maxBatchSize       = 5000 // with the longest ids within what the API takes
	defaultInFlight    = 4
	maxInFlight        = 64
	defaultGiveUpAfter = time.Minute
)

// Config says what to replay, and where to.
type Config struct {
	// File is the path of the traffic file, in one of the formats of
	// [Reader]: compressed where it ends in .gz or .zst; "-" is Stdin.
	File string
	// Stdin is what "-" reads. Nil is os.Stdin.
	Stdin io.Reader
	// Target is where the events go. Required.
	Target Target

	// BatchSize is the most events published at once, up to 5,000. 0 means
	// 1,000. A batch is smaller where its events are large.
	BatchSize int
	// InFlight is how many batches are published at a time, up to 64. 0 means
	// 4. Batches with events whose order matters are published alone.
	InFlight int
	// GiveUpAfter is how long to go on while the target is out of order and
	// nothing succeeds. 0 means a minute.
	GiveUpAfter time.Duration

	// Progress is where progress is shown: as a bar if it is a terminal, as a
	// line every 5 seconds otherwise. Nil shows none.
	Progress io.Writer

	// clock is the system's unless a test has its own.
	clock clock
}

// withDefaults returns c with its zero fields set, or what is wrong with it.
func (c Config) withDefaults() (Config, error) {
	if c.File == "" {
		return c, errors.New("no traffic file given")
	}
	if c.Target == nil {
		return c, errors.New("no target given")
	}
	if c.Stdin == nil {
		c.Stdin = os.Stdin
	}
	if c.BatchSize == 0 {
		c.BatchSize = defaultBatchSize
	}
	if c.BatchSize < 1 || c.BatchSize > maxBatchSize {
		return c, fmt.Errorf("batch size must be from 1 to %d, is %d", maxBatchSize, c.BatchSize)
	}
	if c.InFlight == 0 {
		c.InFlight = defaultInFlight
	}
	if c.InFlight < 1 || c.InFlight > maxInFlight {
		return c, fmt.Errorf("batches in flight must be from 1 to %d, are %d", maxInFlight, c.InFlight)
	}
	if c.GiveUpAfter == 0 {
		c.GiveUpAfter = defaultGiveUpAfter
	}
	if c.GiveUpAfter < 0 {
		return c, fmt.Errorf("the time to give up after must be positive, is %s", c.GiveUpAfter)
	}
	if c.clock == nil {
		c.clock = systemClock{}
	}
	return c, nil
}

// Replay publishes the events of a traffic file, waits until all of them are
// folded, and returns the sums of the badges. Replaying a file again changes
// nothing.
//
// An error names the lines of the file that it is about. Then the summary says
// what was published before it; correct the file or the server and replay
// again. While the target is out of order for a while, as during a restart,
// Replay waits and goes on.
func Replay(ctx context.Context, cfg Config) (Summary, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Summary{}, fmt.Errorf("replay: %w", err)
	}
	r := newReplay(cfg)
	defer r.meter.Close()
	err = r.publish(ctx)
	if err == nil {
		err = r.settle(ctx)
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("replay %s: %w", r.summary.File, context.Cause(ctx))
	}
	return r.summary, err
}

// replay is one replay under way.
type replay struct {
	cfg     Config
	began   time.Time
	meter   *progress.Meter
	retrier *retrier

	// users are those that the events name, in the order of their first; seen
	// has the same. Only the goroutine that reads the file touches them.
	users []string
	seen  map[string]struct{}

	mu      sync.Mutex
	summary Summary
	// positions are the transactions that took the batches.
	positions []int64
}

func newReplay(cfg Config) *replay {
	m := progress.New(cfg.Progress, "replay", cfg.clock.now)
	return &replay{
		cfg:     cfg,
		began:   cfg.clock.now(),
		meter:   m,
		retrier: &retrier{clock: cfg.clock, giveUpAfter: cfg.GiveUpAfter, note: m.Note},
		seen:    map[string]struct{}{},
		summary: Summary{File: nameOf(cfg.File)},
	}
}

// publish reads the file and appends all of it.
func (r *replay) publish(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.cfg.InFlight)
	src, err := openSource(ctx, r.cfg.File, r.cfg.Stdin)
	if err != nil {
		return err
	}
	r.meter.Begin("publish", src.size, true)
	readErr := r.read(ctx, src, group)
	// Where a batch failed for good, reading ended for that reason only.
	err = group.Wait()
	if err == nil {
		err = readErr
	}
	if closeErr := src.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("close %s: %w", src.name, closeErr)
	}
	if err != nil {
		return err
	}
	published := r.cfg.clock.now().Sub(r.began)
	r.summary.PublishSeconds = published.Seconds()
	r.summary.PublishedPerSecond = perSecond(r.summary.Events, published)
	return nil
}

// read reads src to its end and hands its batches to group.
func (r *replay) read(ctx context.Context, src *source, group *errgroup.Group) error {
	batches := batcher{reader: NewReader(src.name, src), size: r.cfg.BatchSize}
	var inFlight sync.WaitGroup
	for ctx.Err() == nil {
		b, err := batches.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		r.meet(b)
		offset := src.offset()
		if b.ordered {
			inFlight.Wait()
			if err := r.append(ctx, src.name, b, offset); err != nil {
				return err
			}
			continue
		}
		inFlight.Add(1)
		group.Go(func() error {
			defer inFlight.Done()
			return r.append(ctx, src.name, b, offset)
		})
	}
	return ctx.Err()
}

// meet remembers the users of a batch.
func (r *replay) meet(b batch) {
	meet := func(user string) {
		if _, ok := r.seen[user]; !ok && user != "" {
			r.seen[user] = struct{}{}
			r.users = append(r.users, user)
		}
	}
	for i := range b.events {
		for _, user := range b.events[i].Data.UserIDs {
			meet(user)
		}
		meet(b.events[i].Data.SenderID)
	}
}

// append publishes one batch, read from the file by when offset bytes of it
// had been.
func (r *replay) append(ctx context.Context, file string, b batch, offset int64) error {
	var position int64
	err := r.retrier.do(ctx, func(ctx context.Context) (err error) {
		position, err = r.cfg.Target.Append(ctx, b.events)
		return err
	})
	if err != nil {
		return b.failed(file, err)
	}
	r.mu.Lock()
	r.positions = append(r.positions, position)
	r.summary.Events += int64(len(b.events))
	for i := range b.events {
		switch b.events[i].Type {
		case events.MessageDelivered:
			r.summary.Messages++
		case events.ConversationRead:
			r.summary.Reads++
		}
	}
	r.mu.Unlock()
	r.meter.Advance(offset, len(b.events))
	return nil
}

// maxMilestones bounds how often settle looks how far the folding is.
const maxMilestones = 64

// settle waits until everything published is folded, and sums the badges.
func (r *replay) settle(ctx context.Context) error {
	// Waiting for one position after another shows progress, which tells a
	// projector that has much to do from one that does not run.
	milestones := spread(r.positions, maxMilestones)
	sample := r.users[:min(len(r.users), MaxBadges)]
	r.meter.Begin("fold", int64(len(milestones)), false)
	for i, position := range milestones {
		err := r.retrier.do(ctx, func(ctx context.Context) error {
			_, err := r.cfg.Target.Badges(ctx, sample, position)
			return err
		})
		if err != nil {
			return fmt.Errorf("wait until %s is folded: %w", r.summary.File, err)
		}
		r.meter.Advance(int64(i+1), 0)
	}
	var sums Summary
	last := milestones[len(milestones)-1]
	for users := range slices.Chunk(r.users, MaxBadges) {
		err := r.retrier.do(ctx, func(ctx context.Context) error {
			badges, err := r.cfg.Target.Badges(ctx, users, last)
			if err != nil {
				return err
			}
			for _, b := range badges {
				sums.TotalUnread += b.Total
				sums.Mentions += b.Mentions
				if b.Total > 0 {
					sums.UsersWithUnread++
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("read the badges after %s: %w", r.summary.File, err)
		}
	}
	folded := r.cfg.clock.now().Sub(r.began)
	r.summary.FoldSeconds = folded.Seconds()
	r.summary.FoldedPerSecond = perSecond(r.summary.Events, folded)
	r.summary.Users = int64(len(r.users))
	r.summary.UsersWithUnread, r.summary.TotalUnread, r.summary.Mentions = sums.UsersWithUnread, sums.TotalUnread, sums.Mentions
	return nil
}

// spread returns up to n of the positions in ascending order, evenly apart,
// the greatest always among them.
func spread(positions []int64, n int) []int64 {
	sorted := slices.Compact(slices.Sorted(slices.Values(positions)))
	if len(sorted) <= n {
		return sorted
	}
	spread := make([]int64, n)
	for i := range spread {
		spread[i] = sorted[(i+1)*len(sorted)/n-1]
	}
	return spread
}
