package operations

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/partition/rebuild"
	"github.com/badged/badged/internal/partition/replay"
)

// jobMeter is the Meter of a job. It is safe for concurrent use.
type jobMeter struct {
	now   func() time.Time
	began time.Time

	mu          sync.Mutex
	done, total int64
	// resumed is the progress of an interrupted job that this job continues.
	resumed int64
	events  int64
	note    string
}

// Begin implements Meter.
func (m *jobMeter) Begin(_ string, total int64, _ bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total = total
}

// Advance implements Meter.
func (m *jobMeter) Advance(done int64, events int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.events == 0 && events == 0 && m.done == 0 {
		m.resumed = done
	}
	m.done = max(m.done, done)
	m.events += int64(events)
}

// Note implements Meter.
func (m *jobMeter) Note(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note = text
}

// finish sets the progress to complete.
func (m *jobMeter) finish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total = max(m.total, 1)
	m.done, m.note = m.total, ""
}

func (m *jobMeter) progress() JobProgress {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := JobProgress{Events: m.events, Note: m.note}
	if m.total == 0 {
		return p
	}
	p.Done = float64(m.done) / float64(m.total)
	if worked := m.done - m.resumed; worked > 0 && m.done < m.total {
		left := math.Round(m.now().Sub(m.began).Seconds() * float64(m.total-m.done) / float64(worked))
		p.SecondsLeft = &left
	}
	return p
}

func (m *jobMeter) text() string {
	text, _ := storedJSON(m.progress()) // numbers and text always encode
	return text
}

// maxFound is the maximum number of differences that the result of a job lists.
const maxFound = 100

// rebuiltResult is the result of a rebuild of one or all partitions. First has up to maxFound
// differences.
type rebuiltResult struct {
	Rebuilt
	First []replay.Difference `json:"first,omitempty"`
}

// Rebuild starts one job in each selected database, which rebuilds the selected partitions there.
// It returns the first job, whose field Others has the ids of the other jobs. While another rebuild
// of partitions runs, Rebuild fails: with a [*RebuildJobError] if that rebuild is a job, otherwise
// with a [*rebuild.RunningError].
func (o *Operations) Rebuild(ctx context.Context, operator Operator, options RebuildOptions) (Job, error) {
	databases, err := RebuildTargets(o.cfg.Cluster, options)
	if err != nil {
		return Job{}, err
	}
	if databases == nil {
		databases = o.cfg.Cluster.Databases()
	}
	var tasks []task
	for _, s := range databases {
		t := task{db: s, kind: KindRebuild, arguments: options}
		if options.User != "" {
			t.work = func(ctx context.Context, _ *jobMeter) (any, error) {
				return Heal(ctx, replay.NewVerifier(s.Pool, s.Log), s.Log.PartitionOf(options.User), options.User, o.cfg.Bus)
			}
		} else {
			t.allowed = rebuildAllowed
			t.work = func(ctx context.Context, meter *jobMeter) (any, error) {
				var result rebuiltResult
				var err error
				result.Rebuilt, err = Rebuild(ctx, rebuild.Config{
					Pool: s.Pool, Log: s.Log, Bus: o.cfg.Bus,
					Partition: options.Partition, Anew: options.Anew, MaxLoad: options.MaxLoad,
				}, meter, func(p rebuild.Result) {
					result.First = append(result.First, p.First[:min(len(p.First), maxFound-len(result.First))]...)
				})
				return result, err
			}
		}
		tasks = append(tasks, t)
	}
	return o.start(ctx, operator, tasks)
}

// RebuildJobError means that the job with this id is rebuilding partitions.
type RebuildJobError struct{ ID int }

// Error implements error.
func (e *RebuildJobError) Error() string {
	return fmt.Sprintf("another rebuild is under way: job %d; wait for it, or cancel it", e.ID)
}

// rebuildAllowed fails if partitions are being rebuilt, by a job or by a command. It looks for a
// job first, because a job that has just started may not have the lock of rebuilds yet.
func rebuildAllowed(ctx context.Context, tx pgx.Tx) error {
	var id int
	err := tx.QueryRow(ctx, statements.Get("find a rebuild of partitions")).Scan(&id)
	if err == nil {
		return &RebuildJobError{id}
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("look for another rebuild: %w", err)
	}
	return rebuild.Running(ctx, tx)
}

// verifiedResult is the result of a verification. First has up to maxFound differences.
type verifiedResult struct {
	Verified
	First []replay.Difference `json:"first,omitempty"`
}

// Verify starts a verification job in each selected database. It returns the first job, whose field
// Others has the ids of the other jobs.
func (o *Operations) Verify(ctx context.Context, operator Operator, options VerifyOptions) (Job, error) {
	parts, err := VerifyTargets(o.cfg.Cluster, options)
	if err != nil {
		return Job{}, err
	}
	var tasks []task
	for _, s := range o.cfg.Cluster.Databases() {
		part, ok := parts[s]
		if !ok {
			continue
		}
		tasks = append(tasks, task{db: s, kind: KindVerification, arguments: part, work: func(ctx context.Context, meter *jobMeter) (any, error) {
			var result verifiedResult
			var err error
			result.Verified, err = Verify(ctx, replay.NewVerifier(s.Pool, s.Log), s.Log, part, meter, func(d replay.Difference) {
				if len(result.First) < maxFound {
					result.First = append(result.First, d)
				}
			})
			return result, err
		}})
	}
	return o.start(ctx, operator, tasks)
}
