package operations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/log/eventlog"
)

// Limits has the configured limits of a gateway; 0 means no limit.
type Limits struct {
	Connections     int     `json:"connections" doc:"The most connections of the process; 0 for no limit."`
	UserConnections int     `json:"user_connections" doc:"The most connections of one user; 0 for no limit."`
	Connects        float64 `json:"connects_per_second" doc:"The most connections per second from one address; 0 for no limit."`
	Commands        float64 `json:"commands_per_second" doc:"The most commands per second of one user; 0 for no limit."`
}

// counted has the counters of a process since its start. Connections is nil if the process is not a
// gateway. Delays is nil if the process is not a projector.
type counted struct {
	// Logged and Folded count the appended and folded events of all partitions in the database.
	// Every process counts the same log.
	Logged int64 `json:"logged"`
	Folded int64 `json:"folded"`
	// Connections is the number of all clients. EventStreams is the number of clients that use
	// server-sent events.
	Connections  *int64  `json:"connections,omitempty"`
	EventStreams int64   `json:"event_streams,omitempty"`
	Frames       int64   `json:"frames,omitempty"`
	Repairs      int64   `json:"repairs,omitempty"`
	Gaps         int64   `json:"gaps,omitempty"`
	Limits       *Limits `json:"limits,omitempty"`
	// Delays counts batches by their delay: the time from the append of the oldest event of a batch
	// to the commit of the batch.
	Delays *histogram `json:"delays,omitempty"`
}

// SamplerConfig configures a sampler. Pool, Gatherer, Process and
// Roles are required.
type SamplerConfig struct {
	Pool DB
	// Gatherer has the metrics of this process.
	Gatherer prometheus.Gatherer
	// Process names this process, as "host/pid"; Roles are its roles.
	Process string
	Roles   []string
	// Limits has the limits of the gateway; nil if the process has none.
	Limits *Limits
	Logger *slog.Logger
	// Interval is the time between two samples. Default SampleInterval.
	Interval time.Duration
}

// ProcessName names this process, as "host/pid".
func ProcessName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

// SampleInterval is the time between two samples of a process.
const SampleInterval = 5 * time.Second

// sampleWindow is how long samples are stored.
const sampleWindow = time.Hour

// Sampler stores the counters of its process, so that the admin API of any process can show all
// processes.
type Sampler struct {
	cfg     SamplerConfig
	started time.Time
	// offsets has the greatest Logged and Folded so far: stored counts must not decrease.
	offsets counted
}

// NewSampler returns a sampler.
func NewSampler(cfg SamplerConfig) (*Sampler, error) {
	if cfg.Pool == nil || cfg.Gatherer == nil || cfg.Process == "" || len(cfg.Roles) == 0 {
		return nil, errors.New("operations: Pool, Gatherer, Process and Roles are required")
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Interval <= 0 {
		cfg.Interval = SampleInterval
	}
	return &Sampler{cfg: cfg, started: time.Now()}, nil
}

// Run stores a sample at each interval until ctx is done. A sample that cannot be written is
// discarded. If several samples in a row fail, only the first failure is logged.
func (s *Sampler) Run(ctx context.Context) error {
	failing := false
	return wait.Repeat(ctx, s.cfg.Interval, func(ctx context.Context) {
		err := s.sample(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			s.cfg.Logger.WarnContext(ctx, "cannot store a sample; the admin page does not show this process", "error", err)
		}
		failing = err != nil
	})
}

// sample stores one sample.
func (s *Sampler) sample(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Interval)
	defer cancel()
	c, err := s.count(ctx)
	if err != nil {
		return err
	}
	text, err := storedJSON(c)
	if err != nil {
		return fmt.Errorf("encode a sample: %w", err)
	}
	if _, err := s.cfg.Pool.Exec(ctx, statements.Get("store a sample"), s.cfg.Process, s.started, s.cfg.Roles, text); err != nil {
		return fmt.Errorf("write a sample: %w", err)
	}
	if _, err := s.cfg.Pool.Exec(ctx, statements.Get("forget old samples"), sampleWindow.Seconds()); err != nil {
		return fmt.Errorf("forget old samples: %w", err)
	}
	return nil
}

// eventsSQL returns a query for the sums of appended and folded events of partitions.
func eventsSQL(partitions []int) string {
	var each []string
	for _, p := range partitions {
		each = append(each, statements.Of(p, "read how far a partition is"))
	}
	return `SELECT coalesce(sum(logged), 0)::bigint, coalesce(sum(folded), 0)::bigint FROM (` + strings.Join(each, "\nUNION ALL\n") + `) AS partitions`
}

// count returns the counters of this process.
func (s *Sampler) count(ctx context.Context) (counted, error) {
	var c counted
	held, err := eventlog.Held(ctx, s.cfg.Pool)
	if err != nil {
		return c, err
	}
	if len(held) > 0 {
		if err := s.cfg.Pool.QueryRow(ctx, eventsSQL(held), events.ProjectorGroup).Scan(&c.Logged, &c.Folded); err != nil {
			return c, fmt.Errorf("count the events of the log: %w", err)
		}
	}
	// Counts that were just read may be lower than earlier counts, since overlapping transactions
	// may commit in another order than the order of their offsets.
	c.Logged, c.Folded = max(c.Logged, s.offsets.Logged), max(c.Folded, s.offsets.Folded)
	s.offsets = c

	families, err := s.cfg.Gatherer.Gather()
	if err != nil {
		return c, fmt.Errorf("gather metrics: %w", err)
	}
	for _, f := range families {
		var total float64
		var h histogram
		for _, m := range f.GetMetric() {
			total += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			below := uint64(0)
			for _, b := range m.GetHistogram().GetBucket() {
				h.observe(b.GetUpperBound(), b.GetCumulativeCount()-below)
				below = b.GetCumulativeCount()
			}
			h.Above += m.GetHistogram().GetSampleCount() - below
		}
		n := int64(total)
		switch f.GetName() {
		case "badged_gateway_connections":
			c.Connections, c.Limits = &n, s.cfg.Limits
		case "badged_gateway_event_streams":
			c.EventStreams = n
		case "badged_gateway_frames_sent_total":
			c.Frames = n
		case "badged_gateway_reconciliation_repairs_total":
			c.Repairs = n
		case "badged_gateway_bus_gaps_total":
			c.Gaps = n
		case "badged_projector_delay_seconds":
			c.Delays = &h
		}
	}
	return c, nil
}
