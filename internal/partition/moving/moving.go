// Package moving moves a partition from one shard, the source, to another shard, the target, while
// both serve reads and writes.
//
// The rows are copied while triggers record which rows change. Changed rows are copied again,
// until few changes remain. The log is copied in the order in which it was folded. Then the mover
// closes a gate: a lock that blocks publishers to the partition and ends with the session of the
// mover. All appended events are folded, and the last changes are copied. The source commits that
// it releases the partition, and then the target commits that it holds the partition.
//
// Until the source commits, the source serves the partition as before. After that commit, the
// target needs nothing more from the source. So calling Move again continues an interrupted move.
//
// It does not know the projector's loop or the serving processes: databases refuse writes of
// processes that use an old map of partitions. ADR 83 has the reasons.
package moving

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/partition/copier"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/pg/query"
	"github.com/badged/badged/internal/pg/sqlfile"
)

//go:embed moving.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// Database is a database of the cluster.
type Database struct {
	Name string
	Pool *pgxpool.Pool
	Log  *events.Log
}

// Config configures a move. Databases and To are required.
type Config struct {
	// Databases are all databases of the cluster. Only the source and the target must be
	// reachable.
	Databases []Database
	Partition int
	// To is the name of the target.
	To string

	copier.Options
	// Blocked, if not nil, is called repeatedly while a transaction on a database delays the
	// move.
	Blocked func(database string, holder pgsession.Holder)
}

// Result is the result of a move.
type Result struct {
	Partition int    `json:"partition"`
	From      string `json:"from"`
	To        string `json:"to"`
	copier.Result
	// Resumed is true if an earlier call started the move.
	Resumed bool `json:"resumed"`
	// Split is true if the partition was split after an earlier move. Then this call has only
	// deleted the rows that the earlier move had left on From.
	Split bool `json:"split,omitempty"`
}

// Errors that callers distinguish.
var (
	ErrUnknownShard     = errors.New("there is no such shard")
	ErrUnknownPartition = errors.New("there is no such partition")
	ErrWasSplit         = errors.New("the partition was split already")
	ErrSameShard        = errors.New("the partition is on that shard already")
	ErrAway             = errors.New("the shard cannot be reached")
	ErrOtherMove        = errors.New("the partition is being moved elsewhere")
)

// errNotIt means that a configured database is not the shard with the configured name.
var errNotIt = errors.New("not the shard")

// Move moves a partition to another shard, or continues an interrupted move. After an error the
// source still holds the partition, unless the error text says otherwise.
func Move(ctx context.Context, cfg Config) (Result, error) {
	began := time.Now()
	m, err := open(ctx, cfg)
	if err != nil {
		return Result{}, err
	}
	defer m.close(ctx)
	err = m.run(ctx)
	m.result.Took = time.Since(began)
	return m.result, err
}

// mover is one call of Move.
type mover struct {
	copier.Copy

	cfg            Config
	p              int
	result         Result
	source, target *side
	// onlyOldRows is true if this call only deletes old rows from the source. This is the case if
	// the source released the partition in an earlier move, and the partition was moved again or
	// split later.
	onlyOldRows bool
	// splitAt is the revision of the map in which the partition was split, 0 if the partition
	// was not split.
	splitAt int64
	// counted is a copy of target.move from the time when places were last translated: counted.rows
	// is the number of the source's rows up to the position counted.copied; see addPlaces.
	counted move
	// stored is the last committed state of target.move. If a round or an attempt of the switch
	// fails, target.move is reset to `stored`.
	stored move
	// revoked is the number of the last revocation of tokens that was copied to the target.
	revoked int64
}

// side is the source or the target.
type side struct {
	Database
	*copier.Session

	cluster string // the id of the cluster
	holds   bool   // whether the shard holds the partition
	// revision is the revision of the partition's entry in the shard's map. split is true if this
	// entry says that the partition was split.
	revision   int64
	split      bool
	partitions int
	move       move
}

