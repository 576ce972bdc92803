// Package rebuild replays the log of a partition into staging tables. If the live tables differ
// from the staging tables, it replaces the live tables by the staging tables.
//
// It does not know the projector's loop. A lock on the partition's position blocks the projector
// while live tables are replaced. Then a new revision of the partition makes the projector discard
// the rows that it has cached. ADR 19 has the reasons.
package rebuild

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/pg/query"
	"github.com/badged/badged/internal/pg/sqlfile"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

//go:embed rebuild.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// Config configures a rebuild. Pool and Log are required.
type Config struct {
	Pool *pgxpool.Pool
	Log  *events.Log
	// Archive, if not nil, is replayed before the log. If it is nil, the replay starts at the
	// baseline.
	Archive *archive.Archive
	// Bus, if not nil, receives updates for the users whose rows were wrong. These updates make the
	// clients of the users read a snapshot immediately. If the partition has a new epoch, all other
	// clients read a snapshot when they are reconciled.
	Bus pubsub.Bus

	// Partition is the partition to rebuild; nil means all.
	Partition *int
	// Anew makes a rebuild of all partitions start with the first partition. By default, a rebuild
	// of all partitions resumes an interrupted rebuild: it omits the partitions that are rebuilt
	// already.
	Anew bool
	// Memory is the approximate limit in bytes for the state of users during a replay. If the
	// users need more, the log is read several times, each time for another share of the users.
	// Default 512 MiB. In addition, each event key of the partition needs about 64 bytes.
	Memory int64
	// MaxLoad is the fraction of the time in which the rebuild works; the rest of the time it
	// pauses. The value is above 0 and at most 1; the default is 1. MaxLoad does not apply to
	// the last part of a rebuild, when the staging tables catch up with the live tables.
	MaxLoad float64

	// Resumed, if not nil, is called if Run resumes an interrupted rebuild of all partitions. It
	// gets the results of the partitions that are rebuilt already.
	Resumed func([]Result)
	// Progress, if not nil, receives the progress of each partition.
	Progress replay.Progress
	// Rebuilt, if not nil, is called with the result for each finished partition.
	Rebuilt func(Result)
}

// Result is the result for one partition.
type Result struct {
	Partition     int   `json:"partition"`
	Users         int64 `json:"users"`
	Conversations int64 `json:"conversations"`
	// DifferentUsers is the number of users whose rows differed from the log. If it is above 0,
	// the partition has new tables and a new epoch.
	DifferentUsers int64 `json:"different_users"`
	// First are the differences of at most 10 users and at most 10 rooms: the differing users and
	// rooms with the lowest ids. It is empty in results that Config.Resumed gets.
	First []replay.Difference `json:"first,omitempty"`
	// Held is the longest time for which a lock on the projector's position blocked the projector.
	Held time.Duration `json:"-"`
}

// RunningError is returned while another job is running in the database: a rebuild, archiving,
// move, split, restore or erasure.
type RunningError struct {
	// PID is the Postgres process of the session, and Application its application_name.
	PID         int
	Application string
}

// Error implements error.
func (e *RunningError) Error() string {
	return fmt.Sprintf("a rebuild, archiving, move or split is running: %q (Postgres process %d); wait for it, or end it with SELECT pg_terminate_backend(%[2]d)",
		e.Application, e.PID)
}

// rebuildClass is the first key of the advisory lock that every job of a database acquires.
const rebuildClass = 0x62616472 // "badr"

const takeRebuildSQL = `SELECT pg_try_advisory_lock($1, 0)`

// Running returns a [*RunningError] while a job runs.
func Running(ctx context.Context, q events.Querier) error {
	running := &RunningError{}
	err := q.QueryRow(ctx, pgsession.OwnerSQL, rebuildClass, 0).Scan(&running.PID, &running.Application)
	switch {
	case err == nil:
		return running
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	}
	return fmt.Errorf("look for another rebuild: %w", err)
}

// Run replays the log of one or all partitions into staging tables, while the live tables are
// read and written. If staging and live tables are equal, Run drops the staging tables.
// Otherwise one short transaction replaces the live tables by the staging tables, with a new
// epoch.
//
// An interrupted Run leaves unfinished partitions unchanged. The next rebuild of all partitions
// resumes with them. A call fails with a [*RunningError] while another job runs.
func Run(ctx context.Context, cfg Config) (err error) {
	job, err := NewJob(ctx, cfg, "badged rebuild")
	if err != nil {
		return err
	}
	defer func() {
		if cleanErr := job.cleanUp(ctx); err == nil {
			err = cleanErr
		}
	}()
	for _, p := range job.Held {
		what := fmt.Sprintf("drop the staging tables that an earlier rebuild of partition %d left", p)
		if err := query.Exec(ctx, job.Conn, what, dropStagingSQL, p); err != nil {
			return err
		}
	}
	if cfg.Partition != nil {
		return job.partition(ctx, *cfg.Partition)
	}
	return job.all(ctx)
}

func (c *Config) setDefaults() {
	if c.Memory <= 0 {
		c.Memory = 512 << 20
	}
	if c.MaxLoad <= 0 {
		c.MaxLoad = 1
	}
	if c.Resumed == nil {
		c.Resumed = func([]Result) {}
	}
	if c.Progress == nil {
		c.Progress = replay.Unwatched{}
	}
	if c.Rebuilt == nil {
		c.Rebuilt = func(Result) {}
	}
}

