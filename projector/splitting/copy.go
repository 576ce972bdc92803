package splitting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/internal/follow"
	"github.com/badged/badged/projector/internal/logread"
)

const (
	// chunkRows is how many rows of a table are copied in a transaction.
	chunkRows = 5000
	// logRows is how many rows of the log are.
	logRows = 2000
)

// byHand reports whether the switch gives the rows of a table to the children, rather than
// that they are copied before: operators would see them twice.
func byHand(t follow.Table) bool { return t.Kind == "dead_letters" }

// of returns the condition for the rows t of a table that belong to a child.
func (c *child) of(t follow.Table) string {
	switch {
	case slices.Contains(t.Key, "user_id"):
		return strings.ReplaceAll(c.belongs, "USER", "t.user_id")
	case t.Kind == "webhook_queue":
		// A call about a room tells of the members in its partition.
		return fmt.Sprintf(`CASE t.type WHEN 'room.changed' THEN true WHEN 'deadletter.buried' THEN %t ELSE %s END`,
			c.First, strings.ReplaceAll(c.belongs, "USER", "t.subject"))
	case t.Kind == "settled_letters":
		return `(t.user_ids IS NULL OR EXISTS (SELECT FROM unnest(t.user_ids) AS u WHERE ` + strings.ReplaceAll(c.belongs, "USER", "u") + `))`
	}
	return "true"
}

// selected returns the select list of a table's rows t, as they are for a child.
func (c *child) selected(t follow.Table, all follow.Columns) string {
	var list []string
	for _, one := range all {
		switch {
		case one.Name == "partition_id":
			list = append(list, fmt.Sprint(c.Child))
		case t.Kind == "settled_letters" && one.Name == "user_ids":
			list = append(list, `CASE WHEN t.user_ids IS NOT NULL THEN ARRAY(SELECT u FROM unnest(t.user_ids) WITH ORDINALITY AS x (u, n) WHERE `+
				strings.ReplaceAll(c.belongs, "USER", "u")+` ORDER BY n) END`)
		default:
			list = append(list, "t."+follow.Quote(one.Name))
		}
	}
	return strings.Join(list, ", ")
}

// bulk copies a table in the order of its key, each chunk in a transaction. Rows that
// change behind the chunk are noted, so no snapshot has to last.
func (s *splitter) bulk(ctx context.Context, t follow.Table) error {
	name := t.Name(s.Partition)
	all := s.columns[name]
	key := all.Of(t.Key)
	from := ""
	for {
		where := t.Of(s.Partition) + from
		var bound []string
		err := s.Conn.QueryRow(ctx, fmt.Sprintf(`SELECT %s FROM %s AS t WHERE %s ORDER BY %s OFFSET %d LIMIT 1`,
			key.Texts("t."), name, where, key.List("t."), chunkRows-1)).Scan(&bound)
		last := errors.Is(err, pgx.ErrNoRows)
		if err != nil && !last {
			return err
		}
		if !last {
			where += fmt.Sprintf(` AND (%s) <= (%s)`, key.List("t."), key.Literals(bound))
		}
		if err := s.In(ctx, func(tx pgx.Tx) error {
			for _, c := range s.children {
				tag, err := tx.Exec(ctx, fmt.Sprintf(`INSERT INTO %s (%s) SELECT %s FROM %s AS t WHERE %s AND %s ON CONFLICT DO NOTHING`,
					t.Name(c.Child), all.List(""), c.selected(t, all), name, where, c.of(t)+s.refers(t, c)))
				if err != nil {
					return err
				}
				s.result.Rows += tag.RowsAffected()
			}
			return nil
		}); err != nil || last {
			return err
		}
		s.cfg.Progress(Copying, s.result.Rows)
		from = fmt.Sprintf(` AND (%s) > (%s)`, key.List("t."), key.Literals(bound))
	}
}

