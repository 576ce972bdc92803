// Package splitting splits a partition into two while it serves: each has the users of
// which the next bit of the hash is the same.
//
// Everything stays in one database, so the switch is one transaction, and places in the log
// stay as they are. The rows are copied to the tables of the two while triggers note which
// of them change; those are copied again until few are left. Then the gates close as for a
// move, what has been appended is folded, the last changes are copied, and the transaction
// that ends the partition begins the two others. Before its commit nothing has happened:
// whatever stops a split, the next call starts over. After it, the next call cleans up.
//
// It does not know the archive, which stays as it is, or the processes that serve. ADR 93
// has the reasons.
package splitting

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/eventlog"
	"github.com/badged/badged/internal/pgsession"
	"github.com/badged/badged/internal/sqlfile"
	"github.com/badged/badged/projector/internal/follow"
	"github.com/badged/badged/projector/internal/share"
)

//go:embed splitting.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// Config says what to split. Pool and Log are required.
type Config struct {
	// Pool is of the database that has the partition, and Log its log.
	Pool      *pgxpool.Pool
	Log       *events.Log
	Partition int

	// Progress, if not nil, is called with what the split does and with how many rows it
	// has copied. Several calls may have the same step.
	Progress func(step Step, rows int64)
	// Blocked, if not nil, is called from time to time while a transaction delays the split.
	Blocked func(by pgsession.Holder)
	// MostBlocked is for how long it waits for such a transaction; see [pgsession.Blocking].
	MostBlocked time.Duration
	// Patience is about how long publishers to the partition, and its folding, may wait
	// in one attempt of the switch. Default 800ms.
	Patience time.Duration
	// Attempts is how often the switch may fail since others would wait for longer. Then
	// the error wraps [ErrBusy]. Default 10.
	Attempts int
}

// Step is what a split does.
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

// Result is what a split has done.
type Result struct {
	Partition int    `json:"partition"`
	Into      [2]int `json:"into"`
	// Rows are the copied rows of all tables, those that were copied again included, and
	// LogRows those of the log, of both.
	Rows    int64 `json:"rows"`
	LogRows int64 `json:"log_rows"`
	// Paused is for how long publishers to the partition waited, and FoldingPaused for how
	// long at most nothing folded it, until servers owned both parts. Zero if an earlier
	// call had made the switch; FoldingPaused also if none owned them within some seconds.
	Paused        time.Duration `json:"paused_ns"`
	FoldingPaused time.Duration `json:"folding_paused_ns"`
	// Attempts are the attempts of the switch.
	Attempts int           `json:"attempts"`
	Took     time.Duration `json:"took_ns"`
}

// Errors that a caller may have to tell apart.
var (
	ErrUnknownPartition = errors.New("there is no such partition")
	ErrWasSplit         = errors.New("the partition was split already")
	ErrLargest          = errors.New("a log cannot have more partitions")
	ErrMoving           = errors.New("a move of the partition was begun")
	ErrElsewhere        = errors.New("the partition is on another shard")
	ErrNoSplit          = errors.New("no split was begun")
	ErrBusy             = follow.ErrBusy
)

const application = "badged partition split"

// Split splits a partition. An error means that the partition is as before, unless it says
// otherwise.
func Split(ctx context.Context, cfg Config) (Result, error) {
	began := time.Now()
	s, err := open(ctx, cfg)
	if err != nil {
		return Result{}, err
	}
	defer s.Close(ctx)
	err = s.run(ctx)
	s.result.Took = time.Since(began)
	return s.result, err
}

// Undo gives up a split that was interrupted before the switch.
func Undo(ctx context.Context, cfg Config) error {
	s, err := open(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	if !s.held {
		return fmt.Errorf("%w: partition %d is split into %d and %d; run the command without --undo to delete the old rows", ErrWasSplit, s.Partition, s.children[0].Child, s.children[1].Child)
	}
	if !s.begun {
		return fmt.Errorf("%w of partition %d", ErrNoSplit, s.Partition)
	}
	for _, c := range s.children {
		if err := s.In(ctx, func(tx pgx.Tx) error {
			if err := follow.Refuse(ctx, tx, c.Child); err != nil {
				return err
			}
			if err := follow.Ungate(ctx, tx, c.Child); err != nil {
				return err
			}
			return follow.Empty(ctx, tx, c.Child)
		}); err != nil {
			return fmt.Errorf("undo the split of partition %d: %w; run the command again", s.Partition, err)
		}
	}
	if err := s.Unwatch(ctx); err != nil {
		return fmt.Errorf("undo the split of partition %d: %w; run the command again", s.Partition, err)
	}
	return nil
}

// Begun returns the partitions of a database whose split was begun and is not complete: the
// database has the rows of each.
func Begun(ctx context.Context, q events.Querier) ([]int, error) {
	rows, _ := q.Query(ctx, statements.Get("begun"))
	partitions, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, fmt.Errorf("read which splits were begun: %w", err)
	}
	return partitions, nil
}

