package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/projector/rebuild"
	"github.com/badged/badged/projector/replay"
)

// jobMeter is the Meter of a job. It is safe for concurrent use.
type jobMeter struct {
	now   func() time.Time
	began time.Time

	mu          sync.Mutex
	done, total int64
	// resumed is the progress that an earlier job made.
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

// progress returns the progress of the job.
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
	b, _ := json.Marshal(m.progress()) // numbers and text always encode
	return string(b)
}

// foundAtMost is the most differences that the result of a job lists.
const foundAtMost = 100

// rebuiltResult is the result of a rebuild of one or all partitions. First has
// the first differences found.
type rebuiltResult struct {
	Rebuilt
	First []replay.Difference `json:"first,omitempty"`
}

// StartRebuild starts a rebuild. While another rebuild of partitions runs it
// fails with a [*RebuildJobError], or with a [*rebuild.RunningError] if that
// is not a job.
func (r *Runner) StartRebuild(ctx context.Context, options RebuildOptions, by Operator) (Job, error) {
	if options.User != "" {
		return r.start(ctx, KindRebuild, options, by, nil, func(ctx context.Context, _ *jobMeter) (any, error) {
			did, err := Heal(ctx, replay.NewVerifier(r.cfg.Pool, r.cfg.Log), r.cfg.Log.PartitionOf(options.User), options.User, r.cfg.Bus)
			return did, err
		})
	}
	return r.start(ctx, KindRebuild, options, by, rebuildAllowed, func(ctx context.Context, meter *jobMeter) (any, error) {
		var result rebuiltResult
		var err error
		result.Rebuilt, err = Rebuild(ctx, rebuild.Config{
			Pool: r.cfg.Pool, Log: r.cfg.Log, Bus: r.cfg.Bus,
			Partition: options.Partition, Anew: options.Anew, MaxLoad: options.MaxLoad,
		}, meter, func(p rebuild.Result) {
			result.First = append(result.First, p.First[:min(len(p.First), foundAtMost-len(result.First))]...)
		})
		return result, err
	})
}

// RebuildJobError reports that a job is rebuilding partitions.
type RebuildJobError struct{ ID int }

// Error implements error.
func (e *RebuildJobError) Error() string {
	return fmt.Sprintf("another rebuild is under way: job %d; wait for it, or cancel it", e.ID)
}

// rebuildAllowed fails if a job is rebuilding partitions. A job that has just
// started may not hold the lock of rebuilds yet.
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

// verifiedResult is the result of a verification. First has the first
// differences.
type verifiedResult struct {
	Verified
	First []replay.Difference `json:"first,omitempty"`
}

// StartVerification starts a verification.
func (r *Runner) StartVerification(ctx context.Context, options VerifyOptions, by Operator) (Job, error) {
	return r.start(ctx, KindVerification, options, by, nil, func(ctx context.Context, meter *jobMeter) (any, error) {
		var result verifiedResult
		var err error
		v := replay.NewVerifier(r.cfg.Pool, r.cfg.Log)
		result.Verified, err = Verify(ctx, v, r.cfg.Log, options, meter, func(d replay.Difference) {
			if len(result.First) < foundAtMost {
				result.First = append(result.First, d)
			}
		})
		return result, err
	})
}
