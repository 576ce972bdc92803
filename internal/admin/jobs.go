package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/pgsession"
	"github.com/badged/badged/projector/deadletters"
)

// Kind is what a job does.
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
	// StateInterrupted means that the job's process ended before the job.
	StateInterrupted State = "interrupted"
)

// Job is a rebuild or verification that an operator started. All processes see
// it.
type Job struct {
	ID              int             `json:"id" doc:"The id of the job."`
	Shard           string          `json:"shard,omitempty" doc:"The shard that it works on; absent without shards."`
	Others          []int           `json:"others,omitempty" doc:"The jobs that the same request started on the other shards; only in its answer."`
	Kind            Kind            `json:"kind" enum:"rebuild,verification" doc:"What the job does."`
	State           State           `json:"state" enum:"running,done,failed,canceled,interrupted" doc:"The state of the job. Interrupted: its process stopped or died."`
	Arguments       json.RawMessage `json:"arguments" doc:"The body of the request that started it."`
	StartedBy       string          `json:"started_by" doc:"The name of the admin key that started it."`
	StartedAt       time.Time       `json:"started_at" doc:"When it started."`
	Process         string          `json:"process" doc:"The process that runs it, as host/pid."`
	Progress        JobProgress     `json:"progress" doc:"How far it is."`
	CancelRequested bool            `json:"cancel_requested" doc:"Whether an operator has canceled it."`
	EndedAt         *time.Time      `json:"ended_at,omitempty" doc:"When it ended; absent while it runs. For an interrupted job, when that was noticed."`
	Result          json.RawMessage `json:"result,omitempty" doc:"A summary of the result, with the fields of badged rebuild --json or badged verify --json, and up to 100 differences in first."`
	Error           *string         `json:"error,omitempty" doc:"Why it failed."`
}

// JobProgress is the progress of a job.
type JobProgress struct {
	Done        float64  `json:"done" doc:"The completed share, from 0 to 1."`
	Events      int64    `json:"events" doc:"Events replayed so far."`
	SecondsLeft *float64 `json:"seconds_left,omitempty" doc:"The remaining seconds at the pace so far; absent if unknown."`
	Note        string   `json:"note,omitempty" doc:"The latest message, such as which session a rebuild waits for."`
}

// jobClass is the first key of the advisory locks of running jobs; the second
// is the id.
const jobClass = 0x6261646a // "badj"

// reap ends the jobs whose process is gone.
func reap(ctx context.Context, db DB) error {
	if _, err := db.Exec(ctx, statements.Get("interrupt jobs without a lock"), jobClass); err != nil {
		return fmt.Errorf("look for jobs that were interrupted: %w", err)
	}
	return nil
}

func scanJob(row pgx.CollectableRow) (j Job, err error) {
	err = row.Scan(&j.ID, &j.Kind, &j.State, (*[]byte)(&j.Arguments), &j.StartedBy, &j.StartedAt, &j.Process, &j.Progress,
		&j.CancelRequested, &j.EndedAt, (*[]byte)(&j.Result), &j.Error)
	j.StartedAt = j.StartedAt.UTC()
	if j.EndedAt != nil {
		*j.EndedAt = j.EndedAt.UTC()
	}
	return j, err
}

// ErrNoJob is returned for an id without a job of the kind.
var ErrNoJob = errors.New("there is no such job")

// ErrJobEnded is returned for canceling a job that has ended.
var ErrJobEnded = errors.New("the job has ended already")

// Jobs returns up to limit jobs of a kind that started before a moment, newest first. It
// returns fewer if they exceed deadletters.MaxPageBytes together, but none only if there are
// no more.
func Jobs(ctx context.Context, db DB, kind Kind, from Moment, limit int) ([]Job, error) {
	if err := reap(ctx, db); err != nil {
		return nil, err
	}
	rows, _ := db.Query(ctx, statements.Get("list jobs"), kind, from.At, from.ID, limit, deadletters.MaxPageBytes)
	jobs, err := pgx.CollectRows(rows, scanJob)
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	return jobs, nil
}

// FindJob returns a job, or [ErrNoJob].
func FindJob(ctx context.Context, db DB, kind Kind, id int) (Job, error) {
	if err := reap(ctx, db); err != nil {
		return Job{}, err
	}
	return oneJob(ctx, db, fmt.Sprintf("read job %d", id), statements.Get("find a job"), kind, id)
}

// CancelJob asks the process that runs a job to cancel it, and returns at once. It
// fails with [ErrNoJob] or [ErrJobEnded].
func CancelJob(ctx context.Context, db DB, by Operator, kind Kind, id int) (job Job, err error) {
	err = Audited(ctx, db, by, string(kind)+".cancel", startedJob{id}, func(ctx context.Context) (any, error) {
		if job, err = FindJob(ctx, db, kind, id); err != nil {
			return nil, err
		}
		if job.State == StateRunning {
			job, err = oneJob(ctx, db, fmt.Sprintf("cancel job %d", id), statements.Get("cancel a job"), kind, id)
			if !errors.Is(err, ErrNoJob) {
				return nil, err
			}
		}
		return nil, fmt.Errorf("cancel job %d: %w", id, ErrJobEnded)
	})
	return job, err
}

func oneJob(ctx context.Context, db DB, doing, sql string, args ...any) (Job, error) {
	rows, _ := db.Query(ctx, sql, args...)
	job, err := pgx.CollectExactlyOneRow(rows, scanJob)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNoJob
	}
	if err != nil {
		return Job{}, fmt.Errorf("%s: %w", doing, err)
	}
	return job, nil
}

// Meter receives the progress of a rebuild, verification or archiving; see
// [progress.Meter]. It is called by one goroutine at a time.
type Meter interface {
	Begin(phase string, total int64, countsEvents bool)
	Advance(done int64, events int)
	Note(text string)
}

// Partitions shows on a meter the progress over partitions, which are worked
// on one after the other. The amount of work on a partition is known only once
// it begins. It implements [replay.Progress].
type Partitions struct {
	meter         Meter
	finished      int64
	planned, done int64 // of the partition at hand
}

// wholePartition is the progress of one whole partition.
const wholePartition = 1000

// BeginPartitions begins a phase of a meter.
func BeginPartitions(m Meter, phase string, partitions int, countsEvents bool) *Partitions {
	m.Begin(phase, wholePartition*int64(partitions), countsEvents)
	return &Partitions{meter: m}
}

// Planned implements replay.Progress.
func (p *Partitions) Planned(_ int, work int64) { p.planned += work }

// Done implements replay.Progress.
func (p *Partitions) Done(work, events int) {
	p.done += int64(work)
	// Less than the whole: after the planned work, a rebuild must catch up,
	// and may wait for readers.
	p.meter.Advance(wholePartition*p.finished+(wholePartition-1)*p.done/max(p.planned, p.done, 1), events)
}

// Blocked implements replay.Progress.
func (p *Partitions) Blocked(partition int, by pgsession.Holder) {
	p.meter.Note(fmt.Sprintf("partition %d waits for %s, %s, which uses its tables; %s", partition, by, by.Open(), by.Remedy()))
}

// Finish records that more partitions are finished.
func (p *Partitions) Finish(partitions int) {
	p.finished += int64(partitions)
	p.planned, p.done = 0, 0
	p.meter.Advance(wholePartition*p.finished, 0)
}
