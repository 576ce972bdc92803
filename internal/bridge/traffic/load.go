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
	"github.com/badged/badged/internal/base/progress"
)

const (
	defaultBatchSize   = 1000
	maxBatchSize       = 5000 // a request of this size is within the API's limit, even with the longest ids
	defaultInFlight    = 4
	maxInFlight        = 64
	defaultGiveUpAfter = time.Minute
)

// Config configures a load.
type Config struct {
	// File is the path of the traffic file, in a format that [Reader] reads. Files ending in
	// .gz or .zst are decompressed. "-" stands for Stdin. Required unless Rooms is set.
	File string
	// Rooms describes traffic that is generated, instead of read from a file.
	Rooms *RoomTraffic
	// Stdin is read for the path "-". Nil means os.Stdin.
	Stdin io.Reader
	// Target is the destination of the events. Required.
	Target Target

	// BatchSize is the maximum number of events that one call publishes, up to 5,000. 0 means
	// 1,000. A batch has fewer events if the events are large.
	BatchSize int
	// InFlight is the number of batches that are published at the same time, up to 64. 0 means 4.
	// If the order of the events of a batch matters, no other batch is published at the same time.
	InFlight int
	// GiveUpAfter is how long calls are retried while no call succeeds. 0 means one minute.
	GiveUpAfter time.Duration

	// Progress is where progress is shown: as a bar on a terminal, otherwise as a line every 5
	// seconds. Nil shows none.
	Progress io.Writer

	// clock is the system's clock, except in tests.
	clock clock
}

// withDefaults validates c and returns it with defaults for zero fields.
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

// Load publishes the events of a traffic file, or generated events. It waits until all of them are
// folded, and returns the sums of the badges. If Load publishes the same events again, the badges
// do not change.
//
// If Load fails because of bad lines in the file, the error names them. The summary says what was
// published before the failure. The user can correct the file or the server and load again.
// Temporary failures of the target, such as a restart, are retried.
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

// loader runs one load.
type loader struct {
	cfg     Config
	began   time.Time
	meter   *progress.Meter
	retrier *Retrier

	// users has the users of the events, in the order of their first events. seen has the same
	// users as a set. Only the goroutine that reads the traffic uses users and seen.
	users []string
	seen  map[string]struct{}

	mu      sync.Mutex
	summary Summary
	// positions has the ids of the transactions that appended the batches.
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

// records reads the events to publish.
type records struct {
	io.Closer
	name string
	next func() (Record, error)
	// size is the total size, 0 if it is unknown. offset returns how much has been read. The unit
	// of both is a byte of the stored file, or a message if the traffic is generated.
	size   int64
	offset func() int64
}

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

// publish reads the traffic and appends all events.
func (l *loader) publish(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(l.cfg.InFlight)
	src, err := l.cfg.open(ctx)
	if err != nil {
		return err
	}
	l.meter.Begin("publish", src.size, true)
	readErr := l.read(ctx, src, group)
	// If a batch fails, reading fails too, as a consequence. So return the error of the batch.
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

// read reads src to its end. It publishes batches concurrently, in goroutines of group. If the
// order of the events of a batch matters, read publishes no other batch at the same time.
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
		l.addUsers(b)
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

// addUsers records the users of a batch.
func (l *loader) addUsers(b batch) {
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

// append publishes one batch. offset says how much of the traffic has been read so far.
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

// maxMilestones is the maximum number of positions for which settle waits, one after another.
const maxMilestones = 64

// settle waits until all published events are folded, and sums the badges.
func (l *loader) settle(ctx context.Context) error {
	// Wait for the positions one after the other: each position that is reached counts as a
	// success. The retrier would give up if it waited only for the last position and had no success
	// for some time.
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

// Spread sorts the positions, removes duplicates, and returns at most n positions. If there are
// more, it selects every k-th position, where k is about their number divided by n. The greatest
// position is always included.
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
