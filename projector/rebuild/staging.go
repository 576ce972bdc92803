package rebuild

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pgsession"
	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/projector/internal/logread"
	"github.com/badged/badged/projector/internal/store"
	"github.com/badged/badged/projector/replay"
)

// Staging is the staging tables of a partition. They are at a position of the
// log and catch up with the live tables.
type Staging struct {
	job       *Job
	partition int
	tables    *store.Tables

	at events.Position
	// Keys are the event keys at the position, and generations the number of
	// generations that Keys knows.
	Keys        *store.DedupReplay
	generations int

	// different are the users whose live rows differ from the staging tables.
	// touched are those with events since the comparison, to be compared again;
	// nil means all users.
	different, touched map[string]struct{}
	// rooms do the same for rooms.
	rooms stagedRooms

	result Result
}

const (
	createStagingSQL  = `SELECT badged.create_staging_tables($1)`
	analyzeStagingSQL = `SELECT badged.analyze_tables($1, '_staging')`
	swapStagingSQL    = `SELECT badged.swap_staging_tables($1)`
	dropStagingSQL    = `SELECT badged.drop_staging_tables($1)`
)

// NewStaging returns the staging tables of a partition whose names end with
// suffix. They must exist before they are filled.
func NewStaging(job *Job, partition int, suffix string) *Staging {
	return &Staging{
		job: job, partition: partition,
		tables:    store.TablesNamed(partition, suffix),
		different: map[string]struct{}{}, rooms: stagedRooms{different: map[string][]string{}},
		result: Result{Partition: partition},
	}
}

// The most work done while holding the fence. It doubles with every attempt, so
// that a rebuild ends however many events come.
const (
	heldEvents = 500
	heldUsers  = 500
)

