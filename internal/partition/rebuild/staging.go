package rebuild

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/partition"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/pg/query"
)

// Staging fills the staging tables of a partition. It folds the log into them in steps, until they
// have caught up with the live tables.
type Staging struct {
	job       *Job
	partition int
	tables    *store.Tables

	// position is the position up to which the log is folded into the staging tables.
	position events.Position
	// Keys are the event keys of the events up to `position`, by which repetitions are detected.
	// generations is the number of generations of event keys that Keys knows.
	Keys        *store.DedupReplay
	generations int

	users, rooms judged

	result Result
}

// judged is the result of comparing the users, or the rooms, of the staging and the live tables.
type judged struct {
	// different has the ids whose live rows differ from the staging tables. touched has the ids
	// with events since the last comparison, which must be compared again. If touched is nil, no
	// comparison was made yet, so all ids must be compared.
	different, touched map[string]struct{}
}

// touch records the keys of a map as ids that had events since the last comparison.
func touch[V any](j *judged, m map[string]V) {
	for id := range m {
		if j.touched != nil {
			j.touched[id] = struct{}{}
		}
	}
}

// judge compares the rows of the touched ids with the live tables again, and updates different. The
// function `find` returns the ids, among the given ids, whose rows differ; nil stands for all ids.
func (j *judged) judge(ctx context.Context, find func(ctx context.Context, suffix string, ids []string) ([]string, error)) error {
	var ids []string // nil means all
	if j.touched != nil {
		if len(j.touched) == 0 {
			return nil
		}
		ids = slices.Collect(maps.Keys(j.touched))
	} else {
		j.different = map[string]struct{}{}
	}
	differing, err := find(ctx, stagingSuffix, ids)
	if err != nil {
		return err
	}
	j.touched = map[string]struct{}{}
	for _, id := range ids {
		delete(j.different, id)
	}
	for _, id := range differing {
		j.different[id] = struct{}{}
	}
	return nil
}

const stagingSuffix = "_staging"

const (
	createStagingSQL  = `SELECT badged.create_staging_tables($1)`
	analyzeStagingSQL = `SELECT badged.analyze_tables($1, '_staging')`
	swapStagingSQL    = `SELECT badged.swap_staging_tables($1)`
	dropStagingSQL    = `SELECT badged.drop_staging_tables($1)`
)

// NewStaging returns a Staging for the tables of a partition whose names end with suffix. The
// tables must exist before they are filled.
func NewStaging(job *Job, number int, suffix string) *Staging {
	return &Staging{
		job: job, partition: number,
		tables: store.TablesNamed(number, suffix),
		result: Result{Partition: number},
	}
}

// Limits of the number of events to fold, and of users to compare, while the lock on the position
// blocks the projector. Both limits double with each attempt, so that a rebuild ends however fast
// events arrive.
const (
	heldEvents = 500
	heldUsers  = 500
)

// build fills the staging tables, replaces the live tables by them if they differ, and sets result.
func (s *Staging) build(ctx context.Context) error {
	if err := query.Exec(ctx, s.job.Conn, "create staging tables", createStagingSQL, s.partition); err != nil {
		return err
	}
	if err := s.fill(ctx); err != nil {
		return err
	}
	blocked := pgsession.Blocking{Conn: s.job.Conn, Report: s.job.Config.Progress.Blocked, Partition: s.partition, Tables: partition.State(s.partition)}
	for attempt := 0; ; {
		if err := s.catchUp(ctx); err != nil {
			return err
		}
		if s.users.touched == nil || len(s.users.touched) > heldUsers<<min(attempt, 20) {
			if err := s.compare(ctx); err != nil {
				return err
			}
			attempt++
			continue
		}
		end, err := s.finish(ctx, heldEvents<<min(attempt, 20))
		if err != nil || end == finished {
			return err
		}
		if end == overtaken {
			attempt++
		} else if err := blocked.Wait(ctx); err != nil {
			return err
		}
	}
}

// fill folds the archive, if there is one, and the log into the empty staging tables. It folds the
// log up to the present position of the live tables.
func (s *Staging) fill(ctx context.Context) error {
	var in replay.Snapshot
	err := replay.WithSnapshot(ctx, s.job.Config.Pool, s.partition, s.job.Partitions, func(now *replay.Snapshot) error {
		in = *now
		return in.UseArchive(ctx, s.job.Config.Archive)
	})
	if err != nil {
		return err
	}
	s.generations = len(in.Generations)
	if err := s.FillUpTo(ctx, &in); err != nil {
		return err
	}
	return query.Exec(ctx, s.job.Conn, "analyze the staging tables", analyzeStagingSQL, s.partition)
}