// child is one of the two partitions.
type child struct {
	share.Of

	// belongs is a condition of SQL that the user USER is one of the child's.
	belongs string
}

// splitter is a call of Split.
type splitter struct {
	follow.Session

	cfg Config
	// held is set while the database has the partition, and begun if a split was begun.
	held, begun bool
	shard       string
	children    [2]child
	columns     map[string]follow.Columns
	// copied is up to where the children have the log.
	copied events.Position
	// letters are the shares of dead letters, by id.
	letters map[int64][]letter
	// closed is when the gate was closed for the switch.
	closed time.Time
	result Result
}

// open looks at the partition, and opens the session.
func open(ctx context.Context, cfg Config) (*splitter, error) {
	if cfg.Progress == nil {
		cfg.Progress = func(Step, int64) {}
	}
	if cfg.Blocked == nil {
		cfg.Blocked = func(pgsession.Holder) {}
	}
	if cfg.Patience <= 0 {
		cfg.Patience = 800 * time.Millisecond
	}
	s := &splitter{Session: follow.Session{Partition: cfg.Partition, Tell: cfg.Blocked, Attempts: cfg.Attempts, Most: cfg.MostBlocked}, cfg: cfg, columns: map[string]follow.Columns{}, letters: map[int64][]letter{}}
	if err := s.look(ctx, cfg.Pool); err != nil {
		return nil, err
	}
	if err := s.Open(ctx, cfg.Pool, cfg.Log, application, s.children[0].Child, s.children[1].Child); err != nil {
		s.Close(ctx)
		return nil, err
	}
	if err := s.look(ctx, s.Conn); err != nil {
		s.Close(ctx)
		return nil, err
	}
	return s, nil
}

// look reads what the database knows of the partition.
func (s *splitter) look(ctx context.Context, q events.Querier) error {
	var n int
	var exists bool
	var owner, role, target, state string
	if err := q.QueryRow(ctx, statements.Get("look"), s.Partition).Scan(&n, &s.shard, &s.held, &exists, &owner, &role, &target, &state); err != nil {
		return fmt.Errorf("look at partition %d: %w", s.Partition, err)
	}
	a, b, ok := eventlog.Children(s.Partition, n)
	s.begun = role == "source" && target == ""
	switch {
	case s.Partition < 0 || !exists && owner == "":
		return fmt.Errorf("%w as %d", ErrUnknownPartition, s.Partition)
	case !ok:
		return fmt.Errorf("%w: partition %d is one of %d or more", ErrLargest, s.Partition, events.MaxPartitions/2+1)
	case s.held && target != "":
		return fmt.Errorf("%w: finish it with `badged partition move %d --to %s`, or undo it with --undo", ErrMoving, s.Partition, target)
	case !s.held && owner != "" && owner != s.shard:
		return fmt.Errorf("%w: partition %d is on %s", ErrElsewhere, s.Partition, owner)
	case !s.held && !s.begun:
		return fmt.Errorf("%w: partition %d is split into %d and %d", ErrWasSplit, s.Partition, a, b)
	}
	s.result.Partition, s.result.Into = s.Partition, [2]int{a, b}
	for i, p := range s.result.Into {
		var base, modulus int
		if err := q.QueryRow(ctx, statements.Get("level"), p).Scan(&base, &modulus); err != nil {
			return fmt.Errorf("look at partition %d: %w", s.Partition, err)
		}
		s.children[i] = child{
			Of:      share.Of{Parent: s.Partition, Child: p, Partitions: n, First: i == 0},
			belongs: fmt.Sprintf("badged.partition_of(USER, %d) = %d", modulus, p-base),
		}
	}
	return nil
}

