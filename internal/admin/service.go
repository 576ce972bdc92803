package admin

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/eventlog"
	"github.com/badged/badged/projector/deadletters"
	"github.com/badged/badged/projector/lag"
)

// Service implements the operations on one database. Changes are recorded in
// the audit trail. It is safe for concurrent use.
type Service struct {
	pool    *pgxpool.Pool
	log     *events.Log
	letters *deadletters.Letters
	runner  *Runner
	wake    func(partitions []int)
	reads   reads
	// exports has a token for each export that may run.
	exports chan struct{}
}

// NewService returns the service of a database and its log. Jobs run in
// runner; wake tells projectors that partitions have new events.
func NewService(pool *pgxpool.Pool, log *events.Log, runner *Runner, wake func(partitions []int)) *Service {
	return &Service{pool: pool, log: log, letters: deadletters.New(pool, log), runner: runner, wake: wake, exports: make(chan struct{}, maxExports)}
}

// CheckPartition returns why there is no such partition, nil if there is.
func (s *Service) CheckPartition(partition int) error { return s.log.Layout().Check(partition) }

// lagCount is in how many rows of one partition events behind are counted.
const lagCount = 100_000

// Lag returns how far each partition is behind, counted in up to lagCount rows.
func (s *Service) Lag(ctx context.Context) (Lag, error) {
	held, err := eventlog.Held(ctx, s.pool)
	if err != nil {
		return Lag{}, err
	}
	lags, err := lag.Measure(ctx, s.pool, held, lagCount)
	if err != nil {
		return Lag{}, err
	}
	all := NewLag(lags)
	all.Open, err = OpenTransactions(ctx, s.pool, "")
	return all, err
}

// DeadLetters returns up to limit dead letters with an id above after, oldest
// first.
func (s *Service) DeadLetters(ctx context.Context, after int64, limit int) ([]DeadLetter, error) {
	letters, err := s.letters.List(ctx, after, limit)
	if err != nil {
		return nil, err
	}
	list := make([]DeadLetter, len(letters))
	for i, l := range letters {
		list[i] = NewDeadLetter(l)
	}
	return list, nil
}

// RetryDeadLetter publishes a dead letter again, as a new event.
func (s *Service) RetryDeadLetter(ctx context.Context, by Operator, id int64) error {
	receipt, err := RetryDeadLetter(ctx, s.pool, s.letters, by, id)
	if err == nil {
		s.wake(receipt.Partitions)
	}
	return err
}

// DiscardDeadLetter deletes a dead letter and returns it.
func (s *Service) DiscardDeadLetter(ctx context.Context, by Operator, id int64) (DeadLetter, error) {
	return DiscardDeadLetter(ctx, s.pool, s.letters, by, id)
}

// startedJob is the result of starting a job, for the audit trail.
type startedJob struct {
	Job int `json:"job"`
}

// Rebuild starts a rebuild; see [Runner.StartRebuild].
func (s *Service) Rebuild(ctx context.Context, by Operator, options RebuildOptions) (Job, error) {
	return s.start(ctx, by, "rebuild.start", options, func(ctx context.Context) (Job, error) {
		return s.runner.StartRebuild(ctx, options, by)
	})
}

// Verify starts a verification.
func (s *Service) Verify(ctx context.Context, by Operator, options VerifyOptions) (Job, error) {
	return s.start(ctx, by, "verification.start", options, func(ctx context.Context) (Job, error) {
		return s.runner.StartVerification(ctx, options, by)
	})
}

func (s *Service) start(ctx context.Context, by Operator, action string, arguments any, start func(context.Context) (Job, error)) (job Job, err error) {
	err = Audited(ctx, s.pool, by, action, arguments, func(ctx context.Context) (any, error) {
		if job, err = start(ctx); err != nil {
			return nil, err
		}
		return startedJob{job.ID}, nil
	})
	return job, err
}
