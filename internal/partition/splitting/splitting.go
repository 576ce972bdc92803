// Package splitting splits a serving partition (the parent) into two new partitions (the children).
// The hash of a user's id selects the child.
//
// Both children are in the database of the parent, so the switch is one transaction, and places
// in the log do not change. The rows are copied to the children's tables while triggers record
// which rows change. Changed rows are copied again until few changes remain. Then gates block
// publishers and other writers as in a move. All appended events are folded, and one transaction
// copies the last changes and makes the database hold the children instead of the parent.
//
// If a split is interrupted before this transaction commits, the parent is unchanged, and the next
// call copies all rows again. After the commit, the next call only deletes the parent's rows.
//
// It does not know the archive, which a split does not change, or the serving processes. ADR 93
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
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/partition"
	"github.com/badged/badged/internal/partition/childfilter"
	"github.com/badged/badged/internal/partition/copier"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/pg/query"
	"github.com/badged/badged/internal/pg/sqlfile"
)

//go:embed splitting.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// Config configures a split. Pool and Log are required.
type Config struct {
	// Pool and Log belong to the database that holds the partition.
	Pool      *pgxpool.Pool
	Log       *events.Log
	Partition int

	copier.Options
	// Blocked, if not nil, is called repeatedly while a transaction delays the split.
	Blocked func(holder pgsession.Holder)
}

// Result is the result of a split.
type Result struct {
	Partition int    `json:"partition"`
	Into      [2]int `json:"into"`
	copier.Result
}

// Errors that callers distinguish.
var (
	ErrUnknownPartition = errors.New("there is no such partition")
	ErrWasSplit         = errors.New("the partition was split already")
	ErrLargest          = errors.New("a log cannot have more partitions")
	ErrMoving           = errors.New("a move of the partition was begun")
	ErrElsewhere        = errors.New("the partition is in another database")
	ErrNoSplit          = errors.New("no split was begun")
)

const application = "badged partition split"

// Split splits a partition. If an earlier call was interrupted after the switch, Split only deletes
// the old rows. After an error the partition is unchanged, unless the error text says otherwise.
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

// Undo reverts a split that was interrupted before the switch.
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
		if err == nil {
			err = s.InTransaction(ctx, func(tx pgx.Tx) error { return copier.Clear(ctx, tx, c.Child) })
		}
	}
	if err == nil {
		err = s.Unwatch(ctx)
	}
	if err != nil {
		return fmt.Errorf("undo the split of partition %d: %w; run the command again", s.Partition, err)
	}
	return nil
}

// Begun returns the partitions of a database whose split has begun and is not complete: it was
// interrupted, or is running, before or after the switch. The database still has the rows of these
// partitions.
func Begun(ctx context.Context, q events.Querier) ([]int, error) {
	return query.All(ctx, q, "read which splits were begun", pgx.RowTo[int], statements.Get("begun"))
}

// splitter is one call of Split.
type splitter struct {
	copier.Copy

	cfg Config
	// held is true if the database holds the partition. begun is true if a split of the partition
	// has begun and is not complete.
	held, begun bool
	name        string // the name of the database, "" for a single database
	children    [2]childfilter.Filter
	// copied is the position up to which the log was copied to the children.
	copied events.Position
	// letters maps the id of each dead letter of the parent to the children's parts of it.
	letters map[int64][]letter
	result  Result
}

// open reads the state of the partition, opens the session, which acquires the lock of the job, and
// reads the state again under this lock.
func open(ctx context.Context, cfg Config) (*splitter, error) {
	cfg.SetDefaults()
	if cfg.Blocked == nil {
		cfg.Blocked = func(pgsession.Holder) {}
	}
	session := &copier.Session{Partition: cfg.Partition, Blocked: cfg.Blocked, MaxWait: cfg.MaxWait}
	s := &splitter{cfg: cfg, letters: map[int64][]letter{}}
	s.Copy = copier.Copy{
		Session: session, Target: session, Operation: s, Options: cfg.Options, Result: &s.result.Result,
	}
	if err := s.readState(ctx, cfg.Pool); err != nil {
		return nil, err
	}
	if err := s.Open(ctx, cfg.Pool, cfg.Log, application, s.children[0].Child, s.children[1].Child); err != nil {
		s.Close(ctx)
		return nil, err
	}
	if err := s.readState(ctx, s.Conn); err != nil {
		s.Close(ctx)
		return nil, err
	}
	return s, nil
}