// FillUpTo fills the empty tables of s with the state at the position of `snapshot`: it folds the
// events up to this position. If the users need more memory than Config.Memory, it reads the log
// several times.
func (s *Staging) FillUpTo(ctx context.Context, snapshot *replay.Snapshot) error {
	job := s.job
	s.position = snapshot.Position
	// Read committed suffices: this part of the log is immutable, and the job's lock excludes
	// archiving. A long snapshot would block vacuum.
	return pgx.BeginTxFunc(ctx, job.Config.Pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := query.Exec(ctx, tx, "set up the transaction", `SET LOCAL idle_in_transaction_session_timeout = 0`); err != nil {
			return err
		}
		snapshot.Tx = tx
		if err := snapshot.ScanTables(ctx, true); err != nil {
			return err
		}
		length, err := snapshot.Length(ctx)
		if err != nil {
			return err
		}
		everyone := func(string) bool { return true }
		for share, more := replay.AllUsers(), true; more; share, more = share.Next() {
			job.Config.Progress.Planned(s.partition, length)
			replayed, err := snapshot.ReplayShare(ctx, &share, everyone, nil, job.Config.Memory, func(records int) {
				job.Config.Progress.Done(records, records)
				job.rest(ctx)
			})
			if err != nil {
				return err
			}
			// Load the rooms only once, with the last share: every share has the same rooms.
			_, others := share.Next()
			if err := s.bulkLoad(ctx, replayed, !others); err != nil {
				return err
			}
			s.Keys = replayed.Keys
		}
		return nil
	})
}

// catchUp folds into the staging tables the events that the projector has folded into the live
// tables since the last call. It repeats this until at most heldEvents events were new.
func (s *Staging) catchUp(ctx context.Context) error {
	for {
		in, err := replay.Now(ctx, s.job.Config.Pool, s.partition, s.job.Partitions)
		if err != nil {
			return err
		}
		folded := 0
		for s.position.Before(in.Position) {
			var n int
			err := pgx.BeginFunc(ctx, s.job.Conn, func(tx pgx.Tx) error {
				in.Tx = tx
				n, err = s.step(ctx, &in, store.FirstBatch)
				return err
			})
			if err != nil {
				return err
			}
			folded += n
		}
		if folded <= heldEvents {
			return nil
		}
	}
}

// step folds the next records of the log into the staging tables, in the transaction of snapshot.
// It folds about `limit` records, and none after the position of snapshot. It returns their number.
func (s *Staging) step(ctx context.Context, snapshot *replay.Snapshot, limit int) (int, error) {
	s.Keys.Extend(snapshot.Generations[s.generations:])
	s.generations = len(snapshot.Generations)
	records, err := logread.Folded(ctx, snapshot.Tx, s.partition, s.position, snapshot.Cursor, &logread.Size{Events: limit, Bytes: store.BatchBytes})
	if err != nil {
		return 0, err
	}
	if len(records) == 0 {
		return 0, fmt.Errorf("the log has no events between %s and %s", s.position, snapshot.Position)
	}
	letters, err := snapshot.LettersOf(ctx, records)
	if err != nil {
		return 0, err
	}
	var items []store.Item
	for i := range records {
		item, dead := snapshot.Item(&records[i], &letters) // the item omits users whose part of the event is a dead letter
		if dead == nil && s.Keys.First(&item, records[i].Position) {
			items = append(items, item)
		}
	}
	rooms, err := query.One[bool](ctx, snapshot.Tx, "look for rooms", statements.Of(s.partition, "find a staged room"))
	if err != nil {
		return 0, err
	}
	state, missing := store.StateOf(items, store.NewCache(0), rooms)
	queue := func(reads *pgx.Batch) { s.tables.QueueLoads(reads, &missing, state, store.NewCache(0)) }
	more := func(reads *pgx.Batch) { s.tables.QueueMoreLoads(reads, items, state) }
	if err := store.Load(ctx, snapshot.Tx, queue, more); err != nil {
		return 0, fmt.Errorf("load: %w", err)
	}
	touch(&s.users, state.Users)
	touch(&s.rooms, state.Rooms)
	for i := range items {
		state.FoldErased(items[i].Erased)
		state.Fold(&items[i].Event)
	}
	var writes pgx.Batch
	s.tables.QueueWrites(&writes, store.Sorted(state.Users), state.Rooms)
	if err := snapshot.Tx.SendBatch(ctx, &writes).Close(); err != nil {
		return 0, fmt.Errorf("write: %w", err)
	}
	s.position = records[len(records)-1].Position
	return len(records), nil
}

// compare compares the touched users and rooms with the live tables. The live tables may be ahead
// of the staging tables. This does no harm: users and rooms with events between the two positions
// are touched and compared again when the staging tables catch up.
func (s *Staging) compare(ctx context.Context) error {
	return replay.WithSnapshot(ctx, s.job.Config.Pool, s.partition, s.job.Partitions, func(snapshot *replay.Snapshot) error {
		if s.users.touched == nil {
			if err := s.measure(ctx, snapshot); err != nil {
				return err
			}
		}
		return s.judge(ctx, snapshot)
	})
}

