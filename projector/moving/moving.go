// Package moving moves a partition from one shard to another while both serve.
//
// The rows are copied while triggers record which rows change; changed rows are copied again,
// until few are left. The log is copied in the order in which it was folded. Then a gate closes:
// publishers to the partition wait, the events that they have appended are folded, the last
// changes are copied, the source commits that it releases the partition, and the target commits
// that it holds it. Before the source's commit nothing has changed, and after it the target needs
// nothing from the source: the same call continues an interrupted move. The gate is a lock that
// ends with the session of the mover.
//
// It does not know the loop that folds or the processes that serve: databases refuse those
// with an old map. ADR 83 has the reasons.
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
	"github.com/badged/badged/internal/eventlog"
	"github.com/badged/badged/internal/pgsession"
	"github.com/badged/badged/internal/sqlfile"
	"github.com/badged/badged/projector/internal/follow"
)

//go:embed moving.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// Shard is a database of the cluster.
type Shard struct {
	Name string
	Pool *pgxpool.Pool
	Log  *events.Log
}

// Config says what to move where. Shards and To are required.
type Config struct {
	// Shards are all shards of the cluster. Those that do not take part may be away.
	Shards    []Shard
	Partition int
	// To is the name of the target.
	To string

	// Progress, if not nil, is called with what the move does and, while it copies, with
	// how many rows it has copied. Several calls may have the same step.
	Progress func(step Step, rows int64)
	// Blocked, if not nil, is called from time to time while a transaction delays the move.
	// Source is set if it is one of the source.
	Blocked func(shard string, by pgsession.Holder)
	// MostBlocked is the longest wait for such a transaction: see [pgsession.Blocking].
	MostBlocked time.Duration
	// Patience is about the longest pause of publishers to the partition, and of its folding,
	// in one attempt of the switch. Default 800ms.
	Patience time.Duration
	// Attempts is how many attempts of the switch may exceed Patience. Then the error wraps
	// [ErrBusy]. Default 10.
	Attempts int
}

// Step is what a move does.
type Step string

// The steps, in their order.
const (
	Preparing  Step = "prepare"
	CopyingLog Step = "copy the log"
	Copying    Step = "copy tables"
	CatchingUp Step = "catch up"
	Waiting    Step = "wait until all is folded"
	Switching  Step = "switch"
	CleaningUp Step = "clean up"
)

// Result is what a move has done.
type Result struct {
	Partition int    `json:"partition"`
	From      string `json:"from"`
	To        string `json:"to"`
	// Rows are the copied rows of all tables, those that were copied again included, and
	// LogRows those of the log.
	Rows    int64 `json:"rows"`
	LogRows int64 `json:"log_rows"`
	// Resumed is set if an earlier call had begun the move.
	Resumed bool `json:"resumed"`
	// Split is set if the partition was split since an earlier move, of which old rows were
	// deleted from From.
	Split bool `json:"split,omitempty"`
	// Paused is for how long publishers to the partition waited, until the target had it,
	// and FoldingPaused for how long at most nothing folded it, until a server owned it
	// there. Zero if an earlier call had made the switch; FoldingPaused also if no server
	// owned it within some seconds.
	Paused        time.Duration `json:"paused_ns"`
	FoldingPaused time.Duration `json:"folding_paused_ns"`
	// Attempts are the attempts of the switch.
	Attempts int           `json:"attempts"`
	Took     time.Duration `json:"took_ns"`
}

// Errors that a caller may have to tell apart.
var (
	ErrUnknownShard     = errors.New("there is no such shard")
	ErrUnknownPartition = errors.New("there is no such partition")
	ErrWasSplit         = errors.New("the partition was split already")
	ErrSameShard        = errors.New("the partition is there already")
	ErrAway             = errors.New("the shard cannot be reached")
	ErrOtherMove        = errors.New("the partition is being moved elsewhere")
	ErrBusy             = follow.ErrBusy
)

// errShard is the error of a database that can be reached and is not the shard.
var errShard = errors.New("not the shard")