// readState reads the state of the partition. It fails if the partition cannot be split.
func (s *splitter) readState(ctx context.Context, q events.Querier) error {
	var n int
	var exists bool
	var owner, role, target, state string
	if err := q.QueryRow(ctx, statements.Get("look"), s.Partition).Scan(&n, &s.name, &s.held, &exists, &owner, &role, &target, &state); err != nil {
		return fmt.Errorf("read the state of partition %d: %w", s.Partition, err)
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
	case !s.held && owner != "" && owner != s.name:
		return fmt.Errorf("%w: partition %d is on %s", ErrElsewhere, s.Partition, owner)
	case !s.held && !s.begun:
		return fmt.Errorf("%w: partition %d is split into %d and %d", ErrWasSplit, s.Partition, a, b)
	}
	s.result.Partition, s.result.Into = s.Partition, [2]int{a, b}
	s.Parts = nil
	for i, p := range s.result.Into {
		c := partition.Child{Partition: p, First: i == 0}
		if err := q.QueryRow(ctx, statements.Get("level"), p).Scan(&c.Base, &c.Modulus); err != nil {
			return fmt.Errorf("read the state of partition %d: %w", s.Partition, err)
		}
		s.children[i] = childfilter.Filter{Parent: s.Partition, Child: p, Partitions: n, First: i == 0}
		s.Parts = append(s.Parts, copier.Part{Partition: p, Child: &c})
	}
	return nil
}

// run does all steps of the split, or only cleans up if an earlier call has made the switch.
func (s *splitter) run(ctx context.Context) error {
	if s.held {
		err := s.copy(ctx)
		if err == nil {
			err = s.Switch(ctx)
		}
		if err != nil {
			return s.uncertain(ctx, err)
		}
		s.held, s.result.Paused = false, time.Since(s.Closed)
		defer s.Resumed(ctx, s.Session, s.children[0].Child, s.children[1].Child)()
	}
	if err := s.cleanUp(ctx); err != nil {
		return fmt.Errorf("partition %d is split into %d and %d, but its old rows could not be deleted: run the command again: %w", s.Partition, s.children[0].Child, s.children[1].Child, err)
	}
	return nil
}

// uncertain wraps an error of a split. The switch may have been committed in spite of the error. So
// uncertain reads the state of the partition, and the returned error says whether the partition is
// split. If the database does not answer, the returned error says that the result is unknown.
func (s *splitter) uncertain(ctx context.Context, err error) error {
	check, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	now := &splitter{Copy: copier.Copy{Session: &copier.Session{Partition: s.Partition}}}
	switch readErr := now.readState(check, s.cfg.Pool); {
	case readErr != nil:
		return fmt.Errorf("split partition %d: %w; the split may have succeeded, and the database does not answer: run the command again", s.Partition, err)
	case now.held:
		return fmt.Errorf("split partition %d: %w; the partition is served as before, and nothing is lost: run the command again to continue with the copied rows, or `badged partition split %[1]d --undo` to undo the split", s.Partition, err)
	}
	return fmt.Errorf("partition %d is split, but the command failed: run it again to delete the old rows: %w", s.Partition, err)
}

// copy copies all rows, and then changed rows until few changes remain. It does not close the gate.
func (s *splitter) copy(ctx context.Context) error {
	s.Progress(copier.Preparing, 0)
	if err := s.begin(ctx); err != nil {
		return err
	}
	if err := s.Everything(ctx); err != nil {
		return err
	}
	for _, suffix := range []string{"", "_baseline"} {
		if err := s.InTransaction(ctx, func(tx pgx.Tx) error { return s.countOthers(ctx, tx, suffix, "true") }); err != nil {
			return fmt.Errorf("count the members of rooms: %w", err)
		}
	}
	return s.CatchUp(ctx)
}

// begin creates the tables of the children, empties them if an earlier call has filled them, and
// starts to record changes of the parent's rows.
func (s *splitter) begin(ctx context.Context) error {
	for _, c := range s.children {
		if err := s.CreateTables(ctx, c.Child); err != nil {
			return err
		}
		if err := s.RetryOnLock(ctx, partition.OwnTables(c.Child), func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `TRUNCATE `+partition.Log(c.Child)+`_offsets`); err != nil {
				return err
			}
			return copier.OpenForCopy(ctx, tx, c.Child)
		}); err != nil {
			return fmt.Errorf("empty the tables of partition %d: %w", c.Child, err)
		}
	}
	if err := s.InTransaction(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statements.Get("begin"), s.Partition, s.name); err != nil {
			return err
		}
		return copier.ForgetChanges(ctx, tx, s.Partition)
	}); err != nil {
		return err
	}
	if err := s.ReadColumns(ctx); err != nil {
		return err
	}
	return s.Watch(ctx)
}

// cleanUp deletes all rows of the parent. From then on a trigger on the parent's log refuses
// appends by servers with an old map of partitions.
func (s *splitter) cleanUp(ctx context.Context) error {
	s.Progress(copier.CleaningUp, s.result.Rows)
	return s.RetryOnLock(ctx, partition.OwnTables(s.Partition), func(tx pgx.Tx) error {
		var batch pgx.Batch
		batch.Queue(statements.Get("drop what interrupted commands left"), s.Partition)
		batch.Queue(statements.Get("forget the parent"), s.Partition)
		batch.Queue(`DELETE FROM ` + partition.Log(s.Partition) + `_offsets`)
		if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
			return err
		}
		return copier.Clear(ctx, tx, s.Partition)
	})
}
