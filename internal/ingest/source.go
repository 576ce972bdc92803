package ingest

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/badged/badged/internal/pgsession"
	"github.com/badged/badged/internal/wait"
)

// source is a broker that is read.
type source struct {
	Source
	cfg    *Config
	broker Broker

	mu sync.Mutex
	// troubles are the last errors, by partition; "" stands for the whole broker.
	troubles map[string]error
}

// run reads the partitions that there are until ctx is done.
func (s *source) run(ctx context.Context) {
	pauses := newBackoff()
	for ctx.Err() == nil {
		partitions, err := s.partitions(ctx)
		s.report(ctx, "", err)
		if err != nil {
			_ = wait.For(ctx, pauses.Next())
			continue
		}
		pauses.Reset()
		s.share(ctx, partitions)
	}
}

// partitions asks the broker what there is to read.
func (s *source) partitions(ctx context.Context) ([]Partition, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	partitions, err := s.broker.Partitions(ctx)
	if err != nil {
		return nil, fmt.Errorf("--from %s: %w", s.Shown, err)
	}
	return partitions, nil
}

// share reads a fair share of partitions until ctx is done or the broker has others. The
// locks of the owner only save work: the positions move for one reader alone.
func (s *source) share(ctx context.Context, partitions []Partition) {
	ctx, cancel := context.WithCancel(ctx)
	var g sync.WaitGroup
	g.Go(func() {
		defer cancel()
		s.awaitOthers(ctx, partitions)
	})
	defer g.Wait()
	defer cancel()
	all := make([]int, len(partitions))
	for i := range all {
		all[i] = i
	}
	owner := pgsession.Owner{
		Connect: s.cfg.Pool.Config().ConnConfig, Kind: "ingest",
		Class: s.lockClass("partitions"), MemberClass: s.lockClass("members"),
		Held: func() []int { return all }, Interval: s.cfg.OwnershipInterval, Silence: 3 * s.cfg.OwnershipInterval,
		Work: func(ctx context.Context, i int) { s.read(ctx, partitions[i]) },
		Changed: func(owned []int) {
			s.cfg.Metrics.owned.WithLabelValues(s.Name).Set(float64(len(owned)))
		},
		Logger: s.cfg.Logger.With("broker", s.Name, "streams", s.Streams),
	}
	owner.Run(ctx)
}

// awaitOthers returns when the broker has other partitions than these, or ctx is done.
func (s *source) awaitOthers(ctx context.Context, partitions []Partition) {
	tick := time.NewTicker(s.cfg.DiscoveryInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, err := s.partitions(ctx)
		if err == nil && !slices.Equal(now, partitions) {
			s.cfg.Logger.InfoContext(ctx, "the partitions of a broker have changed", "broker", s.Name, "streams", s.Streams, "partitions", len(now))
			return
		}
	}
}

// lockClass returns the first key of advisory locks of this source.
func (s *source) lockClass(purpose string) int {
	h := fnv.New32a()
	fmt.Fprintf(h, "badged ingest %s of %s: %s", purpose, s.Name, strings.Join(s.Streams, " "))
	return int(h.Sum32() >> 1) // Postgres takes 32 bits with a sign
}

// report remembers and logs the state of a partition, or of the broker if that is "".
func (s *source) report(ctx context.Context, partition string, err error) {
	if ctx.Err() != nil { // interrupted
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.troubles[partition]
	switch {
	case err != nil:
		s.cfg.Metrics.failed.WithLabelValues(s.Name).Inc()
		if s.troubles == nil {
			s.troubles = map[string]error{}
		}
		s.troubles[partition] = err
		if before == nil || before.Error() != err.Error() {
			s.cfg.Logger.ErrorContext(ctx, "cannot ingest; trying again", "broker", s.Name, "partition", partition, "error", err)
		}
	case before != nil:
		delete(s.troubles, partition)
		s.cfg.Logger.InfoContext(ctx, "ingesting again", "broker", s.Name, "partition", partition)
	}
}

// forget ends what is remembered of a partition that this process does not read any more.
func (s *source) forget(partition string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.troubles, partition)
}

// trouble returns an error if something cannot be read now.
func (s *source) trouble() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, partition := range slices.Sorted(maps.Keys(s.troubles)) {
		return s.troubles[partition]
	}
	return nil
}

// Pauses between attempts.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

func newBackoff() *wait.Backoff { return &wait.Backoff{First: firstPause, Last: lastPause} }