// Move moves a partition to another shard. It continues a move that was interrupted. An
// error means that the source still has the partition, unless it says otherwise.
func Move(ctx context.Context, cfg Config) (Result, error) {
	if cfg.Progress == nil {
		cfg.Progress = func(Step, int64) {}
	}
	if cfg.Blocked == nil {
		cfg.Blocked = func(string, pgsession.Holder) {}
	}
	if cfg.Patience <= 0 {
		cfg.Patience = 800 * time.Millisecond
	}
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

// mover is a call of Move.
type mover struct {
	cfg    Config
	p      int
	result Result
	// source and target have a session each, which does everything. It holds the lock of
	// a job, so that nothing else replaces tables.
	source, target *side
	// closed is when the gate was closed, zero if an earlier call had made the switch.
	closed time.Time
	// leftOver is set if the source gave the partition to another shard than the target, or
	// it was split since, and only its old rows are to be deleted.
	leftOver bool
	// splitAt is the revision at which the map says that the partition was split, 0 if it
	// was not.
	splitAt int64
	columns map[string]follow.Columns
	// revoked is the number of the last revocation that the target has.
	revoked int64
}

// side is one of the two shards.
type side struct {
	Shard
	*follow.Session

	conn *pgx.Conn
	// cluster is the id of its cluster, holds whether it has the partition, revision that
	// of its map, split whether this says that the partition was split, and move what it
	// knows of a move.
	cluster    string
	holds      bool
	revision   int64
	split      bool
	partitions int
	move       move
}

// move is a row of badged.moves. It is empty without one.
type move struct {
	id, role, source, target, state, epoch string
	// round is the last round of copying that the shard has: see badged.moves in 00007_cluster.sql.
	round    string
	revision int64
	copied   events.Position
	rows     int64
	// behind is the offset behind which those of the target's rows begin.
	behind int64
	// settled is set unless the log was renumbered since.
	settled bool
}

// Phases of a move in the tables.
const (
	copying  = "copying"
	copied   = "copied"
	ready    = "ready"
	released = "released"
	held     = "held"

	sourceRole, targetRole = "source", "target"
)

const application = "badged partition move"

// look reads the state of a partition on a shard.
func (s *side) look(ctx context.Context, q events.Querier, partition int) error {
	var name, cluster *string
	s.move = move{}
	err := q.QueryRow(ctx, statements.Get("look"), partition).Scan(&name, &cluster, &s.holds, &s.revision, &s.split, &s.partitions,
		&s.move.id, &s.move.role, &s.move.source, &s.move.target, &s.move.revision, &s.move.state,
		&s.move.copied.TransactionID, &s.move.copied.Offset, &s.move.rows, &s.move.behind, &s.move.epoch, &s.move.settled, &s.move.round)
	switch {
	case err != nil:
		return fmt.Errorf("read the map of %s: %w", s.Name, err)
	case name == nil:
		return fmt.Errorf("%w: %s is none: run `badged migrate up` with all --shard flags", errShard, s.Name)
	case *name != s.Name:
		return fmt.Errorf("%w: the database of %s says that it is shard %s", errShard, s.Name, *name)
	}
	s.cluster = *cluster
	return nil
}

// open finds the source, and opens the sessions of both shards.
func open(ctx context.Context, cfg Config) (m *mover, err error) {
	m = &mover{cfg: cfg, p: cfg.Partition, columns: map[string]follow.Columns{}, result: Result{Partition: cfg.Partition, To: cfg.To}}
	var names []string
	var away error
	var left *side
	for _, s := range cfg.Shards {
		names = append(names, s.Name)
		one := &side{Shard: s}
		if err := one.look(ctx, s.Pool, m.p); err != nil {
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
		// The move that was interrupted behind the release says which shard had it.
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
	if (m.source == nil || !m.source.holds) && m.target != nil && left != nil && m.leftBy(left) {
		m.source, m.leftOver = left, true
	}
	switch {
	case m.target == nil:
		return nil, fmt.Errorf("%w as %q: there are %s", ErrUnknownShard, cfg.To, strings.Join(names, ", "))
	case m.target.holds && (m.source == nil || m.source.holds):
		if m.source != nil {
			return nil, fmt.Errorf("both %s and %s say that they have partition %d", m.source.Name, cfg.To, m.p)
		}
		if at := m.target.move; at.role == sourceRole && at.state != released && at.target != "" {
			return nil, fmt.Errorf("%w: partition %d is on %s, and a move of it to %s was begun: `badged partition move %[2]d --to %[4]s` goes on, and with --undo it is given up",
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
		return nil, fmt.Errorf("no shard has partition %d: another move of it was interrupted, or a shard was restored from before it got it; `badged partition list` says which", m.p)
	case m.source.cluster != m.target.cluster:
		return nil, fmt.Errorf("%s and %s are shards of different clusters", m.source.Name, m.target.Name)
	}
	if err := m.alone(); err != nil {
		return nil, err
	}
	m.result.From = m.source.Name
	// The locks are taken in one order, so that one of two moves between the same shards gets
	// both.
	sides := []*side{m.source, m.target}
	slices.SortFunc(sides, func(a, b *side) int { return strings.Compare(a.Name, b.Name) })
	for _, s := range sides {
		if err := s.open(ctx, m.p, cfg); err != nil {
			m.close(ctx)
			return nil, err
		}
	}
	// Another command may have begun or ended one until this one got the locks.
	if err := m.alone(); err != nil {
		m.close(ctx)
		return nil, err
	}
	return m, nil
}

// alone fails if another move or a split of the partition was begun.
func (m *mover) alone() error {
	switch other := m.source.move; {
	case other.role != sourceRole || m.leftOver:
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

// leftBy reports whether a shard has only old rows of the partition, which it gave to a
// shard that has moved it on, and the target has it now, or which was split since.
func (m *mover) leftBy(s *side) bool {
	known := m.splitAt
	if m.target.holds {
		known = m.target.revision
	}
	return !s.holds && s.cluster == m.target.cluster &&
		s.move.role == sourceRole && s.move.state == released && s.move.revision < known
}

// open opens the session.
func (s *side) open(ctx context.Context, partition int, cfg Config) error {
	s.Session = &follow.Session{Where: s.Name, Partition: partition, Attempts: cfg.Attempts, Most: cfg.MostBlocked, Tell: func(by pgsession.Holder) { cfg.Blocked(s.Name, by) }}
	if err := s.Open(ctx, s.Pool, s.Log, application); err != nil {
		return err
	}
	s.conn = s.Conn
	return s.look(ctx, s.conn, partition)
}

func (m *mover) close(ctx context.Context) {
	for _, s := range []*side{m.source, m.target} {
		if s != nil && s.Session != nil {
			s.Close(ctx)
		}
	}
}

// run does the remaining steps of the move.
func (m *mover) run(ctx context.Context) error {
	from, to := m.source, m.target
	switch {
	case from.holds && to.holds:
		return fmt.Errorf("both %s and %s say that they have partition %d", from.Name, to.Name, m.p)
	case m.leftOver && m.leftBy(from):
	case !from.holds && from.hasReleased(to) && !to.has(from.move):
		return lostBy(to, from, m.p)
	case !from.holds && !from.hasReleased(to):
		return fmt.Errorf("partition %d has left %s meanwhile", m.p, from.Name)
	}
	if from.holds {
		if err := m.copy(ctx); err != nil {
			return m.stays(err)
		}
		if err := m.change(ctx); err != nil {
			return err
		}
	} else {
		m.result.Resumed = true
	}
	if !to.holds && !m.leftOver {
		if err := m.hold(ctx); err != nil {
			return fmt.Errorf("partition %d has left %s, and %s has all of it but does not know so: run the command again: %w", m.p, from.Name, to.Name, err)
		}
	}
	if !m.leftOver {
		m.tellOthers(ctx, to.Name, from.move.revision)
	}
	if !m.closed.IsZero() {
		resumed := follow.Resumed(ctx, to.Pool, m.closed, m.p)
		defer func() { m.result.FoldingPaused = resumed() }()
	}
	m.result.Split = m.leftOver && !to.holds
	if err := m.cleanUp(ctx); err != nil {
		if m.leftOver && !to.holds {
			return fmt.Errorf("partition %d was split, but its old rows could not be deleted from %s: run the command again: %w", m.p, from.Name, err)
		}
		return fmt.Errorf("partition %d is on %s now, but the old rows could not be deleted from %s: run the command again: %w", m.p, to.Name, from.Name, err)
	}
	return nil
}

// isAway reports whether an error means that a database cannot be reached, rather than
// that it answers something else.
func isAway(err error) bool {
	pg, answered := errors.AsType[*pgconn.PgError](err)
	return !errors.Is(err, context.Canceled) && (!answered || strings.HasPrefix(pg.Code, "57P") || strings.HasPrefix(pg.Code, "08")) &&
		!errors.Is(err, errShard)
}

// copy copies the partition until few changes are left.
func (m *mover) copy(ctx context.Context) error {
	if err := m.prepare(ctx); err != nil {
		return err
	}
	if m.target.move.state == copying {
		if err := m.copyLog(ctx); err != nil {
			return err
		}
		for _, t := range follow.Tables() {
			if t.InRounds() {
				continue
			}
			if err := m.bulk(ctx, t); err != nil {
				return fmt.Errorf("copy %s: %w", t.Name(m.p), err)
			}
		}
		if err := m.analyze(ctx); err != nil {
			return err
		}
		// The source has all that was read once it has this round.
		round := newID()
		if _, err := m.source.conn.Exec(ctx, statements.Get("the round is"), m.p, round); err != nil {
			return fmt.Errorf("on %s: %w", m.source.Name, err)
		}
		if _, err := m.target.conn.Exec(ctx, statements.Get("the target is"), m.p, copied, nil, round); err != nil {
			return fmt.Errorf("on %s: %w", m.target.Name, err)
		}
		m.target.move.state = copied
	}
	for last := int64(-1); last != m.revoked; {
		last = m.revoked
		if err := m.target.In(ctx, func(tx pgx.Tx) (err error) {
			m.revoked, err = m.revocations(ctx, tx, last)
			return err
		}); err != nil {
			return err
		}
	}
	return m.catchUp(ctx)
}

// catchUp copies changes until another round would not make the switch shorter.
func (m *mover) catchUp(ctx context.Context) error {
	return m.source.CatchUp(func() (int, error) {
		changes, err := m.round(ctx, follow.RoundChanges)
		m.cfg.Progress(CatchingUp, m.result.Rows)
		return changes, err
	})
}

// tellOthers puts the new entry into the maps of the other shards. They also learn it from
// each other.
func (m *mover) tellOthers(ctx context.Context, holder string, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for _, s := range m.cfg.Shards {
		if s.Name != m.source.Name && s.Name != m.target.Name {
			_, _ = s.Pool.Exec(ctx, statements.Get("tell of the map"), m.p, holder, revision)
		}
	}
}

func newID() string { return uuid.NewString() }
