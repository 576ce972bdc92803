package projector

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
)

// shadow are the tables of a partition as a rebuild makes them. They are at a
// position of the log, on their way to that of the live tables.
//
// Nothing here is one long transaction that writes: that would hide new events
// from every projector until it ends.
type shadow struct {
	rebuild   *rebuild
	partition int
	// suffix is the end of the names of the tables.
	suffix string
	tables *tables

	at events.Position
	// keys are those remembered at the position, and generations how many there
	// are that keys was told of.
	keys        *keyMemory
	generations int

	// different are the users whose live rows are not those of the shadow;
	// touched are those to whom something has happened since that was found out,
	// of whom it is to be found out again. nil is everybody.
	different, touched map[string]struct{}

	result RebuiltPartition
}

const (
	createShadowSQL = `SELECT badged.create_rebuild_tables($1)`
	swapShadowSQL   = `SELECT badged.swap_rebuild_tables($1)`
	dropShadowSQL   = `SELECT badged.drop_rebuild_tables($1)`
)

func newShadow(r *rebuild, partition int) *shadow {
	return &shadow{
		rebuild: r, partition: partition, suffix: "rebuild",
		tables:    tablesNamed(partition, fmt.Sprintf("%02d_rebuild", partition)),
		different: map[string]struct{}{},
		result:    RebuiltPartition{Partition: partition},
	}
}

// What is done with the fence held, at first: doubled with every attempt, so that
// there is an end to it however much happens meanwhile.
const (
	heldEvents = 500
	heldUsers  = 500
)

// build makes the live tables what the log says, and says in result what they
// were.
func (s *shadow) build(ctx context.Context) error {
	if err := pgx.BeginFunc(ctx, s.rebuild.conn, func(tx pgx.Tx) error {
		if err := keepLog(ctx, tx, s.partition); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, createShadowSQL, s.partition)
		return err
	}); err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	if err := s.fill(ctx); err != nil {
		return err
	}
	blocked := blocking{conn: s.rebuild.conn, tell: s.rebuild.cfg.Blocked, partition: s.partition, tables: []string{
		"badged.users", fmt.Sprintf("badged.users_p%02d", s.partition),
		"badged.conversations", fmt.Sprintf("badged.conversations_p%02d", s.partition),
	}}
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
		} else if err := blocked.wait(ctx); err != nil {
			return err
		}
	}
}

// fill folds the log into the empty tables, up to where the live ones are now.
func (s *shadow) fill(ctx context.Context) error {
	var in instant
	err := atInstant(ctx, s.rebuild.cfg.Pool, s.partition, s.rebuild.partitions, func(now *instant) error {
		in = *now
		return in.from(ctx, s.rebuild.cfg.Archive)
	})
	if err != nil {
		return err
	}
	s.generations = len(in.generations)
	return s.fillUpTo(ctx, &in)
}

