package operations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/operations/deadletters"
	"github.com/badged/badged/internal/pg/pgsession"
)

// Kind is the kind of a job.
type Kind string

// The kinds.
const (
	KindRebuild      Kind = "rebuild"
	KindVerification Kind = "verification"
)

// State is the state of a job.
type State string

// The states; all but the first are final.
const (
	StateRunning  State = "running"
	StateDone     State = "done"
	StateFailed   State = "failed"
	StateCanceled State = "canceled"
	// StateInterrupted means that the process of the job ended before the job.
	StateInterrupted State = "interrupted"
)

// Job is the record of a rebuild or verification that an operator started. It is in the
// database, so every process can show it.
type Job struct {
	ID              int             `json:"id" doc:"The id of the job."`
	Shard           string          `json:"shard,omitempty" doc:"The name of the shard on which the job works; absent if there are no shards."`
	Others          []int           `json:"others,omitempty" doc:"The ids of the jobs that the same request started on the other shards; only in the answer to this request."`
	Kind            Kind            `json:"kind" enum:"rebuild,verification" doc:"The kind of the job."`
	State           State           `json:"state" enum:"running,done,failed,canceled,interrupted" doc:"The state of the job. interrupted means that the process of the job stopped before the job ended."`
	Arguments       json.RawMessage `json:"arguments" doc:"The body of the request that started the job."`
	StartedBy       string          `json:"started_by" doc:"The name of the admin key that started the job."`
	StartedAt       time.Time       `json:"started_at" doc:"The time of the start."`
	Process         string          `json:"process" doc:"The process that runs the job, as host/pid."`
	Progress        JobProgress     `json:"progress" doc:"The progress of the job."`
	CancelRequested bool            `json:"cancel_requested" doc:"Whether an operator has canceled it."`
	EndedAt         *time.Time      `json:"ended_at,omitempty" doc:"When the job ended; absent while the job runs. For an interrupted job, when another process noticed the interruption."`
	Result          json.RawMessage `json:"result,omitempty" doc:"A summary of the result, with the fields of badged rebuild --json or badged verify --json. The field first has up to 100 differences."`
	Error           *string         `json:"error,omitempty" doc:"The error; absent if there was none."`
}

// JobProgress is the progress of a job.
type JobProgress struct {
	Done        float64  `json:"done" doc:"The part of the job that is done, from 0 to 1."`
	Events      int64    `json:"events" doc:"Events replayed so far."`
	SecondsLeft *float64 `json:"seconds_left,omitempty" doc:"The estimated seconds until the end of the job, from its speed so far; absent if unknown."`
	Note        string   `json:"note,omitempty" doc:"The last message of the job, such as the name of the session for which a rebuild waits."`
}

// jobClass is the first key of the advisory lock of a running job. The second key is the id of the
// job.
const jobClass = 0x6261646a // "badj"

// reap finds jobs that are recorded as running but whose lock no session holds, because their
// process has ended. It records these jobs as interrupted.
func reap(ctx context.Context, db DB) error {
	if _, err := db.Exec(ctx, statements.Get("interrupt jobs without a lock"), jobClass); err != nil {
		return fmt.Errorf("look for jobs that were interrupted: %w", err)
	}
	return nil
}

// scannedJob returns a function that scans a row of s as a job.
func scannedJob(s *cluster.Database) pgx.RowToFunc[Job] {
	return func(row pgx.CollectableRow) (Job, error) {
		j := Job{Shard: s.Name}
		err := row.Scan(&j.ID, &j.Kind, &j.State, (*[]byte)(&j.Arguments), &j.StartedBy, &j.StartedAt, &j.Process, &j.Progress,
			&j.CancelRequested, &j.EndedAt, (*[]byte)(&j.Result), &j.Error)
		j.StartedAt, j.EndedAt = j.StartedAt.UTC(), utc(j.EndedAt)
		return j, err
	}
}

func oneJob(ctx context.Context, db DB, s *cluster.Database, action, sql string, args ...any) (Job, error) {
	rows, _ := db.Query(ctx, sql, args...)
	job, err := pgx.CollectExactlyOneRow(rows, scannedJob(s))
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNoJob
	}
	if err != nil {
		return Job{}, fmt.Errorf("%s: %w", action, err)
	}
	return job, nil
}

// ErrNoJob is returned if no job of the given kind has the id.
var ErrNoJob = errors.New("there is no such job")

// ErrJobEnded is returned if a job cannot be canceled because it has ended.
var ErrJobEnded = errors.New("the job has ended already")