// move is the partition's row of badged.moves, empty if there is none.
type move struct {
	id, role, source, target, state, epoch string
	// round is the random id of the last round of copying that the shard has stored; see
	// badged.moves in 00007_cluster.sql.
	round    string
	revision int64
	copied   events.Position
	rows     int64
	// baseOffset is the offset after which the target's log gets the copied rows.
	baseOffset int64
	// settled is false if the log of the shard was renumbered after the move began.
	settled bool
}

// States of a move in the tables.
const (
	copying  = "copying"
	copied   = "copied"
	ready    = "ready"
	released = "released"
	held     = "held"

	sourceRole, targetRole = "source", "target"
)

const application = "badged partition move"

// readState reads the state of a partition on the shard.
func (s *side) readState(ctx context.Context, q events.Querier, partition int) error {
	var name, cluster *string
	s.move = move{}
	err := q.QueryRow(ctx, statements.Get("look"), partition).Scan(&name, &cluster, &s.holds, &s.revision, &s.split, &s.partitions,
		&s.move.id, &s.move.role, &s.move.source, &s.move.target, &s.move.revision, &s.move.state,
		&s.move.copied.TransactionID, &s.move.copied.Offset, &s.move.rows, &s.move.baseOffset, &s.move.epoch, &s.move.settled, &s.move.round)
	switch {
	case err != nil:
		return fmt.Errorf("read the map of %s: %w", s.Name, err)
	case name == nil:
		return fmt.Errorf("%w: the database of %s has no shard name: run `badged migrate up` with all --shard flags", errNotIt, s.Name)
	case *name != s.Name:
		return fmt.Errorf("%w: the database of %s says that it is shard %s", errNotIt, s.Name, *name)
	}
	s.cluster = *cluster
	return nil
}

// open determines the source, and opens sessions with both shards.
func open(ctx context.Context, cfg Config) (m *mover, err error) {
	cfg.SetDefaults()
	if cfg.Blocked == nil {
		cfg.Blocked = func(string, pgsession.Holder) {}
	}
	m = &mover{cfg: cfg, p: cfg.Partition, result: Result{Partition: cfg.Partition, To: cfg.To}}
	var names []string
	var away error
	var left *side
	for _, s := range cfg.Databases {
		names = append(names, s.Name)
		one := &side{Database: s}
		if err := one.readState(ctx, s.Pool, m.p); err != nil {
			if !isAway(err) {
				return nil, err
			}
			away = errors.Join(away, fmt.Errorf("%w: %s: %w", ErrAway, s.Name, err))
			if s.Name == cfg.To {
				return nil, away
			}
			continue
		}
		if m.p < 0 {
			return nil, fmt.Errorf("%w as %d", ErrUnknownPartition, m.p)
		}
		if one.split {
			m.splitAt = max(m.splitAt, one.revision)
		}
		if s.Name == cfg.To {
			m.target = one
			continue
		}
		// If no shard holds the partition, the source is the shard that released it to the target
		// cfg.To.
		switch {
		case one.holds && m.source != nil && m.source.holds:
			return nil, fmt.Errorf("both %s and %s say that they have partition %d", m.source.Name, s.Name, m.p)
		case one.holds, m.source == nil && one.move.role == sourceRole && one.move.state == released && one.move.target == cfg.To:
			m.source = one
		}
		if one.move.role == sourceRole && one.move.state == released && one.move.target != "" {
			left = one
		}
	}
	if (m.source == nil || !m.source.holds) && m.target != nil && left != nil && m.hasOldRows(left) {
		m.source, m.onlyOldRows = left, true
	}
	switch {
	case m.target == nil:
		return nil, fmt.Errorf("%w as %q: there are %s", ErrUnknownShard, cfg.To, strings.Join(names, ", "))
	case m.target.holds && (m.source == nil || m.source.holds):
		if m.source != nil {
			return nil, fmt.Errorf("both %s and %s say that they have partition %d", m.source.Name, cfg.To, m.p)
		}
		if at := m.target.move; at.role == sourceRole && at.state != released && at.target != "" {
			return nil, fmt.Errorf("%w: partition %d is on %s, and a move of it to %s has begun: continue it with `badged partition move %[2]d --to %[4]s`, or undo it with --undo",
				ErrOtherMove, m.p, cfg.To, at.target)
		}
		return nil, fmt.Errorf("%w: partition %d is on %s", ErrSameShard, m.p, cfg.To)
	case m.source == nil && m.splitAt > 0:
		at := m.target.move
		if at.role == sourceRole && at.state == released && at.target != "" {
			return nil, fmt.Errorf("%w, and %s has old rows of it: `badged partition move %d --to %s` deletes them", ErrWasSplit, cfg.To, m.p, at.target)
		}
		a, b, _ := eventlog.Children(m.p, m.target.partitions)
		return nil, errors.Join(fmt.Errorf("%w: move %d and %d instead; no other shard than %s has old rows of partition %d", ErrWasSplit, a, b, cfg.To, m.p), away)
	case m.source == nil && away == nil && m.p >= m.target.partitions:
		return nil, fmt.Errorf("%w as %d, or it was split", ErrUnknownPartition, m.p)
	case m.source == nil && away != nil:
		return nil, fmt.Errorf("no shard that can be reached has partition %d: %w", m.p, away)
	case m.source == nil:
		return nil, fmt.Errorf("no shard has partition %d: another move of it was interrupted, or a shard was restored to a time before it received the partition; see `badged partition list`", m.p)
	case m.source.cluster != m.target.cluster:
		return nil, fmt.Errorf("%s and %s are shards of different clusters", m.source.Name, m.target.Name)
	}
	if err := m.alone(); err != nil {
		return nil, err
	}
	m.result.From = m.source.Name
	// Always lock in the same order: two moves between the same shards could otherwise get one
	// lock each, and both would fail.
	sides := []*side{m.source, m.target}
	slices.SortFunc(sides, func(a, b *side) int { return strings.Compare(a.Name, b.Name) })
	for _, s := range sides {
		if err := s.open(ctx, m.p, cfg); err != nil {
			m.close(ctx)
			return nil, err
		}
	}
	m.Copy = copier.Copy{
		Session: m.source.Session, Target: m.target.Session, Parts: []copier.Part{{Partition: m.p}}, Operation: m,
		Options: cfg.Options, Result: &m.result.Result,
	}
	// Check again under the locks: another command may have begun or ended a move meanwhile.
	if err := m.alone(); err != nil {
		m.close(ctx)
		return nil, err
	}
	return m, nil
}