// fillUpTo folds the log into the empty tables, up to the position of in.
func (s *shadow) fillUpTo(ctx context.Context, in *instant) error {
	r := s.rebuild
	s.at = in.position
	// Of one statement after the other, as the log up to here stays as it is, and
	// nobody cuts it off beside a rebuild: one view throughout would keep everything
	// from being vacuumed.
	return pgx.BeginTxFunc(ctx, r.cfg.Pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL idle_in_transaction_session_timeout = 0`); err != nil {
			return fmt.Errorf("set up the transaction: %w", err)
		}
		in.tx = tx
		if err := in.scanTables(ctx, true); err != nil {
			return err
		}
		length, err := in.length(ctx)
		if err != nil {
			return err
		}
		everyone := func(string) bool { return true }
		for share, more := everybody(), true; more; share, more = share.next() {
			r.cfg.Planned(s.partition, length)
			fold, err := in.refoldShare(ctx, &share, everyone, nil, r.cfg.Memory, func(records int) {
				r.cfg.Done(records, records)
				r.rest(ctx)
			})
			if err != nil {
				return err
			}
			if err := s.copy(ctx, sorted(fold.users)); err != nil {
				return err
			}
			s.keys = fold.keys
		}
		return nil
	})
}

// catchUp folds what the live tables have folded meanwhile, until that is
// little.
func (s *shadow) catchUp(ctx context.Context) error {
	for {
		var in instant
		err := atInstant(ctx, s.rebuild.cfg.Pool, s.partition, s.rebuild.partitions, func(now *instant) error {
			in = *now
			return nil
		})
		if err != nil {
			return err
		}
		folded := 0
		for s.at.Before(in.position) {
			var n int
			err := pgx.BeginFunc(ctx, s.rebuild.conn, func(tx pgx.Tx) error {
				in.tx = tx
				n, err = s.step(ctx, &in, firstBatch)
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

// step folds up to limit records, but none behind in, in the transaction of in.
// It returns how many.
func (s *shadow) step(ctx context.Context, in *instant, limit int) (int, error) {
	s.keys.extend(in.generations[s.generations:])
	s.generations = len(in.generations)
	read, err := events.Read(ctx, in.tx, s.partition, s.at, limit, batchBytes)
	if err != nil {
		return 0, err
	}
	records := in.upTo(read.Records)
	if len(records) == 0 {
		return 0, fmt.Errorf("the log has no events between %s and %s", s.at, in.position)
	}
	b := batch{}
	for i := range records {
		it, dead := in.item(&records[i])
		if dead == nil && !s.keys.duplicate(it.key, records[i].Position) {
			b.items = append(b.items, it)
		}
	}
	users, missing := b.users(newCache(0))
	if err := s.load(ctx, in.tx, missing, users); err != nil {
		return 0, err
	}
	for id := range users {
		if s.touched != nil {
			s.touched[id] = struct{}{}
		}
	}
	for i := range b.items {
		fold(&b.items[i].event, users)
	}
	var writes pgx.Batch
	s.tables.queueWrites(&writes, sorted(users))
	if err := in.tx.SendBatch(ctx, &writes).Close(); err != nil {
		return 0, fmt.Errorf("write: %w", err)
	}
	s.at = records[len(records)-1].Position
	return len(records), nil
}

// load fills users from the shadow.
func (s *shadow) load(ctx context.Context, tx pgx.Tx, m missing, users map[string]*user) error {
	var reads pgx.Batch
	reads.Queue(s.tables.loadUsersSQL, m.users).Query(func(rows pgx.Rows) error { return scanUsers(rows, users) })
	reads.Queue(s.tables.loadConversationsSQL, m.pairUsers, m.pairConversations).
		Query(func(rows pgx.Rows) error { return scanConversations(rows, users) })
	reads.Queue(s.tables.loadUnreadSQL, m.readAll).Query(func(rows pgx.Rows) error { return scanConversations(rows, users) })
	if err := tx.SendBatch(ctx, &reads).Close(); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	return nil
}

// compare finds out which users are different, among those of whom that is not
// known. The live tables may be ahead: to whom something has happened in
// between is touched when the shadow catches up.
func (s *shadow) compare(ctx context.Context) error {
	return atInstant(ctx, s.rebuild.cfg.Pool, s.partition, s.rebuild.partitions, func(in *instant) error {
		if s.touched == nil {
			if err := s.measure(ctx, in); err != nil {
				return err
			}
		}
		return s.judge(ctx, in)
	})
}

// measure counts what has been built.
func (s *shadow) measure(ctx context.Context, in *instant) error {
	if err := in.scanTables(ctx, true); err != nil {
		return err
	}
	err := in.tx.QueryRow(ctx, fmt.Sprintf(`SELECT (SELECT count(*) FROM badged.users_p%02[1]d_rebuild), (SELECT count(*) FROM badged.conversations_p%02[1]d_rebuild)`,
		s.partition)).Scan(&s.result.Users, &s.result.Conversations)
	if err != nil {
		return fmt.Errorf("count: %w", err)
	}
	return nil
}

// judge finds out which of the touched users are different in the tables that
// in sees.
func (s *shadow) judge(ctx context.Context, in *instant) error {
	var users []string // nil is everybody
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
	mends, err := in.mends(ctx)
	if err != nil {
		return err
	}
	// Of who was mended the versions differ, as they should.
	var mended []string
	for _, id := range found {
		if _, ok := mends[id]; ok {
			mended = append(mended, id)
		} else {
			s.different[id] = struct{}{}
		}
	}
	return s.inspect(ctx, in, mended, func(d Difference) { s.different[d.UserID] = struct{}{} })
}

// differing returns the users of whom any column of any row differs.
func (s *shadow) differing(ctx context.Context, in *instant, users []string) ([]string, error) {
	if err := in.scanTables(ctx, users == nil); err != nil {
		return nil, err
	}
	where, args := "true", []any(nil)
	if users != nil {
		where, args = "user_id = ANY ($1::text[])", []any{users}
	}
	nn := fmt.Sprintf("%02d", s.partition)
	rows, err := in.tx.Query(ctx, differingSQL("users_p"+nn, "user_id", where, userFields())+`
UNION
`+differingSQL("conversations_p"+nn, "user_id, conversation_id", where, conversationFields()), args...)
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	different, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	return different, nil
}

// differingSQL finds the users with a row in table that is not the one in its
// shadow, or is in one of them only. ids are what names a row.
func differingSQL[T any](table, ids, where string, fields []field[T]) string {
	live, log := "live.version", "log.version"
	for _, f := range fields {
		live += ", live." + f.name
		if f.name == hourField { // which nobody may remember
			live += " + CASE WHEN live." + hourField + " = (SELECT unknown_delivered_hour FROM badged.settings) THEN log." + hourField + " - live." + hourField + " ELSE 0 END"
		}
		log += ", log." + f.name
	}
	return `SELECT user_id
FROM (SELECT * FROM badged.` + table + ` WHERE ` + where + `) AS live
FULL JOIN (SELECT * FROM badged.` + table + `_rebuild WHERE ` + where + `) AS log USING (` + ids + `)
WHERE (` + live + `) IS DISTINCT FROM (` + log + `)`
}

// inspect compares users field by field, as verifying does.
func (s *shadow) inspect(ctx context.Context, in *instant, ids []string, found func(Difference)) error {
	if len(ids) == 0 {
		return nil
	}
	users := make(map[string]*user, len(ids))
	wanted := make(map[string]struct{}, len(ids))
	for _, id := range ids {
		users[id], wanted[id] = newUser(id), struct{}{}
	}
	var reads pgx.Batch
	reads.Queue(s.tables.loadUsersSQL, ids).Query(func(rows pgx.Rows) error { return scanUsers(rows, users) })
	reads.Queue(fmt.Sprintf(`SELECT %s FROM badged.conversations_p%02d_rebuild AS c WHERE user_id = ANY ($1::text[])`, conversationColumns, s.partition), ids).
		Query(func(rows pgx.Rows) error { return scanConversations(rows, users) })
	if err := in.tx.SendBatch(ctx, &reads).Close(); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	for _, u := range users {
		for _, c := range u.conversations {
			c.touched = true // it has a row
		}
	}
	mends, err := in.mends(ctx)
	if err != nil {
		return err
	}
	c := comparison{in: in, mends: mends, options: VerifyOptions{Users: ids, Found: found}}
	return c.compare(ctx, &refold{users: users, wants: func(id string) bool {
		_, ok := wanted[id]
		return ok
	}})
}

// ending is what became of an attempt to finish.
type ending int

const (
	finished  ending = iota
	overtaken        // too much has happened meanwhile
	locked           // somebody reads the live tables and does not end
)

// reported is how many different users are reported with what differs.
const reported = 10

// finish decides, with the fence held, whether the shadow takes the place of the
// live tables, and makes it so. It catches up with at most limit events, and
// otherwise has done only that.
func (s *shadow) finish(ctx context.Context, limit int) (end ending, err error) {
	var began time.Time
	err = pgx.BeginFunc(ctx, s.rebuild.conn, func(tx pgx.Tx) error {
		in := &instant{tx: tx, partition: s.partition, partitions: s.rebuild.partitions}
		if err := in.open(ctx, "FOR UPDATE"); err != nil {
			return err
		}
		began = time.Now()
		if s.at.Before(in.position) {
			if _, err := s.step(ctx, in, limit); err != nil {
				return err
			}
		}
		if s.at.Before(in.position) {
			end = overtaken
			return nil
		}
		if err := s.judge(ctx, in); err != nil {
			return err
		}
		// A lock that cannot be had undoes the swap, not the catching up.
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return s.settle(ctx, in, tx) })
		if isLocked(err) {
			end = locked
			return nil
		}
		return err
	})
	s.result.Held = max(s.result.Held, time.Since(began))
	return end, err
}

// settle drops the shadow where it is what the live tables are, or else has it
// take their place.
func (s *shadow) settle(ctx context.Context, in *instant, tx pgx.Tx) error {
	s.result.DifferentUsers, s.result.First = int64(len(s.different)), nil
	end := dropShadowSQL
	if len(s.different) > 0 {
		ids := slices.Sorted(maps.Keys(s.different))
		if err := s.inspect(ctx, in, ids[:min(reported, len(ids))], func(d Difference) { s.result.First = append(s.result.First, d) }); err != nil {
			return err
		}
		slices.SortStableFunc(s.result.First, func(a, b Difference) int { return cmp.Compare(a.UserID, b.UserID) })
		end = swapShadowSQL
	}
	if _, err := tx.Exec(ctx, setSwapPatienceSQL); err != nil {
		return fmt.Errorf("set up the transaction: %w", err)
	}
	if _, err := tx.Exec(ctx, end, s.partition); err != nil {
		return fmt.Errorf("put the tables in place: %w", err)
	}
	var writes pgx.Batch
	if len(s.different) > 0 {
		// A batch that waits for the position finds the revision raised, and reads
		// everything again.
		writes.Queue(`UPDATE badged.partitions
SET epoch = substr(replace(gen_random_uuid()::text, '-', ''), 1, 12), revision = revision + 1
WHERE partition_id = $1`, s.partition)
		writes.Queue(`DELETE FROM badged.mended_users WHERE partition_id = $1`, s.partition)
		writes.Queue(resetExpirySQL, s.partition)
	}
	if s.rebuild.cfg.Partition == nil {
		writes.Queue(`INSERT INTO badged.rebuilt_partitions (partition_id, users, conversations, different_users) VALUES ($1, $2, $3, $4)`,
			s.partition, s.result.Users, s.result.Conversations, s.result.DifferentUsers)
	}
	if err := tx.SendBatch(ctx, &writes).Close(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
