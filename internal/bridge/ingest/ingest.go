package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
)

// Config configures an ingester. Pool, Log and Sources are required.
type Config struct {
	Pool *pgxpool.Pool
	// Log is the log of Pool.
	Log     *events.Log
	Sources []Source
	// Cluster has all databases if there are several, else nil. With several databases, processes
	// use Pool only to divide the partitions of the brokers among themselves.
	Cluster *cluster.Cluster
	// Admit blocks until events may be appended. By default it does not block.
	Admit func(ctx context.Context, evs []events.Event) error
	// Appended is called after each commit with the partitions of the log that got new events, and
	// the number of new events. Default: no call.
	Appended func(partitions []int, events int)
	// Logger defaults to a logger that discards everything.
	Logger *slog.Logger
	// Metrics defaults to unregistered metrics.
	Metrics *Metrics
	// OwnershipInterval is how often processes redistribute the brokers' partitions. Default 1s.
	OwnershipInterval time.Duration
	// DiscoveryInterval is how often the partitions of brokers are listed. Default 30s.
	DiscoveryInterval time.Duration

	// appender appends to the databases of Cluster.
	appender *cluster.Appender
	// switchTime is how long appends may be refused before the refusal is reported as an error.
	// While a partition of the log is moved or split, the databases refuse its events for a short
	// time. Default 10s, which is enough even on a busy machine.
	switchTime time.Duration
}

// Ingester reads the partitions of brokers. Several processes divide the partitions among
// themselves, so that each partition has one reader. When a process ends, the other processes read
// its partitions.
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
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Metrics = cmp.Or(cfg.Metrics, NewMetrics(nil))
	if cfg.OwnershipInterval <= 0 {
		cfg.OwnershipInterval = time.Second
	}
	if cfg.switchTime <= 0 {
		cfg.switchTime = 10 * time.Second
	}
	if cfg.DiscoveryInterval <= 0 {
		cfg.DiscoveryInterval = 30 * time.Second
	}
	if cfg.Cluster != nil {
		cfg.appender = cluster.NewAppender(cfg.Cluster, func(s *cluster.Database) events.Append { return s.Log.AppendOwn })
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

// connectTimeout bounds one attempt to list the partitions of a broker.
const connectTimeout = 10 * time.Second

// Check connects to every broker. It returns an error for each broker that cannot be read: it does
// not answer, or a topic or JetStream stream is missing or has the wrong retention. A Redis stream
// need not exist yet.
func (x *Ingester) Check(ctx context.Context) error {
	var errs []error
	for _, s := range x.sources {
		if _, err := s.partitions(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Run appends the messages of the brokers to the log until ctx is done. Then it waits for its own
// open transactions and returns nil.
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

// Health returns an error that names each broker that cannot be read at present, or nil if all
// brokers can be read.
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