// alone fails if a split of the partition has begun, or a move of the partition to another target.
func (m *mover) alone() error {
	switch other := m.source.move; {
	case other.role != sourceRole || m.onlyOldRows:
		return nil
	case other.target == "" && m.source.holds:
		return fmt.Errorf("%w: a split of partition %d was begun; finish it with `badged partition split %[2]d`, or undo it with --undo", ErrOtherMove, m.p)
	case other.target == "":
		return fmt.Errorf("%w as %d: it was split", ErrUnknownPartition, m.p)
	case other.target != m.cfg.To:
		return fmt.Errorf("%w: a move of partition %d to %s was begun; finish it, or undo it with `badged partition move %[2]d --undo`", ErrOtherMove, m.p, other.target)
	}
	return nil
}

// hasOldRows reports whether a shard still has rows of the partition that an earlier move should
// have deleted. This is the case if the shard released the partition, and a later revision of the
// map says that the target holds the partition or that the partition was split.
func (m *mover) hasOldRows(s *side) bool {
	known := m.splitAt
	if m.target.holds {
		known = m.target.revision
	}
	return !s.holds && s.cluster == m.target.cluster &&
		s.move.role == sourceRole && s.move.state == released && s.move.revision < known
}

// open opens the session, which acquires the lock of the job. Under this lock it reads the state
// again.
func (s *side) open(ctx context.Context, partition int, cfg Config) error {
	s.Session = &copier.Session{Condition: s.Name, Partition: partition, MaxWait: cfg.MaxWait, Blocked: func(holder pgsession.Holder) { cfg.Blocked(s.Name, holder) }}
	if err := s.Open(ctx, s.Pool, s.Log, application); err != nil {
		return err
	}
	return s.readState(ctx, s.Conn, partition)
}