// refers returns a further condition: that what a row refers to has been copied.
func (s *splitter) refers(t follow.Table, c child) string {
	if t.Refers == "" {
		return ""
	}
	return " AND " + strings.ReplaceAll(strings.ReplaceAll(t.Refers, "pNN", fmt.Sprintf("p%02d", c.Child)), "r.", "t.")
}

// count counts the members of all rooms in the second child: those of its conversations.
func (s *splitter) count(ctx context.Context, tx pgx.Tx, suffix string) error {
	second := s.table("rooms", s.children[1].Child, suffix)
	if _, err := tx.Exec(ctx, fmt.Sprintf(`UPDATE %s AS r SET members = m.members
FROM (SELECT r.conversation_id, %s AS members FROM %[1]s AS r) AS m
WHERE m.conversation_id = r.conversation_id AND m.members <> r.members`, second, s.counted("r", suffix))); err != nil {
		return err
	}
	return s.countOthers(ctx, tx, suffix, "true")
}

// counted returns an expression of SQL for the members in the second child of a room.
func (s *splitter) counted(room, suffix string) string {
	return fmt.Sprintf(`(SELECT count(*) FROM %s AS c WHERE c.conversation_id = %s.conversation_id AND c.joined IS NOT NULL)`, s.table("conversations", s.children[1].Child, suffix), room)
}

// countOthers counts the members of rooms r in the first child: all members of the parent
// minus those of the second child. So members who were erased stay in the first.
func (s *splitter) countOthers(ctx context.Context, tx pgx.Tx, suffix, of string) error {
	_, err := tx.Exec(ctx, fmt.Sprintf(`UPDATE %s AS f SET members = r.members - o.members
FROM %s AS r JOIN %s AS o USING (conversation_id)
WHERE f.conversation_id = r.conversation_id AND f.members <> r.members - o.members AND %s`,
		s.table("rooms", s.children[0].Child, suffix), s.table("rooms", s.Partition, suffix), s.table("rooms", s.children[1].Child, suffix), of))
	return err
}

// table returns the name of a table of a partition.
func (s *splitter) table(kind string, partition int, suffix string) string {
	return follow.Table{Kind: kind, Suffix: suffix}.Name(partition)
}

// countJoined runs change, which replaces the conversations of split_keys, and adds to the
// members of rooms in the second child how many more of them are memberships then. Counting
// all members of a large room would take too long while publishers wait.
func (s *splitter) countJoined(ctx context.Context, tx pgx.Tx, change func() error) error {
	conversations, rooms := s.table("conversations", s.children[1].Child, ""), s.table("rooms", s.children[1].Child, "")
	joined := fmt.Sprintf(`SELECT c.conversation_id, count(*) AS n FROM split_keys AS k JOIN %s AS c ON c.user_id = k.key[1] AND c.conversation_id = k.key[2] WHERE c.joined IS NOT NULL GROUP BY 1`, conversations)
	if _, err := tx.Exec(ctx, `CREATE TEMPORARY TABLE split_joined ON COMMIT DROP AS `+joined); err != nil {
		return err
	}
	if err := change(); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, fmt.Sprintf(`UPDATE %s AS r SET members = r.members + more.n
FROM (SELECT conversation_id, sum(n) AS n FROM (SELECT conversation_id, - n AS n FROM split_joined UNION ALL %s) AS parts GROUP BY 1) AS more
WHERE more.conversation_id = r.conversation_id AND more.n <> 0`, rooms, joined))
	return err
}

// copyLog copies what is folded, until nothing is left.
func (s *splitter) copyLog(ctx context.Context) error {
	for {
		more := false
		err := s.In(ctx, func(tx pgx.Tx) error {
			at, err := logread.Load(ctx, tx, s.Partition, "")
			if err != nil {
				return err
			}
			more, err = s.copyChunk(ctx, tx, at)
			return err
		})
		s.cfg.Progress(CopyingLog, s.result.LogRows)
		if err != nil || !more {
			return err
		}
	}
}