// run does what is left of the split.
func (s *splitter) run(ctx context.Context) error {
	if s.held {
		err := s.copy(ctx)
		if err == nil {
			err = s.Switch(ctx, func() error { return s.catchUp(ctx) }, func() error { return s.attempt(ctx) }, func(behind int64) { s.cfg.Progress(Waiting, behind) })
		}
		if err != nil {
			return s.uncertain(ctx, err)
		}
		resumed := follow.Resumed(ctx, s.cfg.Pool, s.closed, s.children[0].Child, s.children[1].Child)
		defer func() { s.result.FoldingPaused = resumed() }()
	}
	if err := s.cleanUp(ctx); err != nil {
		return fmt.Errorf("partition %d is split into %d and %d, but its old rows could not be deleted: run the command again: %w", s.Partition, s.children[0].Child, s.children[1].Child, err)
	}
	return nil
}

// uncertain wraps an error. If the database cannot say, the commit of the switch may have
// succeeded.
func (s *splitter) uncertain(ctx context.Context, err error) error {
	check, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	now := &splitter{Session: follow.Session{Partition: s.Partition}}
	switch lookErr := now.look(check, s.cfg.Pool); {
	case lookErr != nil:
		return fmt.Errorf("split partition %d: %w; whether it is split is not known: run the command again", s.Partition, err)
	case now.held:
		return fmt.Errorf("split partition %d: %w; it serves as before, and nothing is lost: run the command again to go on with what is copied, or `badged partition split %[1]d --undo` to give up", s.Partition, err)
	}
	return fmt.Errorf("partition %d is split, but the command failed: run it again to delete the old rows: %w", s.Partition, err)
}

// copy copies everything until little is left.
func (s *splitter) copy(ctx context.Context) error {
	s.cfg.Progress(Preparing, 0)
	if err := s.begin(ctx); err != nil {
		return err
	}
	if err := s.copyLog(ctx); err != nil {
		return err
	}
	for _, t := range follow.Tables() {
		if t.InRounds() {
			continue
		}
		if err := s.bulk(ctx, t); err != nil {
			return fmt.Errorf("copy %s: %w", t.Name(s.Partition), err)
		}
	}
	for _, suffix := range []string{"", "_baseline"} {
		if err := s.In(ctx, func(tx pgx.Tx) error { return s.count(ctx, tx, suffix) }); err != nil {
			return fmt.Errorf("count the members of rooms: %w", err)
		}
	}
	for _, c := range s.children {
		for _, name := range follow.OwnTables(c.Child) {
			if _, err := s.Conn.Exec(ctx, `ANALYZE `+name); err != nil {
				return err
			}
		}
	}
	return s.catchUp(ctx)
}

// begin makes the tables of the children and empties them, and makes the partition note
// what changes.
func (s *splitter) begin(ctx context.Context) error {
	for _, c := range s.children {
		if err := s.RetryOnLock(ctx, []string{"badged.webhooks", "badged.users", "badged.conversations"}, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, statements.Get("create the tables"), c.Child)
			return err
		}); err != nil {
			return fmt.Errorf("create the tables of partition %d: %w", c.Child, err)
		}
		if err := s.RetryOnLock(ctx, follow.OwnTables(c.Child), func(tx pgx.Tx) error {
			if err := follow.Gate(ctx, tx, c.Child); err != nil {
				return err
			}
			if err := follow.Admit(ctx, tx, c.Child); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, `TRUNCATE badged.`+events.Topic(c.Child)+`_offsets`); err != nil {
				return err
			}
			return follow.Empty(ctx, tx, c.Child)
		}); err != nil {
			return fmt.Errorf("empty the tables of partition %d: %w", c.Child, err)
		}
	}
	if err := s.In(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statements.Get("begin"), s.Partition, s.shard); err != nil {
			return err
		}
		return follow.ForgetChanges(ctx, tx, s.Partition)
	}); err != nil {
		return err
	}
	for _, name := range follow.Watched(s.Partition) {
		c, err := s.Columns(ctx, name)
		if err != nil {
			return err
		}
		s.columns[name] = c
	}
	return s.Watch(ctx)
}

// cleanUp deletes the rows of the partition, whose triggers refuse the writers that have
// not heard of the split.
func (s *splitter) cleanUp(ctx context.Context) error {
	s.cfg.Progress(CleaningUp, s.result.Rows)
	return s.RetryOnLock(ctx, follow.OwnTables(s.Partition), func(tx pgx.Tx) error {
		if err := follow.Refuse(ctx, tx, s.Partition); err != nil {
			return err
		}
		if err := follow.Ungate(ctx, tx, s.Partition); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, statements.Get("drop what interrupted commands left"), s.Partition); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, statements.Get("forget the parent"), s.Partition); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM badged.`+events.Topic(s.Partition)+`_offsets`); err != nil {
			return err
		}
		return follow.Empty(ctx, tx, s.Partition)
	})
}
