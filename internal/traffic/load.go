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
	maxBatchSize       = 5000 // within the API's size limit, even with the longest ids
	defaultInFlight    = 4
	maxInFlight        = 64
	defaultGiveUpAfter = time.Minute
)

// Config configures a load.
type Config struct {
	// File is the path of the traffic file, in a format that [Reader] reads.
	// Files ending in .gz or .zst are decompressed; "-" is Stdin. Required, unless
	// Rooms is set.
	File string
	// Rooms is traffic to generate instead of reading a file.
	Rooms *RoomTraffic
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
	// GiveUpAfter is how long to retry while every call fails. 0 means a
	// minute.
	GiveUpAfter time.Duration

	// Progress is where progress is shown: as a bar if it is a terminal, as a
	// line every 5 seconds otherwise. Nil shows none.
	Progress io.Writer

	// clock is the system's clock, except in tests.
	clock clock
}

// withDefaults returns c with defaults for zero fields, or an error.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Rooms != nil && c.File != "":
		return c, errors.New("both a traffic file and generated traffic given")
	case c.Rooms != nil:
		if err := c.Rooms.validate(); err != nil {
			return c, err
		}
	case c.File == "":
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
		return c, fmt.Errorf("batch size must be from 1 to %d, not %d", maxBatchSize, c.BatchSize)
	}
	if c.InFlight == 0 {
		c.InFlight = defaultInFlight
	}
	if c.InFlight < 1 || c.InFlight > maxInFlight {
		return c, fmt.Errorf("batches in flight must be from 1 to %d, not %d", maxInFlight, c.InFlight)
	}
	if c.GiveUpAfter == 0 {
		c.GiveUpAfter = defaultGiveUpAfter
	}
	if c.GiveUpAfter < 0 {
		return c, fmt.Errorf("the time to give up after must be positive, not %s", c.GiveUpAfter)
	}
	if c.clock == nil {
		c.clock = systemClock{}
	}
	return c, nil
}

// Load publishes the events of a traffic file, or generated ones, waits until all of
// them are folded, and returns the sums of the badges. Loading them again changes
// nothing.
//
// An error names the lines of the file at fault, and the summary says what was
// published before. Correct the file or the server and load again. Load waits
// out temporary failures of the target, such as a restart.
func Load(ctx context.Context, cfg Config) (Summary, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Summary{}, fmt.Errorf("load: %w", err)
	}
	l := newLoader(cfg)
	defer l.meter.Close()
	err = l.publish(ctx)
	if err == nil {
		err = l.settle(ctx)
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("load %s: %w", l.summary.File, context.Cause(ctx))
	}
	return l.summary, err
}

// loader publishes one file.
type loader struct {
	cfg     Config
	began   time.Time
	meter   *progress.Meter
	retrier *Retrier

	// users are the users that the events name, in order of appearance; seen
	// holds the same users. Only the goroutine that reads the file uses them.
	users []string
	seen  map[string]struct{}

	mu      sync.Mutex
	summary Summary
	// positions are the ids of the transactions that appended the batches.
	positions []int64
}

func newLoader(cfg Config) *loader {
	m := progress.New(cfg.Progress, "load", cfg.clock.now)
	return &loader{
		cfg:     cfg,
		began:   cfg.clock.now(),
		meter:   m,
		retrier: &Retrier{clock: cfg.clock, giveUpAfter: cfg.GiveUpAfter, note: m.Note},
		seen:    map[string]struct{}{},
		summary: Summary{File: cfg.name()},
	}
}

// name returns the name of the traffic in messages.
func (c *Config) name() string {
	if c.Rooms != nil {
		return "generated rooms"
	}
	return nameOf(c.File)
}

// records are the events to be published.
type records struct {
	io.Closer
	name string
	next func() (Record, error)
	// size is how large all of it is, 0 if that is unknown, and offset how much of it
	// has been read: bytes of a file, or messages.
	size   int64
	offset func() int64
}

// open opens the traffic.
func (c *Config) open(ctx context.Context) (*records, error) {
	if c.Rooms != nil {
		g := newRoomGenerator(*c.Rooms)
		return &records{io.NopCloser(nil), c.name(), g.Next, int64(c.Rooms.Messages), func() int64 { return int64(g.messages) }}, nil
	}
	src, err := OpenFile(ctx, c.File, c.Stdin)
	if err != nil {
		return nil, err
	}
	return &records{src, src.Name, NewReader(src.Name, src).Next, src.Size, src.Offset}, nil
}