func (m *mover) close(ctx context.Context) {
	for _, s := range []*side{m.source, m.target} {
		if s != nil && s.Session != nil {
			s.Close(ctx)
		}
	}
}

// run does the steps of the move that were not done by an earlier call.
func (m *mover) run(ctx context.Context) error {
	from, to := m.source, m.target
	switch {
	case from.holds && to.holds:
		return fmt.Errorf("both %s and %s say that they have partition %d", from.Name, to.Name, m.p)
	case m.onlyOldRows && m.hasOldRows(from):
	case !from.holds && from.hasReleased(to) && !to.has(from.move):
		return lostBy(to, from, m.p)
	case !from.holds && !from.hasReleased(to):
		return fmt.Errorf("partition %d is no longer on %s", m.p, from.Name)
	}
	if from.holds {
		if err := m.copy(ctx); err != nil {
			return m.unchanged(err)
		}
		if err := m.change(ctx); err != nil {
			return err
		}
	} else {
		m.result.Resumed = true
	}
	if !to.holds && !m.onlyOldRows {
		if err := m.hold(ctx); err != nil {
			return fmt.Errorf("partition %d was released by %s, and %s has all its rows but does not hold it yet: run the command again: %w", m.p, from.Name, to.Name, err)
		}
	}
	if !m.onlyOldRows {
		m.updateMaps(ctx, to.Name, from.move.revision)
	}
	defer m.Resumed(ctx, to.Session, m.p)()
	m.result.Split = m.onlyOldRows && !to.holds
	if err := m.cleanUp(ctx); err != nil {
		if m.onlyOldRows && !to.holds {
			return fmt.Errorf("partition %d was split, but its old rows could not be deleted from %s: run the command again: %w", m.p, from.Name, err)
		}
		return fmt.Errorf("partition %d is on %s now, but the old rows could not be deleted from %s: run the command again: %w", m.p, to.Name, from.Name, err)
	}
	return nil
}

// isAway reports whether an error means that a database is unavailable.
func isAway(err error) bool {
	pg, answered := errors.AsType[*pgconn.PgError](err)
	return !errors.Is(err, context.Canceled) && (!answered || strings.HasPrefix(pg.Code, "57P") || strings.HasPrefix(pg.Code, "08")) &&
		!errors.Is(err, errNotIt)
}

// copy copies the partition, and then recorded changes until few changes remain. It does not close
// the gate.
func (m *mover) copy(ctx context.Context) error {
	if err := m.prepare(ctx); err != nil {
		return err
	}
	if m.target.move.state == copying {
		if err := m.Everything(ctx); err != nil {
			return err
		}
		// Store the same round id on both shards. If a later call finds this id on both, neither
		// database was restored to a time before this point, so no copied row is lost.
		round := newID()
		if err := query.Exec(ctx, m.source.Conn, "on "+m.source.Name, statements.Get("the round is"), m.p, round); err != nil {
			return err
		}
		if err := query.Exec(ctx, m.target.Conn, "on "+m.target.Name, statements.Get("the target is"), m.p, copied, nil, round); err != nil {
			return err
		}
		m.target.move.state = copied
	}
	for last := int64(-1); last != m.revoked; {
		last = m.revoked
		if err := m.target.InTransaction(ctx, func(tx pgx.Tx) (err error) {
			m.revoked, err = m.revocations(ctx, tx, last)
			return err
		}); err != nil {
			return err
		}
	}
	return m.CatchUp(ctx)
}

// updateMaps writes the partition's new entry to the maps of the shards that are neither source nor
// target. It ignores errors, since shards also copy new entries from each other's maps.
func (m *mover) updateMaps(ctx context.Context, holder string, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for _, s := range m.cfg.Databases {
		if s.Name != m.source.Name && s.Name != m.target.Name {
			_, _ = s.Pool.Exec(ctx, statements.Get("tell of the map"), m.p, holder, revision)
		}
	}
}

func newID() string { return uuid.NewString() }
