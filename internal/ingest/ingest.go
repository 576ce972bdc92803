package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/appending"
	"github.com/badged/badged/internal/shards"
)

// Config configures an ingester. Pool, Log and Sources are required.
type Config struct {
	Pool *pgxpool.Pool
	// Log is the log of Pool.
	Log     *events.Log
	Sources []Source
	// Shards, if not nil, are all databases. Pool is one of them: that in which processes
	// share the partitions of brokers.
	Shards *shards.Cluster
	// Admit waits until events may be appended. Default: always at once.
	Admit func(ctx context.Context, evs []events.Event) error
	// Appended is called after a commit with the partitions of the log that have new
	// events, and how many there are. Default: nothing.
	Appended func(partitions []int, events int)
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Metrics defaults to unregistered ones.
	Metrics *Metrics
	// OwnershipInterval is how often processes share the partitions anew. Default 1s.
	OwnershipInterval time.Duration
	// DiscoveryInterval is how often brokers are asked for their partitions. Default 30s.
	DiscoveryInterval time.Duration

	// appender appends to Shards.
	appender *shards.Appender
	// switchTime is for how long a refusal is no failure, since a partition may be moving
	// or be split. Default 10s, ample for a switch on a busy machine.
	switchTime time.Duration
}

// Ingester reads the partitions of brokers. Several processes share them: each partition
// has one reader, and others take over what a process leaves.
type Ingester struct {
	cfg     Config
	sources []*source
}

// New returns an ingester. It does not connect.
func New(cfg Config) (*Ingester, error) {
	if cfg.Pool == nil || cfg.Log == nil || len(cfg.Sources) == 0 {
		return nil, errors.New("ingest: Pool, Log and Sources are required")
	}
	if cfg.Admit == nil {
		cfg.Admit = func(context.Context, []events.Event) error { return nil }
	}
	if cfg.Appended == nil {
		cfg.Appended = func([]int, int) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	if cfg.OwnershipInterval <= 0 {
		cfg.OwnershipInterval = time.Second
	}
	if cfg.switchTime <= 0 {
		cfg.switchTime = 10 * time.Second
	}
	if cfg.DiscoveryInterval <= 0 {
		cfg.DiscoveryInterval = 30 * time.Second
	}
	if cfg.Shards != nil {
		cfg.appender = shards.NewAppender(cfg.Shards, func(s *shards.Shard) events.Append { return appending.To(s.Log) })
	}
	x := &Ingester{cfg: cfg}
	for _, s := range cfg.Sources {
		broker, err := s.open()
		if err != nil {
			x.Close()
			return nil, err
		}
		x.sources = append(x.sources, &source{cfg: &x.cfg, Source: s, broker: broker})
	}
	return x, nil
}

// connectTimeout bounds an attempt to ask a broker for its partitions.
const connectTimeout = 10 * time.Second

// Check connects to every broker, and returns an error for each that cannot be reached
// or has no such stream.
func (x *Ingester) Check(ctx context.Context) error {
	var errs []error
	for _, s := range x.sources {
		if _, err := s.partitions(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Run reads until ctx is done and then returns nil, after what is being stored is
// stored.
func (x *Ingester) Run(ctx context.Context) error {
	var g sync.WaitGroup
	for _, s := range x.sources {
		g.Go(func() { s.run(ctx) })
	}
	g.Wait()
	return nil
}

// Close closes the connections to the brokers. Run must have returned.
func (x *Ingester) Close() {
	for _, s := range x.sources {
		s.broker.Close()
	}
}

// Health returns an error that says which brokers cannot be read now, or nil.
func (x *Ingester) Health() error {
	var texts []string
	for _, s := range x.sources {
		if err := s.trouble(); err != nil {
			texts = append(texts, fmt.Sprintf("%s: %v", s.Name, err))
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}
