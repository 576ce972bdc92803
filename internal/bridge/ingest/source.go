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

	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/pg/pgsession"
)

// source reads one broker.
type source struct {
	Source
	cfg    *Config
	broker Broker

	mu sync.Mutex
	// troubles has the current error of each partition. The key "" has the error of the whole
	// broker.
	troubles map[string]error
}

// run reads the broker's partitions until ctx is done. When the list of partitions changes, it
// divides them among the processes again.
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

func (s *source) partitions(ctx context.Context) ([]Partition, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	partitions, err := s.broker.Partitions(ctx)
	if err != nil {
		return nil, fmt.Errorf("--from %s: %w", s.Shown, err)
	}
	return partitions, nil
}

// share reads this process's share of the partitions, until ctx is done or the broker's list of
// partitions changes. Advisory locks divide the partitions among the processes. The locks only save
// work: if two processes read the same partition, only one process can move the position of the
// partition.
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

// awaitOthers lists the broker's partitions at intervals. It returns when the listed partitions
// differ from the given partitions, or when ctx is done.
func (s *source) awaitOthers(ctx context.Context, partitions []Partition) {
	for wait.For(ctx, s.cfg.DiscoveryInterval) == nil {
		now, err := s.partitions(ctx)
		if err == nil && !slices.Equal(now, partitions) {
			s.cfg.Logger.InfoContext(ctx, "the partitions of a broker have changed", "broker", s.Name, "streams", s.Streams, "partitions", len(now))
			return
		}
	}
}

// lockClass returns the first of the two keys of this source's advisory locks. Locks for different
// purposes have different first keys.
func (s *source) lockClass(purpose string) int {
	h := fnv.New32a()
	fmt.Fprintf(h, "badged ingest %s of %s: %s", purpose, s.Name, strings.Join(s.Streams, " "))
	return int(h.Sum32() >> 1) // the key must be a signed 32-bit number
}

// report stores err for Health. It logs err unless the stored error has the same text. If err is
// nil and an error was stored, report logs that reading works again. partition is "" if the error
// concerns the whole broker.
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

// forget deletes the error of a partition that this process no longer reads.
func (s *source) forget(partition string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.troubles, partition)
}

// trouble returns one of the current errors of the broker and its partitions, nil if there is none.
func (s *source) trouble() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, partition := range slices.Sorted(maps.Keys(s.troubles)) {
		return s.troubles[partition]
	}
	return nil
}

// Bounds of the pause between attempts.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

func newBackoff() *wait.Backoff { return &wait.Backoff{First: firstPause, Last: lastPause} }
