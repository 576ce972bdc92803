package splitting

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/partition"
	"github.com/badged/badged/internal/partition/copier"
	"github.com/badged/badged/internal/pg/query"
)

// logRows is the maximum number of rows of the log that one call of CopyLog reads.
const logRows = 2000

// CopyLog implements copier.Operation. Each child gets the rows that [childfilter.Filter.Row] makes
// for it, at the same places as in the parent's log.
func (s *splitter) CopyLog(ctx context.Context, tx pgx.Tx, cursor logread.Cursor) (more bool, err error) {
	if !s.copied.Before(cursor.Position) {
		return false, nil
	}
	bound, err := s.Bound(ctx, s.copied, cursor.Position, logRows)
	if err != nil {
		return false, err
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
	args := []any{s.copied.TransactionID, s.copied.Offset, bound.TransactionID, bound.Offset, cursor.PendingArg()}
	targets := []any{&id, &offset, &appended, &era, (*[16]byte)(&key), &own, &payload, &metadata}
	if err := query.Each(ctx, tx, "read the log", statements.Of(s.Partition, "rows of the log"), args, targets, func() error {
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
		return false, err
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
	return bound.Before(cursor.Position), nil
}

// Mark implements copier.Operation.
func (s *splitter) Mark() (forget func()) {
	before := s.copied
	return func() { s.copied = before }
}

// Round implements copier.Operation.
func (s *splitter) Round(ctx context.Context, limit int) (n int, err error) {
	err = pgx.BeginTxFunc(ctx, s.Conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		cursor, err := logread.Load(ctx, tx, s.Partition, "")
		if err == nil {
			n, err = s.round(ctx, tx, cursor, limit)
		}
		return err
	})
	return n, err
}

// round copies the log up to a cursor, and the rows of at most limit recorded changes. It returns
// the number of these changes. tx must see one snapshot, or all writers must be blocked.
func (s *splitter) round(ctx context.Context, tx pgx.Tx, cursor logread.Cursor, limit int) (int, error) {
	done, err := s.Changes(ctx, tx, cursor, limit)
	if err != nil {
		return 0, err
	}
	if done.Kinds["conversations"] || done.Kinds["rooms"] {
		of := `r.conversation_id IN (SELECT key[2] FROM (` + s.Keys("conversations", done.Last) + `) AS k UNION SELECT key[1] FROM (` + s.Keys("rooms", done.Last) + `) AS k)`
		if err := s.countOthers(ctx, tx, "", of); err != nil {
			return 0, fmt.Errorf("count the members of rooms: %w", err)
		}
	}
	if err := s.filterLetters(ctx, tx); err != nil {
		return 0, err
	}
	return len(done.Numbers), s.Copied(ctx, done.Numbers)
}

// Staged implements copier.Operation. If conversations of the second child have changed, it updates
// the number of members of their rooms: it adds the number of changed rows that are memberships
// now, and subtracts the number of these rows that are memberships in the child's table, which
// still has the earlier rows. Counting all members of a large room would block publishers for too
// long.
func (s *splitter) Staged(ctx context.Context, tx pgx.Tx, t partition.Table, to copier.Part, rows string) error {
	if t.Kind != "conversations" || to.Child.First {
		return nil
	}
	_, err := tx.Exec(ctx, fmt.Sprintf(`UPDATE %s AS r SET members = members + more.n
FROM (SELECT conversation_id, sum(n) AS n FROM (
    SELECT conversation_id, 1 AS n FROM %s AS now WHERE joined IS NOT NULL
    UNION ALL SELECT conversation_id, -1 FROM moved_keys JOIN %s ON user_id = key[1] AND conversation_id = key[2] WHERE joined IS NOT NULL
) AS parts GROUP BY 1) AS more
WHERE more.conversation_id = r.conversation_id AND more.n <> 0`, s.table("rooms", to.Partition, ""), rows, t.Name(to.Partition)))
	return err
}

// countOthers sets the number of members of rooms in the first child to the parent's number minus
// the second child's number. So the first child's number includes erased members. The names of the
// tables end with `suffix`: "" or "_baseline". `column` is an SQL condition that selects the rooms
// r of the parent.
func (s *splitter) countOthers(ctx context.Context, tx pgx.Tx, suffix, column string) error {
	_, err := tx.Exec(ctx, fmt.Sprintf(`UPDATE %s AS f SET members = r.members - o.members
FROM %s AS r JOIN %s AS o USING (conversation_id)
WHERE f.conversation_id = r.conversation_id AND f.members <> r.members - o.members AND %s`,
		s.table("rooms", s.children[0].Child, suffix), s.table("rooms", s.Partition, suffix), s.table("rooms", s.children[1].Child, suffix), column))
	return err
}

func (s *splitter) table(kind string, number int, suffix string) string {
	return partition.Table{Kind: kind, Suffix: suffix}.Name(number)
}