// build makes the live tables equal to the log, and records its findings in
// result.
func (s *Staging) build(ctx context.Context) error {
	if _, err := s.job.Conn.Exec(ctx, createStagingSQL, s.partition); err != nil {
		return fmt.Errorf("create staging tables: %w", err)
	}
	if err := s.fill(ctx); err != nil {
		return err
	}
	blocked := pgsession.Blocking{Conn: s.job.Conn, Tell: s.job.Config.Progress.Blocked, Partition: s.partition}
	for _, table := range []string{"users", "conversations", "paths", "rooms", "room_chunks", "room_marks"} {
		blocked.Tables = append(blocked.Tables, "badged."+table, fmt.Sprintf("badged.%s_p%02d", table, s.partition))
	}
	for attempt := 0; ; {
		if err := s.catchUp(ctx); err != nil {
			return err
		}
		if s.touched == nil || len(s.touched) > heldUsers<<min(attempt, 20) {
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

// fill folds the log into the empty tables, up to the present position of the
// live ones.
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
	if _, err := s.job.Conn.Exec(ctx, analyzeStagingSQL, s.partition); err != nil {
		return fmt.Errorf("analyze the staging tables: %w", err)
	}
	return nil
}

// FillUpTo folds the log into the empty tables, up to the position of in.
func (s *Staging) FillUpTo(ctx context.Context, in *replay.Snapshot) error {
	job := s.job
	s.at = in.Position
	// Read committed suffices: this part of the log is immutable, and the job's
	// lock keeps archiving away. A long snapshot would block vacuum.
	return pgx.BeginTxFunc(ctx, job.Config.Pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL idle_in_transaction_session_timeout = 0`); err != nil {
			return fmt.Errorf("set up the transaction: %w", err)
		}
		in.Tx = tx
		if err := in.ScanTables(ctx, true); err != nil {
			return err
		}
		length, err := in.Length(ctx)
		if err != nil {
			return err
		}
		everyone := func(string) bool { return true }
		for share, more := replay.AllUsers(), true; more; share, more = share.Next() {
			job.Config.Progress.Planned(s.partition, length)
			replayed, err := in.ReplayShare(ctx, &share, everyone, nil, job.Config.Memory, func(records int) {
				job.Config.Progress.Done(records, records)
				job.rest(ctx)
			})
			if err != nil {
				return err
			}
			// Every share has the same rooms.
			_, others := share.Next()
			if err := s.bulkLoad(ctx, replayed, !others); err != nil {
				return err
			}
			s.Keys = replayed.Keys
		}
		return nil
	})
}

// catchUp folds the events that the live tables have folded meanwhile, until
// few are left.
func (s *Staging) catchUp(ctx context.Context) error {
	for {
		var in replay.Snapshot
		err := replay.WithSnapshot(ctx, s.job.Config.Pool, s.partition, s.job.Partitions, func(now *replay.Snapshot) error {
			in = *now
			return nil
		})
		if err != nil {
			return err
		}
		folded := 0
		for s.at.Before(in.Position) {
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

// step folds about limit records, none past the position of in, in the
// transaction of in. It returns how many.
func (s *Staging) step(ctx context.Context, in *replay.Snapshot, limit int) (int, error) {
	s.Keys.Extend(in.Generations[s.generations:])
	s.generations = len(in.Generations)
	records, err := logread.Folded(ctx, in.Tx, s.partition, s.at, in.Cursor, &logread.Size{Events: limit, Bytes: store.BatchBytes})
	if err != nil {
		return 0, err
	}
	if len(records) == 0 {
		return 0, fmt.Errorf("the log has no events between %s and %s", s.at, in.Position)
	}
	var items []store.Item
	for i := range records {
		it, dead := in.Item(&records[i]) // without its refused users
		if dead == nil && s.Keys.First(&it, records[i].Position) {
			items = append(items, it)
		}
	}
	var rooms bool
	if err := in.Tx.QueryRow(ctx, statements.Of(s.partition, "find a staged room")).Scan(&rooms); err != nil {
		return 0, fmt.Errorf("look for rooms: %w", err)
	}
	state, missing := store.StateOf(items, store.NewCache(0), rooms)
	queue := func(reads *pgx.Batch) { s.tables.QueueLoads(reads, &missing, state, store.NewCache(0)) }
	more := func(reads *pgx.Batch) { s.tables.QueueMoreLoads(reads, items, state) }
	if err := store.Load(ctx, in.Tx, queue, more); err != nil {
		return 0, fmt.Errorf("load: %w", err)
	}
	if s.touched != nil {
		for id := range state.Users {
			s.touched[id] = struct{}{}
		}
		for id := range state.Rooms {
			s.rooms.touched[id] = struct{}{}
		}
	}
	for i := range items {
		state.FoldErased(items[i].Erased)
		state.Fold(&items[i].Event)
	}
	var writes pgx.Batch
	s.tables.QueueWrites(&writes, store.Sorted(state.Users), state.Rooms)
	if err := in.Tx.SendBatch(ctx, &writes).Close(); err != nil {
		return 0, fmt.Errorf("write: %w", err)
	}
	s.at = records[len(records)-1].Position
	return len(records), nil
}

// compare finds the different users among those that were not compared yet.
// The live tables may be ahead: users with events in between become touched
// when the staging tables catch up.
func (s *Staging) compare(ctx context.Context) error {
	return replay.WithSnapshot(ctx, s.job.Config.Pool, s.partition, s.job.Partitions, func(in *replay.Snapshot) error {
		if s.touched == nil {
			if err := s.measure(ctx, in); err != nil {
				return err
			}
		}
		return s.judge(ctx, in)
	})
}

// measure counts the rows in the staging tables.
func (s *Staging) measure(ctx context.Context, in *replay.Snapshot) error {
	if err := in.ScanTables(ctx, true); err != nil {
		return err
	}
	err := in.Tx.QueryRow(ctx, statements.Of(s.partition, "count the rebuilt rows")).Scan(&s.result.Users, &s.result.Conversations)
	if err != nil {
		return fmt.Errorf("count the rebuilt rows: %w", err)
	}
	return nil
}

// judge finds the touched users that differ in the tables that in sees.
func (s *Staging) judge(ctx context.Context, in *replay.Snapshot) error {
	if err := s.judgeRooms(ctx, in, s.touched == nil); err != nil {
		return err
	}
	var users []string // nil means all
	if s.touched != nil {
		if len(s.touched) == 0 {
			return nil
		}
		users = slices.Collect(maps.Keys(s.touched))
	}
	s.touched = map[string]struct{}{}
	for _, id := range users {
		delete(s.different, id)
	}
	found, err := s.differing(ctx, in, users)
	if err != nil {
		return err
	}
	healed, err := in.HealedUsers(ctx)
	if err != nil {
		return err
	}
	// The versions of healed users differ, so compare their fields one by one.
	var unsure []string
	for _, id := range found {
		if _, ok := healed[id]; ok {
			unsure = append(unsure, id)
		} else {
			s.different[id] = struct{}{}
		}
	}
	return s.inspect(ctx, in, unsure, func(d replay.Difference) { s.different[d.UserID] = struct{}{} })
}

// differing returns the users with a difference in any column of any row.
func (s *Staging) differing(ctx context.Context, in *replay.Snapshot, users []string) ([]string, error) {
	if err := in.ScanTables(ctx, users == nil); err != nil {
		return nil, err
	}
	where, args := "true", []any(nil)
	if users != nil {
		where, args = "user_id = ANY ($1::text[])", []any{users}
	}
	number := fmt.Sprintf("%02d", s.partition)
	rows, _ := in.Tx.Query(ctx, differingSQL("user_id", "users_p"+number, "user_id", where, new(store.UserRow).Columns())+`
UNION
`+differingSQL("user_id", "conversations_p"+number, "user_id, conversation_id", where, new(store.ConversationRow).Columns())+`
UNION
`+differingSQL("user_id", "paths_p"+number, "user_id, category", where, new(store.PathRow).Columns()), args...)
	different, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("compare with the live tables: %w", err)
	}
	return different, nil
}

// differingSQL finds the users or rooms, by the column of, with a row that differs
// between table and its staging table, or is in only one of them. ids are the key
// columns of a row.
func differingSQL(of, table, ids, where string, columns []store.Column) string {
	live, log := make([]string, len(columns)), make([]string, len(columns))
	for i := range columns {
		live[i], log[i] = "live."+columns[i].Name, "log."+columns[i].Name
	}
	return `SELECT ` + of + `
FROM (SELECT * FROM badged.` + table + ` WHERE ` + where + `) AS live
FULL JOIN (SELECT * FROM badged.` + table + `_staging WHERE ` + where + `) AS log USING (` + ids + `)
WHERE (` + strings.Join(live, ", ") + `) IS DISTINCT FROM (` + strings.Join(log, ", ") + `)`
}

// inspect compares users field by field, as a verification does.
func (s *Staging) inspect(ctx context.Context, in *replay.Snapshot, ids []string, found func(replay.Difference)) error {
	if len(ids) == 0 {
		return nil
	}
	users := make(map[string]*badge.User, len(ids))
	wanted := make(map[string]struct{}, len(ids))
	for _, id := range ids {
		users[id], wanted[id] = badge.NewUser(id), struct{}{}
	}
	var reads pgx.Batch
	reads.Queue(s.tables.Users.ReadUsers, ids).Query(func(rows pgx.Rows) error { return store.ScanUsers(rows, users) })
	reads.Queue(s.tables.Conversations.ReadUsers, ids).Query(func(rows pgx.Rows) error { return store.ScanConversations(rows, users) })
	if err := in.Tx.SendBatch(ctx, &reads).Close(); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	for _, u := range users {
		for _, c := range u.Conversations {
			c.Touched = true // it has a row
		}
	}
	healed, err := in.HealedUsers(ctx)
	if err != nil {
		return err
	}
	c := replay.Comparison{In: in, Healed: healed, Options: replay.VerifyOptions{Users: ids, Found: found}}
	return c.Compare(ctx, &replay.Replay{Users: users, Wants: func(id string) bool {
		_, ok := wanted[id]
		return ok
	}})
}

// ending is the result of an attempt to finish.
type ending int

const (
	finished  ending = iota
	overtaken        // too many events came meanwhile
	locked           // a long transaction reads the live tables
)

// reported is the most different users whose differences are reported.
const reported = 10

// maxTold is up to how many users who were wrong devices and webhooks are told of these; beyond
// that, all users are told, which takes no rows.
const maxTold = 10_000

// finish decides, holding the fence, whether the staging tables replace the
// live ones, and does it. It first catches up with at most limit events; if
// that is not enough it does nothing else.
func (s *Staging) finish(ctx context.Context, limit int) (end ending, err error) {
	var began time.Time
	err = pgx.BeginFunc(ctx, s.job.Conn, func(tx pgx.Tx) error {
		in := &replay.Snapshot{Tx: tx, Partition: s.partition, Partitions: s.job.Partitions}
		if err := in.Open(ctx, "FOR UPDATE"); err != nil {
			return err
		}
		began = time.Now()
		if s.at.Before(in.Position) {
			if _, err := s.step(ctx, in, limit); err != nil {
				return err
			}
		}
		if s.at.Before(in.Position) {
			end = overtaken
			return nil
		}
		if err := s.judge(ctx, in); err != nil {
			return err
		}
		// If a lock is not available, undo the swap but not the catching up.
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return s.settle(ctx, in, tx) })
		if pgsession.IsLocked(err) {
			end = locked
			return nil
		}
		return err
	})
	s.result.Held = max(s.result.Held, time.Since(began))
	return end, err
}

// settle drops the staging tables if they equal the live ones, and swaps them
// in otherwise.
func (s *Staging) settle(ctx context.Context, in *replay.Snapshot, tx pgx.Tx) error {
	s.result.First = nil
	changed := len(s.different) > 0 || len(s.rooms.different) > 0
	if err := s.inspectRooms(ctx, in, func(d replay.Difference) { s.result.First = append(s.result.First, d) }); err != nil {
		return err
	}
	// The badge of every member follows from the room.
	for _, members := range s.rooms.different {
		for _, id := range members {
			s.different[id] = struct{}{}
		}
	}
	s.result.DifferentUsers = int64(len(s.different))
	end := dropStagingSQL
	if changed {
		ids := slices.Sorted(maps.Keys(s.different))
		if err := s.inspect(ctx, in, ids[:min(reported, len(ids))], func(d replay.Difference) { s.result.First = append(s.result.First, d) }); err != nil {
			return err
		}
		slices.SortStableFunc(s.result.First, func(a, b replay.Difference) int { return cmp.Compare(a.UserID, b.UserID) })
		end = swapStagingSQL
	}
	if _, err := tx.Exec(ctx, pgsession.SetSwapPatienceSQL); err != nil {
		return fmt.Errorf("set up the transaction: %w", err)
	}
	if _, err := tx.Exec(ctx, end, s.partition); err != nil {
		return fmt.Errorf("drop or swap in the staging tables: %w", err)
	}
	var writes pgx.Batch
	if changed {
		writes.Queue(statements.Get("begin an epoch"), s.partition)
		if len(s.different) <= maxTold {
			writes.Queue(statements.Get("tell of users"), s.partition, slices.Sorted(maps.Keys(s.different)))
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
