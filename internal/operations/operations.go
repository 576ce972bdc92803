// Package operations implements what operators do: jobs, the audit trail, lag, rates, dead
// letters, webhooks, and actions on one user. The HTTP API, the command line and the assistant
// use it.
//
// It works on a cluster, which may be a single database, and does not know HTTP or the command
// line. ADR 27 and ADR 82 have the reasons.
package operations

import (
	"cmp"
	"context"
	_ "embed"
	"log/slog"
	"os/user"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/pg/sqlfile"
	"github.com/badged/badged/pubsub"
)

//go:embed operations.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// DB runs statements: a pgx connection, pool or transaction.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Via is the interface that an operator used.
type Via string

// The interfaces.
const (
	ViaAPI  Via = "api"  // the name of the operator is that of an admin key
	ViaCLI  Via = "cli"  // the name of the operator is that of a user of the operating system
	ViaFile Via = "file" // the name of the operator is the name of the process that loaded the file, or of the flag for the file
)

// Operator identifies the operator who acts.
type Operator struct {
	Name string
	Via  Via
}

// OSUser returns the operating system's user of this process.
func OSUser() Operator {
	u, err := user.Current()
	if err != nil {
		return Operator{"unknown", ViaCLI}
	}
	return Operator{u.Username, ViaCLI}
}

// Config configures operations. Cluster is required. The commands of the command line also need
// Append; the other fields are for servers.
type Config struct {
	Cluster *cluster.Cluster
	// Append appends the events of retried dead letters to the databases of their users.
	Append events.Append
	// Wake notifies projectors that partitions have new events. If Wake is nil, projectors find the
	// events when they poll.
	Wake func(partitions []int)
	// Bus receives the corrected state of each user that a job has healed. If it is nil, these
	// states are not published.
	Bus pubsub.Bus
	// Process is the name of this process in the records of jobs. Default [ProcessName].
	Process string
	Logger  *slog.Logger
	// Interval is how often a job records its progress and checks whether it was canceled.
	// Default 1s.
	Interval time.Duration
}

// Operations runs the operations on a cluster. Each change is recorded in the audit trail of the
// database that it changes. Operations is safe for concurrent use.
type Operations struct {
	cfg   Config
	reads reads
	// exports is a semaphore that admits maxExports exports.
	exports chan struct{}

	mu sync.Mutex
	// base is the context of jobs, nil while Run does not run.
	base context.Context //nolint:containedctx // jobs outlive the requests that start them
	jobs sync.WaitGroup
}

// maxExports is the maximum number of concurrent exports in a process. Each export reads the
// whole log.
const maxExports = 2

// New returns the operations on a cluster. Jobs can start only while [Operations.Run] runs.
func New(cfg Config) *Operations {
	if cfg.Wake == nil {
		cfg.Wake = func([]int) {}
	}
	if cfg.Process == "" {
		cfg.Process = ProcessName()
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Interval <= 0 {
		cfg.Interval = time.Second
	}
	return &Operations{cfg: cfg, exports: make(chan struct{}, maxExports)}
}

// CheckPartition fails if the partition does not exist.
func (o *Operations) CheckPartition(partition int) error {
	return o.cfg.Cluster.CheckPartition(partition)
}
