package operations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/pg/pgsession"
)

// errStopping is the cause of the cancellation of a job if its process stops.
var errStopping = errors.New("the server was stopped")

// errCanceled is the cause of the cancellation of a job if an operator canceled it.
var errCanceled = errors.New("canceled")

// ErrNotRunning is returned if a job cannot start, since [Operations.Run] does not run.
var ErrNotRunning = errors.New("this process accepts no jobs now: it is starting or stopping")

// Run permits jobs to start until ctx is done. Then it cancels all jobs, and returns after all jobs
// have ended.
func (o *Operations) Run(ctx context.Context) error {
	base, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	o.mu.Lock()
	o.base = base
	o.mu.Unlock()
	<-ctx.Done()
	o.mu.Lock()
	o.base = nil
	o.mu.Unlock()
	stop(errStopping)
	o.jobs.Wait()
	return nil
}

// task is a job to start on a database.
type task struct {
	db        *cluster.Database
	kind      Kind
	arguments any
	// allowed, if not nil, is called in the transaction that inserts the record of the job. If it
	// fails, the job does not start. The transactions of all jobs run one at a time.
	allowed func(ctx context.Context, tx pgx.Tx) error
	// work runs the job. It may return a result together with an error. A nil result means that
	// there is no result.
	work func(ctx context.Context, meter *jobMeter) (result any, err error)
}

// maxJobs is the maximum number of concurrent jobs in this process, since each job needs memory.
const maxJobs = 3

// keptJobs is the number of ended jobs whose records are kept.
const keptJobs = 1000

// ErrTooManyJobs is returned if maxJobs jobs are running in this process.
var ErrTooManyJobs = fmt.Errorf("%d jobs run in this process already, the most allowed; wait for one to end, or cancel one", maxJobs)

// startedJob is the result that the audit trail records for the start of a job.
type startedJob struct {
	Job int `json:"job"`
}

// start starts one job per task, and records each job in the audit trail of its database. The tasks
// have different databases. If one of the databases is unavailable, start starts no job. It returns
// the first job that has started; the field Others of this job has the ids of the other jobs. If a
// job cannot start, start continues with the next task, and returns an error at the end; the jobs
// that have started continue.
func (o *Operations) start(ctx context.Context, operator Operator, tasks []task) (first Job, err error) {
	var databases []*cluster.Database
	taskOf := map[*cluster.Database]task{}
	for _, t := range tasks {
		if err := t.db.Err(); err != nil {
			return Job{}, err
		}
		databases = append(databases, t.db)
		taskOf[t.db] = t
	}
	if len(databases) == len(o.cfg.Cluster.Databases()) {
		if err := o.cfg.Cluster.Incomplete(); err != nil {
			return Job{}, err
		}
	}
	err = o.cfg.Cluster.EachOf(ctx, databases, func(s *cluster.Database) error {
		t := taskOf[s] // a database that has become unavailable is skipped
		return Audited(ctx, s.Pool, operator, string(t.kind)+".start", t.arguments, func(ctx context.Context) (any, error) {
			job, err := o.begin(ctx, operator, t)
			switch {
			case err != nil:
				return nil, err
			case first.ID == 0:
				first = job
			default:
				first.Others = append(first.Others, job.ID)
			}
			return startedJob{job.ID}, nil
		})
	})
	return first, err
}

// begin starts a job and returns its record.
func (o *Operations) begin(ctx context.Context, operator Operator, t task) (Job, error) { //nolint:contextcheck // a job outlives its request
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.base == nil {
		return Job{}, ErrNotRunning
	}
	text, err := storedJSON(t.arguments)
	if err != nil {
		return Job{}, fmt.Errorf("encode the arguments of a job: %w", err)
	}
	// The advisory lock of the job belongs to the session of this connection, which is open while
	// the job runs.
	conn, err := pgsession.OpenSession(ctx, t.db.Pool.Config().ConnConfig, "badged job "+o.cfg.Process)
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
		if err := tx.QueryRow(ctx, statements.Get("count the jobs of a process"), o.cfg.Process).Scan(&running); err != nil {
			return err
		}
		if running >= maxJobs {
			return ErrTooManyJobs
		}
		if t.allowed != nil {
			if err := t.allowed(ctx, tx); err != nil {
				return err
			}
		}
		job, err = oneJob(ctx, tx, t.db, "record it", statements.Get("begin a job"), t.kind, text, storedText(operator.Name), o.cfg.Process)
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
		return Job{}, fmt.Errorf("start a %s: %w", t.kind, err)
	}
	run := &running{task: t, job: job, conn: conn, meter: &jobMeter{now: time.Now, began: time.Now()}, interval: o.cfg.Interval, log: t.db.Logger(o.cfg.Logger)}
	base := o.base
	o.jobs.Go(func() { run.run(base) })
	return job, nil
}

// running is a job that runs in this process.
type running struct {
	task
	job Job
	// conn holds the lock of the job.
	conn     *pgx.Conn
	meter    *jobMeter
	interval time.Duration
	log      *slog.Logger
}

// run does the work of the job and records how it ended.
func (j *running) run(base context.Context) {
	defer pgsession.CloseSession(base, j.conn)
	ctx, cancel := context.WithCancelCause(base)
	defer cancel(nil)
	type outcome struct {
		result any
		err    error
	}
	worked := make(chan outcome, 1)
	go func() {
		result, err := j.work(ctx, j.meter)
		worked <- outcome{result, err}
	}()
	beat := time.NewTicker(j.interval)
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

// beat records the progress. It returns an error if the job must stop: an operator has canceled
// it, or the session with the lock was lost.
func (j *running) beat(ctx context.Context) error {
	// If the session does not answer, treat it as lost: it must not block the cancellation or
	// the end of the job.
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
func (j *running) end(ctx context.Context, result any, failure error) {
	state, told := StateDone, (*string)(nil)
	if failure != nil {
		state = StateFailed
		why := failure
		if cause := context.Cause(ctx); cause != nil {
			switch why = cause; {
			case errors.Is(cause, errCanceled):
				state = StateCanceled
			case errors.Is(cause, errStopping):
				state = StateInterrupted
			}
		}
		if state != StateCanceled {
			told = new(storedText(why.Error()))
		}
		if state == StateFailed {
			j.log.WarnContext(ctx, "a job has failed", "kind", j.job.Kind, "id", j.job.ID, "error", why)
		}
	} else {
		j.meter.finish()
	}
	text, err := jsonText(result)
	endCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer cancel()
	if err == nil {
		_, err = j.db.Pool.Exec(endCtx, statements.Get("end a job"), j.job.ID, state, j.meter.text(), text, told)
	}
	if err != nil {
		j.log.WarnContext(endCtx, "cannot record how a job ended", "kind", j.job.Kind, "id", j.job.ID, "state", state, "error", err)
	}
}
