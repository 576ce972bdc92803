package projector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/archive"
	"github.com/badged/badged/pubsub"
)

// RebuildConfig says what to rebuild and how. Pool and Log are required.
type RebuildConfig struct {
	Pool *pgxpool.Pool
	Log  *events.Log
	// Archive, where not nil, is folded before the log, which otherwise begins
	// with what the tables were at the cut.
	Archive *archive.Archive
	// Bus, where there is one, is told of the users whose badges were wrong, so
	// that their clients take a snapshot at once. All other clients of a
	// partition with a new epoch do when they are reconciled.
	Bus pubsub.Bus

	// Partition is the only one to be rebuilt; nil means all.
	Partition *int
	// Anew begins with the first partition even where an earlier rebuild of all
	// was interrupted, which otherwise goes on with those that are left.
	Anew bool
	// Memory is about how many bytes the state of users may take at a time; with
	// more, the log is gone through more often. Default 512 MiB. The keys of
	// events that a partition remembers come on top, at some 32 bytes each.
	Memory int64
	// MaxLoad is the part of the time that is worked rather than paused, above 0
	// and up to 1, while most of the work is done. Default 1. The end, when the
	// tables have to catch up with the live ones, is never slowed down.
	MaxLoad float64

	// Resumed, where not nil, is called with what an interrupted rebuild has done,
	// before anything else.
	Resumed func([]RebuiltPartition)
	// Planned, where not nil, is called when a partition is begun and whenever it
	// turns out to be more work, with how much, in a unit of its own; Done with
	// how much has been done since, and how many events that was.
	Planned func(partition int, work int64)
	Done    func(work, events int)
	// Blocked, where not nil, is called now and then while the rebuilt tables of a
	// partition wait for a session that reads the live ones and does not end.
	Blocked func(partition, pid int, application string)
	// Rebuilt, where not nil, is called with each partition that is done.
	Rebuilt func(RebuiltPartition)
}

// RebuiltPartition is what became of a partition.
type RebuiltPartition struct {
	Partition     int   `json:"partition"`
	Users         int64 `json:"users"`
	Conversations int64 `json:"conversations"`
	// DifferentUsers is how many users were not what the log says. Where there is
	// one, the partition has new tables and a new epoch; otherwise nothing has
	// changed.
	DifferentUsers int64 `json:"different_users"`
	// First are the differences of the first few of them, in the order of their
	// ids; none of a partition that an interrupted rebuild has done.
	First []Difference `json:"first,omitempty"`
	// Held is how long the projector of the partition had to wait.
	Held time.Duration `json:"-"`
}

// RebuildRunningError says that another rebuild, or an archiving, is under way.
type RebuildRunningError struct {
	// PID is the Postgres process of its session, and Application its
	// application_name.
	PID         int
	Application string
}

// Error implements error.
func (e *RebuildRunningError) Error() string {
	return fmt.Sprintf("another rebuild or archiving is under way: %q (Postgres process %d); wait for it, or end it with SELECT pg_terminate_backend(%[2]d)",
		e.Application, e.PID)
}

// rebuildClass is the first key of the advisory lock of a rebuild, of which
// there may be one in a database.
const rebuildClass = 0x62616472 // "badr"

const takeRebuildSQL = `SELECT pg_try_advisory_lock($1, 0)`

// RebuildRunning returns a [*RebuildRunningError] while a rebuild of partitions
// is under way.
func RebuildRunning(ctx context.Context, q events.Querier) error {
	running := &RebuildRunningError{}
	err := q.QueryRow(ctx, ownerSQL, rebuildClass, 0).Scan(&running.PID, &running.Application)
	switch {
	case err == nil:
		return running
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	}
	return fmt.Errorf("look for another rebuild: %w", err)
}

// Rebuild folds the log of one or all partitions from its start, into tables
// beside the live ones, which keep being served and written. Where they turn
// out to be the same the live ones stay, and nothing changes. Where not, the new
// tables take their place in one short transaction, under a new epoch.
//
// Interrupted, it leaves the partitions that are not done as they were; called
// again, it goes on with them. A second one at the same time fails with a
// [*RebuildRunningError].
func Rebuild(ctx context.Context, cfg RebuildConfig) (err error) {
	cfg.setDefaults()
	r := &rebuild{cfg: cfg, partitions: cfg.Log.Partitions()}
	if err := r.connect(ctx, "badged rebuild"); err != nil {
		return err
	}
	defer func() {
		if cleanErr := r.close(ctx); err == nil {
			err = cleanErr
		}
	}()
	// What one that was killed has left.
	for p := range r.partitions {
		if _, err := r.conn.Exec(ctx, dropShadowSQL, p); err != nil {
			return fmt.Errorf("drop what an earlier rebuild of partition %d has left: %w", p, err)
		}
	}
	if cfg.Partition != nil {
		return r.partition(ctx, *cfg.Partition)
	}
	return r.all(ctx)
}

func (c *RebuildConfig) setDefaults() {
	if c.Memory <= 0 {
		c.Memory = 512 << 20
	}
	if c.MaxLoad <= 0 {
		c.MaxLoad = 1
	}
	if c.Resumed == nil {
		c.Resumed = func([]RebuiltPartition) {}
	}
	if c.Planned == nil {
		c.Planned = func(int, int64) {}
	}
	if c.Done == nil {
		c.Done = func(int, int) {}
	}
	if c.Blocked == nil {
		c.Blocked = func(int, int, string) {}
	}
	if c.Rebuilt == nil {
		c.Rebuilt = func(RebuiltPartition) {}
	}
}