// Jobs returns up to limit jobs of a kind, newest first. The page begins before the job with the id
// `before`, or with the newest job if `before` is 0. A page may be shorter, since it also ends when
// it has deadletters.MaxPageBytes bytes. It is empty only if there are no more jobs. Jobs in
// databases that are unavailable are missing.
func (o *Operations) Jobs(ctx context.Context, kind Kind, before, limit int) ([]Job, error) {
	databases, err := o.cfg.Cluster.Available()
	if err != nil {
		return nil, err
	}
	first, err := cursorAt(ctx, databases, int64(before), statements.Get("find when a job began"))
	if err != nil {
		return nil, err
	}
	return merged(ctx, databases, limit,
		func(a, b Job) int { return compare(a.StartedAt, int64(a.ID), b.StartedAt, int64(b.ID)) },
		func(j Job) int {
			return len(j.Arguments) + len(j.Progress.Note) + len(j.Result) + lengthOf(j.Error)
		},
		func(ctx context.Context, s *cluster.Database, last *Job) ([]Job, error) {
			from := first
			if last != nil {
				from = cursor{&last.StartedAt, int64(last.ID)}
			}
			if err := reap(ctx, s.Pool); err != nil {
				return nil, err
			}
			rows, _ := s.Pool.Query(ctx, statements.Get("list jobs"), kind, from.time, from.id, limit, deadletters.MaxPageBytes)
			return pgx.CollectRows(rows, scannedJob(s))
		})
}

// Job returns a job, or [ErrNoJob].
func (o *Operations) Job(ctx context.Context, kind Kind, id int) (Job, error) {
	_, job, err := o.findJob(ctx, kind, id)
	return job, err
}

// findJob searches all databases for a job, by the function `searched`. If no database has it, the
// error is [ErrNoJob].
func (o *Operations) findJob(ctx context.Context, kind Kind, id int) (*cluster.Database, Job, error) {
	return searched(o.cfg.Cluster, ErrNoJob, func(s *cluster.Database) (Job, error) {
		if err := reap(ctx, s.Pool); err != nil {
			return Job{}, err
		}
		return oneJob(ctx, s.Pool, s, fmt.Sprintf("read job %d", id), statements.Get("find a job"), kind, id)
	})
}

// CancelJob asks the process that runs a job to cancel it, and returns without waiting for that
// process. It fails with [ErrNoJob] or [ErrJobEnded].
func (o *Operations) CancelJob(ctx context.Context, operator Operator, kind Kind, id int) (job Job, err error) {
	s, job, found := o.findJob(ctx, kind, id)
	if s == nil {
		return Job{}, found
	}
	err = Audited(ctx, s.Pool, operator, string(kind)+".cancel", startedJob{id}, func(ctx context.Context) (any, error) { // the trail also records a request for a job that does not exist
		if found != nil {
			return nil, found
		}
		if job.State == StateRunning {
			job, err = oneJob(ctx, s.Pool, s, fmt.Sprintf("cancel job %d", id), statements.Get("cancel a job"), kind, id)
			if !errors.Is(err, ErrNoJob) {
				return nil, err
			}
		}
		return nil, fmt.Errorf("cancel job %d: %w", id, ErrJobEnded)
	})
	return job, err
}

// Meter receives the progress of a rebuild, verification or archiving; see
// [progress.Meter]. It is called by one goroutine at a time.
type Meter interface {
	Begin(phase string, total int64, countsEvents bool)
	Advance(done int64, events int)
	Note(text string)
}

// Partitions reports the progress of work on several partitions, one after the other, to a Meter.
// Each partition has the same share of the progress, since the amount of work on a partition is
// known only when this work begins. Partitions implements [replay.Progress].
type Partitions struct {
	meter         Meter
	finished      int64
	planned, done int64 // of the current partition
}

// wholePartition is the progress of the meter when one partition is finished.
const wholePartition = 1000

// BeginPartitions begins a phase of m that works on the given number of partitions.
func BeginPartitions(m Meter, phase string, partitions int, countsEvents bool) *Partitions {
	m.Begin(phase, wholePartition*int64(partitions), countsEvents)
	return &Partitions{meter: m}
}

// Planned implements replay.Progress.
func (p *Partitions) Planned(_ int, work int64) { p.planned += work }

// Done implements replay.Progress.
func (p *Partitions) Done(work, events int) {
	p.done += int64(work)
	// Stay below wholePartition until Finish: after the planned work, a rebuild still folds the
	// events that were appended meanwhile, and may wait for sessions that read the tables.
	p.meter.Advance(wholePartition*p.finished+(wholePartition-1)*p.done/max(p.planned, p.done, 1), events)
}

// Blocked implements replay.Progress.
func (p *Partitions) Blocked(partition int, holder pgsession.Holder) {
	p.meter.Note(fmt.Sprintf("partition %d waits for %s, %s, which uses its tables; %s", partition, holder, holder.Open(), holder.Remedy()))
}

// Finish records that the given number of further partitions is finished.
func (p *Partitions) Finish(partitions int) {
	p.finished += int64(partitions)
	p.planned, p.done = 0, 0
	p.meter.Advance(wholePartition*p.finished, 0)
}
