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
// that they are copied before.
func byHand(t follow.Table) bool {
	return t.Shared && (t.Kind == "dead_letters" || t.Kind == "room_partitions")
}

// of returns the condition for the rows t of a table that belong to a child.
func (c *child) of(t follow.Table) string {
	switch {
	case slices.Contains(t.Key, "user_id"):
		return strings.ReplaceAll(c.belongs, "USER", "t.user_id")
	case t.Kind == "webhook_queue":
		// What is told of a room is that of its members in the partition.
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

// recount sets the members of rooms: the second child has those of its conversations, and
// the first all others, also those who were erased. Counted is the condition on rooms r for
// the former, and others for the latter.
func (s *splitter) recount(ctx context.Context, tx pgx.Tx, suffix, counted, others string) error {
	number := func(p int) string { return fmt.Sprintf("p%02d%s", p, suffix) }
	first, second := number(s.children[0].Child), number(s.children[1].Child)
	if _, err := tx.Exec(ctx, fmt.Sprintf(`UPDATE badged.rooms_%s AS r SET members = m.members
FROM (SELECT r.conversation_id, (SELECT count(*) FROM badged.conversations_%[1]s AS c WHERE c.conversation_id = r.conversation_id AND c.joined IS NOT NULL) AS members
      FROM badged.rooms_%[1]s AS r WHERE %s) AS m
WHERE m.conversation_id = r.conversation_id AND m.members <> r.members`, second, counted)); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, fmt.Sprintf(`UPDATE badged.rooms_%s AS f SET members = r.members - o.members
FROM badged.rooms_%s AS r JOIN badged.rooms_%s AS o USING (conversation_id)
WHERE f.conversation_id = r.conversation_id AND f.members <> r.members - o.members AND (%s)`, first, number(s.Partition), second, others))
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

// catchUp copies what has changed until a round is quick.
func (s *splitter) catchUp(ctx context.Context) error {
	return follow.CatchUp(func() (int, error) {
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

// round copies the log up to a cursor, and at most so many of the changes, from a
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
	}
	for _, t := range follow.Tables() {
		if byHand(t) || t.Form == follow.Frozen || !done.Kinds[t.Kind] {
			continue
		}
		if err := s.follow(ctx, tx, t, done.Last); err != nil {
			return 0, fmt.Errorf("copy what has changed in %s: %w", t.Name(s.Partition), err)
		}
	}
	if done.Kinds["conversations"] || done.Kinds["rooms"] {
		joins := `r.conversation_id IN (SELECT key[2] FROM (` + s.Keys("conversations", done.Last) + `) AS k)`
		rooms := `r.conversation_id IN (SELECT key[1] FROM (` + s.Keys("rooms", done.Last) + `) AS k)`
		if err := s.recount(ctx, tx, "", joins, joins+" OR "+rooms); err != nil {
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
	name := t.Name(s.Partition)
	all := s.columns[name]
	if t.Form == follow.Whole {
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
	key := all.Of(t.Key)
	if _, err := tx.Exec(ctx, `DROP TABLE IF EXISTS split_keys; CREATE TEMPORARY TABLE split_keys (key text[] COLLATE "C") ON COMMIT DROP; INSERT INTO split_keys `+
		s.Keys(t.Kind, last)); err != nil {
		return err
	}
	unique, sets := key, []string{}
	if t.Shared {
		unique = append(all.Of([]string{"partition_id"}), key...)
	}
	for _, one := range all.Without(append([]string{"partition_id"}, t.Key...)...) {
		if t.Kind != "rooms" || one.Name != "members" { // these are counted
			sets = append(sets, follow.Quote(one.Name)+" = excluded."+follow.Quote(one.Name))
		}
	}
	do := "NOTHING"
	if len(sets) > 0 {
		do = "UPDATE SET " + strings.Join(sets, ", ")
	}
	for _, c := range s.children {
		selected := c.selected(t, all)
		if t.Kind == "rooms" {
			selected = strings.Replace(selected, `t."members"`, "0", 1)
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf(`DELETE FROM %s AS t USING split_keys AS k WHERE (%s) = (%s) AND %s AND NOT EXISTS (SELECT FROM %s AS r WHERE (%s) = (%s) AND %s)`,
			t.Name(c.Child), key.List("t."), key.FromKey("k.key"), t.Of(c.Child), name, key.List("r."), key.List("t."),
			strings.ReplaceAll(t.Of(s.Partition), "t.", "r."))); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, fmt.Sprintf(`INSERT INTO %s (%s) SELECT %s FROM split_keys AS k JOIN %s AS t ON (%s) = (%s) WHERE %s AND %s ON CONFLICT (%s) DO %s`,
			t.Name(c.Child), all.List(""), selected, name, key.List("t."), key.FromKey("k.key"), t.Of(s.Partition), c.of(t)+s.refers(t, c), unique.List(""), do))
		if err != nil {
			return err
		}
		s.result.Rows += tag.RowsAffected()
	}
	return nil
}