// measure counts the users and conversations in the staging tables, for the result.
func (s *Staging) measure(ctx context.Context, snapshot *replay.Snapshot) error {
	if err := snapshot.ScanTables(ctx, true); err != nil {
		return err
	}
	err := snapshot.Tx.QueryRow(ctx, statements.Of(s.partition, "count the rebuilt rows")).Scan(&s.result.Users, &s.result.Conversations)
	if err != nil {
		return fmt.Errorf("count the rebuilt rows: %w", err)
	}
	return nil
}

// judge compares the touched users and rooms with the live tables in snapshot.
func (s *Staging) judge(ctx context.Context, snapshot *replay.Snapshot) error {
	if err := s.rooms.judge(ctx, snapshot.DifferingRooms); err != nil {
		return err
	}
	return s.users.judge(ctx, snapshot.DifferingUsers)
}

// ending is the result of an attempt to finish.
type ending int

const (
	finished  ending = iota
	overtaken        // the projector has folded more events than the attempt may fold
	locked           // a long transaction reads the live tables
)

// reported is the maximum number of users, and of rooms, whose differences Result.First lists.
const reported = 10

// maxTold is the maximum number of users with wrong rows whose pushes and webhook calls a rebuild
// schedules one by one, in the rows of devices and queued calls. If more users had wrong rows, the
// new revision of the partition makes the notifier check all users instead.
const maxTold = 10_000

// finish locks the projector's position, which blocks the projector, and folds the remaining
// events, at most about `limit`. Then it drops the staging tables, or replaces the live tables by
// them. If more events remain, it returns `overtaken`. If another transaction has locked a table,
// it returns `locked`.
func (s *Staging) finish(ctx context.Context, limit int) (end ending, err error) {
	var began time.Time
	err = pgx.BeginFunc(ctx, s.job.Conn, func(tx pgx.Tx) error {
		snapshot := &replay.Snapshot{Tx: tx, Partition: s.partition, Partitions: s.job.Partitions}
		if err := snapshot.Open(ctx, "FOR UPDATE"); err != nil {
			return err
		}
		began = time.Now()
		if s.position.Before(snapshot.Position) {
			if _, err := s.step(ctx, snapshot, limit); err != nil {
				return err
			}
		}
		if s.position.Before(snapshot.Position) {
			end = overtaken
			return nil
		}
		if err := s.judge(ctx, snapshot); err != nil {
			return err
		}
		// Use a savepoint: if a table is locked, only settle is rolled back, and the folded events
		// remain in the staging tables.
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return s.settle(ctx, snapshot, tx) })
		if pgsession.IsLocked(err) {
			end = locked
			return nil
		}
		return err
	})
	s.result.Held = max(s.result.Held, time.Since(began))
	return end, err
}

// settle drops the staging tables if they equal the live tables. Otherwise it replaces the live
// tables by the staging tables.
func (s *Staging) settle(ctx context.Context, snapshot *replay.Snapshot, tx pgx.Tx) error {
	s.result.First = nil
	users, rooms := s.users.different, slices.Sorted(maps.Keys(s.rooms.different))
	changed, end := len(users)+len(rooms) > 0, dropStagingSQL
	if changed {
		// The badge of every member depends on the state of the room. So if a room differs, count
		// all its members as different users.
		members, err := query.All(ctx, snapshot.Tx, "read the members of rooms", pgx.RowTo[string], statements.Of(s.partition, "read the staged members"), rooms)
		if err != nil {
			return err
		}
		for _, id := range members {
			users[id] = struct{}{}
		}
		first := slices.Sorted(maps.Keys(users))
		err = snapshot.CompareTables(ctx, stagingSuffix, first[:min(reported, len(first))], rooms[:min(reported, len(rooms))], func(d replay.Difference) {
			s.result.First = append(s.result.First, d)
		})
		if err != nil {
			return err
		}
		slices.SortStableFunc(s.result.First, func(a, b replay.Difference) int { return cmp.Compare(a.UserID, b.UserID) })
		end = swapStagingSQL
	}
	s.result.DifferentUsers = int64(len(users))
	if err := query.Exec(ctx, tx, "set up the transaction", pgsession.SetSwapPatienceSQL); err != nil {
		return err
	}
	if err := query.Exec(ctx, tx, "drop or swap in the staging tables", end, s.partition); err != nil {
		return err
	}
	var writes pgx.Batch
	if changed {
		writes.Queue(statements.Get("begin an epoch"), s.partition)
		if len(users) <= maxTold {
			writes.Queue(statements.Get("tell of users"), s.partition, slices.Sorted(maps.Keys(users)))
		}
		writes.Queue(statements.Get("forget the healed users"), s.partition)
		writes.Queue(store.ResetExpirySQL, s.partition)
	}
	if s.job.Config.Partition == nil {
		writes.Queue(statements.Get("record a rebuilt partition"),
			s.partition, s.result.Users, s.result.Conversations, s.result.DifferentUsers)
	}
	if err := tx.SendBatch(ctx, &writes).Close(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