// copyChunk gives each child its share of the next rows of the log, not beyond a position.
// They keep their places. It reports whether more is left.
func (s *splitter) copyChunk(ctx context.Context, tx pgx.Tx, at logread.Cursor) (more bool, err error) {
	if !s.copied.Before(at.Position) {
		return false, nil
	}
	bound, err := s.Bound(ctx, s.copied, at.Position, logRows)
	if err != nil {
		return false, err
	}
	pending := at.Pending
	if pending == nil {
		pending = []int64{}
	}
	var shares [2][][]any
	var id uint64
	var offset int64
	var era *int64
	var key uuid.UUID
	var own bool
	var payload []byte
	var metadata *string
	var appended time.Time
	rows, _ := tx.Query(ctx, statements.Of(s.Partition, "rows of the log"), s.copied.TransactionID, s.copied.Offset, bound.TransactionID, bound.Offset, pending)
	if _, err := pgx.ForEachRow(rows, []any{&id, &offset, &appended, &era, (*[16]byte)(&key), &own, &payload, &metadata}, func() error {
		for i, c := range s.children {
			part, n, err := c.Row(payload)
			if err != nil {
				return fmt.Errorf("the row at %d/%d: %w", id, offset, err)
			}
			if n > 0 {
				shares[i] = append(shares[i], []any{id, offset, appended, era, [16]byte(key), own, int16(n), slices.Clone(part), metadata}) //nolint:gosec // at most 1,000
			}
		}
		return nil
	}); err != nil {
		return false, fmt.Errorf("read the log: %w", err)
	}
	for i, c := range s.children {
		n, err := tx.CopyFrom(ctx, pgx.Identifier{"badged", events.Topic(c.Child)},
			[]string{"transaction_id", "offset", "created_at", "era", "uuid", "own", "events", "payload", "metadata"}, pgx.CopyFromRows(shares[i]))
		if err != nil {
			return false, fmt.Errorf("write the log of partition %d: %w", c.Child, err)
		}
		s.result.LogRows += n
	}
	s.copied = bound
	return bound.Before(at.Position), nil
}

// catchUp copies what has changed, until there is nothing to gain.
func (s *splitter) catchUp(ctx context.Context) error {
	return s.CatchUp(func() (int, error) {
		n := 0
		before := s.copied
		err := s.wrapRound(ctx, func(tx pgx.Tx) error {
			at, err := logread.Load(ctx, tx, s.Partition, "")
			if err != nil {
				return err
			}
			n, err = s.round(ctx, tx, at, follow.RoundChanges)
			return err
		})
		if err != nil {
			s.copied = before
		}
		s.cfg.Progress(CatchingUp, s.result.Rows)
		return n, err
	})
}

// wrapRound runs a round in one snapshot.
func (s *splitter) wrapRound(ctx context.Context, f func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, s.Conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, f)
}

// round copies the log up to a cursor, and at most that many of the changes, from a
// transaction in which all that it reads stays the same. It returns how many there were.
func (s *splitter) round(ctx context.Context, tx pgx.Tx, at logread.Cursor, most int) (int, error) {
	done, err := s.NotedChanges(ctx, most)
	if err != nil {
		return 0, err
	}
	for more := true; more; {
		if more, err = s.copyChunk(ctx, tx, at); err != nil {
			return 0, err
		}
		if err := s.Overdue(); err != nil {
			return 0, err
		}
	}
	for _, t := range follow.Tables() {
		if byHand(t) || t.Form == follow.Frozen || !done.Kinds[t.Kind] {
			continue
		}
		if err := s.follow(ctx, tx, t, done.Last); err != nil {
			return 0, fmt.Errorf("copy what has changed in %s: %w", t.Name(s.Partition), err)
		}
		if err := s.Overdue(); err != nil {
			return 0, err
		}
	}
	if done.Kinds["conversations"] || done.Kinds["rooms"] {
		of := `r.conversation_id IN (SELECT key[2] FROM (` + s.Keys("conversations", done.Last) + `) AS k UNION SELECT key[1] FROM (` + s.Keys("rooms", done.Last) + `) AS k)`
		if err := s.countOthers(ctx, tx, "", of); err != nil {
			return 0, fmt.Errorf("count the members of rooms: %w", err)
		}
	}
	if err := s.shareLetters(ctx, tx); err != nil {
		return 0, err
	}
	return len(done.Numbers), s.Copied(ctx, done.Numbers)
}

