package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pgsession"
	"github.com/badged/badged/pubsub"
)

// RunnerConfig configures a runner. Pool, Log and Process are required.
type RunnerConfig struct {
	Pool *pgxpool.Pool
	Log  *events.Log
	// Bus receives the users that a job corrected; nil means none.
	Bus pubsub.Bus
	// Process names this one in the records of jobs.
	Process string
	Logger  *slog.Logger
	// Interval is how often a job records its progress and checks whether it
	// was canceled. Default 1s.
	Interval time.Duration
}

// Runner runs jobs in this process. It is safe for concurrent use.
type Runner struct {
	cfg RunnerConfig

	mu sync.Mutex
	// base is the context of jobs; nil before Run and when it ends.
	base context.Context //nolint:containedctx // jobs outlive the requests that start them
	jobs sync.WaitGroup
}

// NewRunner returns a runner. It starts jobs only while Run runs.
func NewRunner(cfg RunnerConfig) (*Runner, error) {
	if cfg.Pool == nil || cfg.Log == nil || cfg.Process == "" {
		return nil, errors.New("admin: Pool, Log and Process are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Interval <= 0 {
		cfg.Interval = time.Second
	}
	return &Runner{cfg: cfg}, nil
}

// errStopping is the reason when jobs end with the process.
var errStopping = errors.New("the server was stopped")

// errCanceled is the reason when an operator has canceled a job.
var errCanceled = errors.New("canceled")

// ErrNotRunning is returned by a runner that is not running.
var ErrNotRunning = errors.New("this process takes no jobs: it is starting or stopping")

// Run allows jobs until ctx is done, and returns once they have ended.
func (r *Runner) Run(ctx context.Context) error {
	base, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	r.mu.Lock()
	r.base = base
	r.mu.Unlock()
	<-ctx.Done()
	r.mu.Lock()
	r.base = nil
	r.mu.Unlock()
	stop(errStopping)
	r.jobs.Wait()
	return nil
}

// work does the work of a job. It returns a result, also on failure; nil means
// none.
type work func(ctx context.Context, meter *jobMeter) (result any, err error)

// maxJobs is how many jobs of this process may run at a time: each takes
// memory.
const maxJobs = 3

// keptJobs is how many jobs are kept that have ended.
const keptJobs = 1000

// ErrTooManyJobs is returned if maxJobs jobs are running.
var ErrTooManyJobs = fmt.Errorf("%d jobs run in this process already, the most allowed; wait for one to end, or cancel one", maxJobs)

// startedJob is the result of starting a job, for the audit trail.
type startedJob struct {
	Job int `json:"job"`
}

// start begins a job for an operator, and records that in the audit trail.
func (r *Runner) start(ctx context.Context, kind Kind, arguments any, by Operator, allowed func(ctx context.Context, tx pgx.Tx) error, do work) (job Job, err error) {
	err = Audited(ctx, r.cfg.Pool, by, string(kind)+".start", arguments, func(ctx context.Context) (any, error) {
		if job, err = r.begin(ctx, kind, arguments, by, allowed, do); err != nil {
			return nil, err
		}
		return startedJob{job.ID}, nil
	})
	return job, err
}

// begin begins a job and returns its record. allowed, unless nil, is called in
// the transaction that inserts the record, one call at a time.
func (r *Runner) begin(ctx context.Context, kind Kind, arguments any, by Operator, allowed func(ctx context.Context, tx pgx.Tx) error, do work) (Job, error) { //nolint:contextcheck // a job outlives its request
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.base == nil {
		return Job{}, ErrNotRunning
	}
	text, err := json.Marshal(arguments)
	if err != nil {
		return Job{}, fmt.Errorf("encode the arguments of a job: %w", err)
	}
	// A separate connection holds the lock while the job runs.
	conn, err := pgsession.OpenSession(ctx, r.cfg.Pool.Config().ConnConfig, "badged job "+r.cfg.Process)
	if err != nil {
		return Job{}, fmt.Errorf("begin a job: %w", err)
	}
	var job Job
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statements.Get("admit one job at a time")); err != nil {
			return err
		}
		if err := reap(ctx, tx); err != nil {
			return err
		}
		var running int
		if err := tx.QueryRow(ctx, statements.Get("count the jobs of a process"), r.cfg.Process).Scan(&running); err != nil {
			return err
		}
		if running >= maxJobs {
			return ErrTooManyJobs
		}
		if allowed != nil {
			if err := allowed(ctx, tx); err != nil {
				return err
			}
		}
		job, err = oneJob(ctx, tx, "record it", statements.Get("begin a job"), kind, string(text), by.Name, r.cfg.Process)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, statements.Get("forget old jobs"), keptJobs); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, statements.Get("lock a job"), jobClass, job.ID)
		return err
	})
	if err != nil {
		pgsession.CloseSession(ctx, conn)
		return Job{}, fmt.Errorf("start a %s: %w", kind, err)
	}
	run := &running{runner: r, job: job, conn: conn, meter: &jobMeter{now: time.Now, began: time.Now()}}
	base := r.base
	r.jobs.Go(func() { run.run(base, do) })
	return job, nil
}