// rebuild is one run of Rebuild.
type rebuild struct {
	cfg        RebuildConfig
	partitions int
	// conn holds the lock, and alone writes: where it is lost, so is the right
	// to write.
	conn *pgx.Conn
	// rested is when the last pause ended.
	rested time.Time
}

// connect opens the session that holds the lock.
func (r *rebuild) connect(ctx context.Context, application string) (err error) {
	if r.conn, err = OpenSession(ctx, r.cfg.Pool.Config().ConnConfig, application); err != nil {
		return err
	}
	for taken := false; err == nil && !taken; {
		if err = r.conn.QueryRow(ctx, takeRebuildSQL, rebuildClass).Scan(&taken); err != nil || taken {
			break
		}
		err = RebuildRunning(ctx, r.conn) // nil where it has ended meanwhile
	}
	if err != nil {
		r.disconnect(ctx)
		return fmt.Errorf("begin %s: %w", application, err)
	}
	return nil
}

func (r *rebuild) disconnect(ctx context.Context) {
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	// It may be broken already. The session ends an instant after the connection.
	_, _ = r.conn.Exec(closeCtx, `SELECT pg_advisory_unlock_all()`)
	_ = r.conn.Close(closeCtx)
}

// close gives up the lock, and drops the tables of a partition that was not
// finished. Where it cannot, the next rebuild does.
func (r *rebuild) close(ctx context.Context) error {
	r.disconnect(ctx)
	if ctx.Err() == nil {
		return nil
	}
	cleanCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return pgx.BeginFunc(cleanCtx, r.cfg.Pool, func(tx pgx.Tx) error {
		// The session may not have ended yet, or another rebuild have begun.
		if _, err := tx.Exec(cleanCtx, `SELECT pg_advisory_xact_lock($1, 0)`, rebuildClass); err != nil {
			return err
		}
		_, err := tx.Exec(cleanCtx, `SELECT badged.drop_rebuild_tables(p) FROM generate_series(0, $1::integer - 1) AS p`, r.partitions)
		return err
	})
}

// all rebuilds the partitions that are left.
func (r *rebuild) all(ctx context.Context) error {
	if r.cfg.Anew {
		if err := r.forget(ctx); err != nil {
			return err
		}
	}
	rows, err := r.conn.Query(ctx, `SELECT partition_id, users, conversations, different_users FROM badged.rebuilt_partitions ORDER BY partition_id`)
	if err != nil {
		return fmt.Errorf("read what is rebuilt: %w", err)
	}
	before, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p RebuiltPartition, err error) {
		err = row.Scan(&p.Partition, &p.Users, &p.Conversations, &p.DifferentUsers)
		return p, err
	})
	if err != nil {
		return fmt.Errorf("read what is rebuilt: %w", err)
	}
	if len(before) > 0 {
		r.cfg.Resumed(before)
	}
	for p := range r.partitions {
		if slices.ContainsFunc(before, func(done RebuiltPartition) bool { return done.Partition == p }) {
			continue
		}
		if err := r.partition(ctx, p); err != nil {
			return err
		}
	}
	return r.forget(ctx)
}

// forget makes the next rebuild of all begin with the first partition.
func (r *rebuild) forget(ctx context.Context) error {
	if _, err := r.conn.Exec(ctx, `DELETE FROM badged.rebuilt_partitions`); err != nil {
		return fmt.Errorf("forget what was rebuilt: %w", err)
	}
	return nil
}

// partition rebuilds a partition and tells the bus who was wrong.
func (r *rebuild) partition(ctx context.Context, partition int) error {
	r.rested = time.Now()
	s := newShadow(r, partition)
	err := s.build(ctx)
	if err == nil {
		r.cfg.Rebuilt(s.result)
		err = r.tell(ctx, partition, s.different)
	}
	if err != nil {
		return fmt.Errorf("rebuild partition %d: %w", partition, err)
	}
	return nil
}

// tell publishes the badges of users whose state is new.
func (r *rebuild) tell(ctx context.Context, partition int, users map[string]struct{}) error {
	if r.cfg.Bus == nil {
		return nil
	}
	reader := NewReader(r.cfg.Pool, r.partitions)
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(users)), MaxBadges) {
		badges, err := reader.Badges(ctx, ids)
		if err != nil {
			return err
		}
		updates := make([]pubsub.Update, len(badges))
		for i, b := range badges {
			// Nobody holds this version of the epoch: everybody reads the state.
			updates[i] = pubsub.Update{Badge: b, Partition: partition, BaseVersion: b.Version, Conversations: []pubsub.Conversation{}}
		}
		if err := r.cfg.Bus.Publish(ctx, updates); err != nil {
			return fmt.Errorf("tell clients, which else hear of it when they are reconciled: %w", err)
		}
	}
	return nil
}

// rest pauses for as long as what was done since the last pause calls for, or
// until ctx is done.
func (r *rebuild) rest(ctx context.Context) {
	worked := time.Since(r.rested)
	if pause := time.Duration(float64(worked) * (1 - r.cfg.MaxLoad) / r.cfg.MaxLoad); pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	r.rested = time.Now()
}