// follow copies the rows of a table that have changed.
func (s *splitter) follow(ctx context.Context, tx pgx.Tx, t follow.Table, last int64) error {
	if t.Form == follow.Whole {
		return s.followWhole(ctx, tx, t)
	}
	if _, err := tx.Exec(ctx, `DROP TABLE IF EXISTS split_keys; CREATE TEMPORARY TABLE split_keys (key text[] COLLATE "C") ON COMMIT DROP; INSERT INTO split_keys `+
		s.Keys(t.Kind, last)); err != nil {
		return err
	}
	if t.Kind == "conversations" {
		return s.countJoined(ctx, tx, func() error { return s.followKeys(ctx, tx, t) })
	}
	return s.followKeys(ctx, tx, t)
}

// followWhole copies all rows of a table.
func (s *splitter) followWhole(ctx context.Context, tx pgx.Tx, t follow.Table) error {
	name := t.Name(s.Partition)
	all := s.columns[name]
	for _, c := range s.children {
		tag, err := tx.Exec(ctx, fmt.Sprintf(`DELETE FROM %s AS t WHERE %s`, t.Name(c.Child), t.Of(c.Child)))
		if err == nil {
			tag, err = tx.Exec(ctx, fmt.Sprintf(`INSERT INTO %s (%s) SELECT %s FROM %s AS t WHERE %s AND %s`,
				t.Name(c.Child), all.List(""), c.selected(t, all), name, t.Of(s.Partition), c.of(t)))
		}
		if err != nil {
			return err
		}
		s.result.Rows += tag.RowsAffected()
	}
	return nil
}

// followKeys copies the rows of split_keys.
func (s *splitter) followKeys(ctx context.Context, tx pgx.Tx, t follow.Table) error {
	name := t.Name(s.Partition)
	all := s.columns[name]
	key := all.Of(t.Key)
	conflict := t.Upsert(all)
	if t.Kind == "rooms" {
		conflict = t.Upsert(all, "members") // these are counted
	}
	for i, c := range s.children {
		selected := c.selected(t, all)
		if t.Kind == "rooms" {
			members := "0"
			if i == 1 { // those of a room that is new there
				members = fmt.Sprintf(`CASE WHEN NOT EXISTS (SELECT FROM %s AS r WHERE r.conversation_id = t.conversation_id) THEN %s ELSE 0 END`, t.Name(c.Child), s.counted("t", ""))
			}
			selected = strings.Replace(selected, `t."members"`, members, 1)
		}
		stale := fmt.Sprintf(`DELETE FROM %s AS t USING split_keys AS k WHERE (%s) = (%s) AND %s`, t.Name(c.Child), key.List("t."), key.FromKey("k.key"), t.Of(c.Child))
		stale += fmt.Sprintf(` AND NOT EXISTS (SELECT FROM %s AS r WHERE (%s) = (%s) AND %s)`, name, key.List("r."), key.List("t."), strings.ReplaceAll(t.Of(s.Partition), "t.", "r."))
		if _, err := tx.Exec(ctx, stale); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, fmt.Sprintf(`INSERT INTO %s (%s) SELECT %s FROM split_keys AS k JOIN %s AS t ON (%s) = (%s) WHERE %s AND %s%s`,
			t.Name(c.Child), all.List(""), selected, name, key.List("t."), key.FromKey("k.key"), t.Of(s.Partition), c.of(t)+s.refers(t, c), conflict))
		if err != nil {
			return err
		}
		s.result.Rows += tag.RowsAffected()
	}
	return nil
}