// running is a job that runs in this process.
type running struct {
	runner *Runner
	job    Job
	// conn holds the lock of the job.
	conn  *pgx.Conn
	meter *jobMeter
}

// run does the work and records its end.
func (j *running) run(base context.Context, do work) {
	defer pgsession.CloseSession(base, j.conn)
	ctx, cancel := context.WithCancelCause(base)
	defer cancel(nil)
	type outcome struct {
		result any
		err    error
	}
	worked := make(chan outcome, 1)
	go func() {
		result, err := do(ctx, j.meter)
		worked <- outcome{result, err}
	}()
	beat := time.NewTicker(j.runner.cfg.Interval)
	defer beat.Stop()
	for {
		select {
		case o := <-worked:
			j.end(ctx, o.result, o.err)
			return
		case <-beat.C:
			if ctx.Err() == nil {
				if err := j.beat(ctx); err != nil {
					cancel(err)
				}
			}
		}
	}
}

// beat records the progress. After an error the job must end.
func (j *running) beat(ctx context.Context) error {
	// A session that does not answer counts as lost: it must not block
	// cancellation, or the end of the job.
	ctx, cancel := context.WithTimeout(ctx, endPatience)
	defer cancel()
	var cancelRequested bool
	err := j.conn.QueryRow(ctx, statements.Get("report on a job"), j.job.ID, j.meter.text()).Scan(&cancelRequested)
	if err != nil {
		return fmt.Errorf("the session that holds the job's lock: %w", err)
	}
	if cancelRequested {
		return errCanceled
	}
	return nil
}

// end records how the job ended.
func (j *running) end(ctx context.Context, result any, did error) {
	state, told := StateDone, (*string)(nil)
	if did != nil {
		state = StateFailed
		why := did
		if cause := context.Cause(ctx); cause != nil {
			switch why = cause; {
			case errors.Is(cause, errCanceled):
				state = StateCanceled
			case errors.Is(cause, errStopping):
				state = StateInterrupted
			}
		}
		if state != StateCanceled {
			text := why.Error()
			told = &text
		}
		if state == StateFailed {
			j.runner.cfg.Logger.WarnContext(ctx, "a job has failed", "kind", j.job.Kind, "id", j.job.ID, "error", why)
		}
	} else {
		j.meter.finish()
	}
	text, err := jsonText(result)
	endCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer cancel()
	if err == nil {
		_, err = j.runner.cfg.Pool.Exec(endCtx, statements.Get("end a job"), j.job.ID, state, j.meter.text(), text, told)
	}
	if err != nil {
		j.runner.cfg.Logger.WarnContext(endCtx, "cannot record how a job ended", "kind", j.job.Kind, "id", j.job.ID, "state", state, "error", err)
	}
}