// Job is a rebuild, archiving, move, split, restore or erasure. Only one job at a time runs in a
// database.
type Job struct {
	Config     Config
	Partitions int
	// Held are the partitions that the database holds.
	Held []int
	// Conn is the connection whose session has the lock. All writes use this connection, so a job
	// that has lost its lock cannot write.
	Conn *pgx.Conn
	// rested is when the last pause ended.
	rested time.Time
}

// NewJob opens the session of a job with an application_name and acquires the lock. It fails
// with a [*RunningError] if another job has the lock.
func NewJob(ctx context.Context, cfg Config, application string) (*Job, error) {
	cfg.setDefaults()
	conn, err := pgsession.OpenSession(ctx, cfg.Pool.Config().ConnConfig, application)
	if err != nil {
		return nil, err
	}
	j := &Job{Config: cfg, Partitions: cfg.Log.Partitions(), Conn: conn, rested: time.Now()}
	for taken := false; err == nil && !taken; {
		if err = conn.QueryRow(ctx, takeRebuildSQL, rebuildClass).Scan(&taken); err != nil || taken {
			break
		}
		err = Running(ctx, conn) // nil if the other job has just ended
	}
	if err == nil {
		j.Held, err = eventlog.Held(ctx, conn)
	}
	if err != nil {
		j.Close(ctx)
		return nil, fmt.Errorf("begin %s: %w", application, err)
	}
	return j, nil
}

// Close releases the lock and closes the session.
func (j *Job) Close(ctx context.Context) { pgsession.CloseSession(ctx, j.Conn) }

// cleanUp closes the job. If the job was interrupted, cleanUp also drops the staging tables. If it
// cannot drop them, the next rebuild does.
func (j *Job) cleanUp(ctx context.Context) error {
	j.Close(ctx)
	if ctx.Err() == nil {
		return nil
	}
	cleanCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return pgx.BeginFunc(cleanCtx, j.Config.Pool, func(tx pgx.Tx) error {
		// Wait for the lock: Postgres may not have ended the job's session yet, or another job may
		// have begun.
		if _, err := tx.Exec(cleanCtx, `SELECT pg_advisory_xact_lock($1, 0)`, rebuildClass); err != nil {
			return err
		}
		_, err := tx.Exec(cleanCtx, statements.Get("drop the staging tables of all partitions"))
		return err
	})
}

// all rebuilds all partitions, except the partitions that an interrupted rebuild of all partitions
// has finished.
func (j *Job) all(ctx context.Context) error {
	if j.Config.Anew {
		if err := j.forget(ctx); err != nil {
			return err
		}
	}
	var before []Result
	var p Result
	targets := []any{&p.Partition, &p.Users, &p.Conversations, &p.DifferentUsers}
	if err := query.Each(ctx, j.Conn, "read the rebuilt partitions", statements.Get("read the rebuilt partitions"), nil, targets, func() error {
		before = append(before, p)
		return nil
	}); err != nil {
		return err
	}
	if len(before) > 0 {
		j.Config.Resumed(before)
	}
	for _, p := range j.Held {
		if slices.ContainsFunc(before, func(done Result) bool { return done.Partition == p }) {
			continue
		}
		if err := j.partition(ctx, p); err != nil {
			return err
		}
	}
	return j.forget(ctx)
}

// forget deletes the record of rebuilt partitions, so that the next rebuild of all partitions
// starts with the first partition.
func (j *Job) forget(ctx context.Context) error {
	return query.Exec(ctx, j.Conn, "forget the rebuilt partitions", `DELETE FROM badged.rebuilt_partitions`)
}

// partition rebuilds a partition and publishes the badges that were wrong.
func (j *Job) partition(ctx context.Context, partition int) error {
	j.rested = time.Now()
	s := NewStaging(j, partition, stagingSuffix)
	err := s.build(ctx)
	if err == nil {
		j.Config.Rebuilt(s.result)
		err = j.publish(ctx, partition, s.users.different)
	}
	if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		// Add the context's error: if ctx is done, pgx may return the error of the rollback
		// instead.
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	if err != nil {
		return fmt.Errorf("rebuild partition %d: %w", partition, err)
	}
	return nil
}

// publish publishes the badges of users whose rows were wrong.
func (j *Job) publish(ctx context.Context, partition int, users map[string]struct{}) error {
	if j.Config.Bus == nil {
		return nil
	}
	reader := badges.NewReader(j.Config.Pool, j.Config.Log)
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(users)), badges.MaxBadges) {
		badges, err := reader.Badges(ctx, ids)
		if err != nil {
			return err
		}
		updates := make([]pubsub.Update, len(badges))
		for i, b := range badges {
			// A client applies an update only if the client has the update's base version. No
			// client has this version in the new epoch, so every client reads a snapshot.
			updates[i] = pubsub.Update{Badge: b, Partition: eventlog.Ancestor(partition, j.Partitions), BaseVersion: b.Version, Conversations: []pubsub.Conversation{}}
		}
		if err := j.Config.Bus.Publish(ctx, updates, nil); err != nil {
			return fmt.Errorf("publish the new badges; without that, clients get them when they are reconciled: %w", err)
		}
	}
	return nil
}

// rest pauses after work, so that the work takes only the fraction MaxLoad of the time. Work is
// the time since the last pause ended.
func (j *Job) rest(ctx context.Context) {
	worked := time.Since(j.rested)
	if pause := time.Duration(float64(worked) * (1 - j.Config.MaxLoad) / j.Config.MaxLoad); pause > 0 {
		_ = wait.For(ctx, pause)
	}
	j.rested = time.Now()
}