// publish reads the traffic and appends all of it.
func (l *loader) publish(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(l.cfg.InFlight)
	src, err := l.cfg.open(ctx)
	if err != nil {
		return err
	}
	l.meter.Begin("publish", src.size, true)
	readErr := l.read(ctx, src, group)
	// A failed batch also ends reading, so its error comes first.
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
	published := l.cfg.clock.now().Sub(l.began)
	l.summary.PublishSeconds = published.Seconds()
	l.summary.PublishedPerSecond = perSecond(l.summary.Events, published)
	return nil
}

// read reads src to its end and hands its batches to group.
func (l *loader) read(ctx context.Context, src *records, group *errgroup.Group) error {
	batches := batcher{read: src.next, size: l.cfg.BatchSize}
	var inFlight sync.WaitGroup
	for ctx.Err() == nil {
		b, err := batches.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		l.meet(b)
		offset := src.offset()
		if b.ordered {
			inFlight.Wait()
			if err := l.append(ctx, src.name, b, offset); err != nil {
				return err
			}
			continue
		}
		inFlight.Add(1)
		group.Go(func() error {
			defer inFlight.Done()
			return l.append(ctx, src.name, b, offset)
		})
	}
	return ctx.Err()
}

// meet remembers the users of a batch.
func (l *loader) meet(b batch) {
	meet := func(user string) {
		if _, ok := l.seen[user]; !ok && user != "" {
			l.seen[user] = struct{}{}
			l.users = append(l.users, user)
		}
	}
	for i := range b.events {
		for _, user := range b.events[i].Data.UserIDs {
			meet(user)
		}
		meet(b.events[i].Data.SenderID)
	}
}

// append publishes one batch. offset is how much of the traffic had been read by
// then.
func (l *loader) append(ctx context.Context, file string, b batch, offset int64) error {
	var position int64
	err := l.retrier.Do(ctx, func(ctx context.Context) (err error) {
		position, err = l.cfg.Target.Append(ctx, b.events)
		return err
	})
	if err != nil {
		return b.failed(file, err)
	}
	l.mu.Lock()
	l.positions = append(l.positions, position)
	l.summary.Events += int64(len(b.events))
	for i := range b.events {
		switch b.events[i].Type {
		case events.MessageDelivered, events.RoomPosted:
			l.summary.Messages++
		case events.ConversationRead:
			l.summary.Reads++
		}
	}
	l.mu.Unlock()
	l.meter.Advance(offset, len(b.events))
	return nil
}

// maxMilestones bounds how many positions settle waits for.
const maxMilestones = 64

// settle waits until everything published is folded, and sums the badges.
func (l *loader) settle(ctx context.Context) error {
	// Waiting for one position after another shows progress, and so tells a
	// busy projector from one that does not run.
	milestones := Spread(l.positions, maxMilestones)
	sample := l.users[:min(len(l.users), MaxBadges)]
	l.meter.Begin("fold", int64(len(milestones)), false)
	for i, position := range milestones {
		err := l.retrier.Do(ctx, func(ctx context.Context) error {
			_, err := l.cfg.Target.Badges(ctx, sample, position)
			return err
		})
		if err != nil {
			return fmt.Errorf("wait until %s is folded: %w", l.summary.File, err)
		}
		l.meter.Advance(int64(i+1), 0)
	}
	var sums Summary
	last := milestones[len(milestones)-1]
	for users := range slices.Chunk(l.users, MaxBadges) {
		err := l.retrier.Do(ctx, func(ctx context.Context) error {
			badges, err := l.cfg.Target.Badges(ctx, users, last)
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
			return fmt.Errorf("read the badges after %s: %w", l.summary.File, err)
		}
	}
	folded := l.cfg.clock.now().Sub(l.began)
	l.summary.FoldSeconds = folded.Seconds()
	l.summary.FoldedPerSecond = perSecond(l.summary.Events, folded)
	l.summary.Users = int64(len(l.users))
	l.summary.UsersWithUnread, l.summary.TotalUnread, l.summary.Mentions = sums.UsersWithUnread, sums.TotalUnread, sums.Mentions
	return nil
}

// Spread returns up to n of the positions, ascending and evenly spaced. The
// greatest is always included.
func Spread(positions []int64, n int) []int64 {
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
