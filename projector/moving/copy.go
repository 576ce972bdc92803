package moving

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/internal/follow"
	"github.com/badged/badged/projector/internal/logread"
)

// chunkRows is how many rows of a table are copied in a transaction.
const chunkRows = 5000

// pipe copies the rows of a query of the source into columns of a table of the target, in
// the target's present transaction. It returns how many there were.
func (m *mover) pipe(ctx context.Context, query, table, columns string) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	read := make(chan error, 1)
	go func() {
		_, err := m.source.conn.PgConn().CopyTo(ctx, w, `COPY (`+query+`) TO STDOUT (FORMAT binary)`)
		_ = w.CloseWithError(err) // never fails
		read <- err
	}()
	tag, err := m.target.conn.PgConn().CopyFrom(ctx, r, `COPY `+table+` (`+columns+`) FROM STDIN (FORMAT binary)`)
	_ = r.CloseWithError(errTargetFailed) // never fails
	readErr := <-read
	switch {
	case readErr != nil && !errors.Is(readErr, errTargetFailed):
		return 0, fmt.Errorf("read from %s: %w", m.source.Name, readErr)
	case err != nil:
		return 0, fmt.Errorf("write to %s: %w", m.target.Name, err)
	}
	return tag.RowsAffected(), nil
}

// errTargetFailed ends reading from the source.
var errTargetFailed = errors.New("the target takes no more rows")

// bulk copies a table in the order of its key, each chunk in a transaction. Triggers record rows
// that change behind the chunk, so no long snapshot is needed.
func (m *mover) bulk(ctx context.Context, t follow.Table) error {
	name := t.Name(m.p)
	all := m.columns[name]
	key := all.Of(t.Key)
	from := ""
	for {
		where := t.Of(m.p)
		if from != "" {
			where += from
		}
		var bound []string
		err := m.source.conn.QueryRow(ctx, fmt.Sprintf(`SELECT %s FROM %s AS t WHERE %s ORDER BY %s OFFSET %d LIMIT 1`,
			key.Texts("t."), name, where, key.List("t."), chunkRows-1)).Scan(&bound)
		last := errors.Is(err, pgx.ErrNoRows)
		if err != nil && !last {
			return fmt.Errorf("read from %s: %w", m.source.Name, err)
		}
		to := ""
		if !last {
			to = fmt.Sprintf(` AND (%s) <= (%s)`, key.List("t."), key.Literals(bound))
		}
		if err := m.target.In(ctx, func(tx pgx.Tx) error {
			query := fmt.Sprintf(`SELECT %s FROM %s AS t WHERE %s`, all.List("t."), name, where+to)
			into := name
			if t.Refers != "" {
				if err := stage(ctx, tx, name, all); err != nil {
					return err
				}
				into = "moved_rows"
			}
			n, err := m.pipe(ctx, query, into, all.List(""))
			if err != nil || t.Refers == "" {
				m.copiedRows(Copying, n)
				return err
			}
			_, err = tx.Exec(ctx, fmt.Sprintf(`INSERT INTO %s (%s) SELECT %[2]s FROM moved_rows AS r WHERE %s`, name, all.List(""), m.refers(t)))
			m.copiedRows(Copying, n)
			return err
		}); err != nil || last {
			return err
		}
		from = fmt.Sprintf(` AND (%s) > (%s)`, key.List("t."), key.Literals(bound))
	}
}

func (m *mover) copiedRows(step Step, n int64) {
	m.result.Rows += n
	m.cfg.Progress(step, m.result.Rows)
}

// refers returns the condition of a table, for this partition.
func (m *mover) refers(t follow.Table) string {
	if t.Refers == "" {
		return "true"
	}
	return strings.ReplaceAll(t.Refers, "pNN", fmt.Sprintf("p%02d", m.p))
}

// stage makes an empty temporary table moved_rows with columns of a table.
func stage(ctx context.Context, tx pgx.Tx, name string, c follow.Columns) error {
	_, err := tx.Exec(ctx, `DROP TABLE IF EXISTS moved_rows; CREATE TEMPORARY TABLE moved_rows ON COMMIT DROP AS SELECT `+c.List("")+` FROM `+name+` WITH NO DATA`)
	return err
}

// copyLog copies the folded part of the log.
func (m *mover) copyLog(ctx context.Context) error {
	for {
		more := false
		err := m.target.In(ctx, func(tx pgx.Tx) error {
			at, err := logread.Load(ctx, m.source.conn, m.p, "")
			if err != nil {
				return err
			}
			more, err = m.copyChunk(ctx, tx, at)
			return err
		})
		m.cfg.Progress(CopyingLog, m.result.Rows)
		if err != nil || !more {
			return err
		}
	}
}

// copyChunk copies the next rows of the log, in the order in which they were folded, and
// not beyond a position. In the target they have ascending numbers as those of
// the first transaction of a database, like a log that was restored: they come before all
// that is appended there. The numbers are greater than any that the partition had, since
// archives and dead letters keep the places of rows that are gone. It reports whether more
// is left.
func (m *mover) copyChunk(ctx context.Context, tx pgx.Tx, at logread.Cursor) (more bool, err error) {
	const most = 2000
	moved := &m.target.move
	if !moved.copied.Before(at.Position) {
		return false, nil
	}
	bound, err := m.source.Bound(ctx, moved.copied, at.Position, most)
	if err != nil {
		return false, err
	}
	topic := "badged." + events.Topic(m.p)
	const order = `transaction_id, "offset"`
	query := fmt.Sprintf(`SELECT xid8 '3', %d + row_number() OVER (ORDER BY `+order+`), created_at, era, uuid, own, events, payload, metadata FROM `+topic+`
WHERE (`+order+`) > (xid8 '%d', %d) AND transaction_id >= xid8 '%[2]d' AND (`+order+`) <= (xid8 '%[4]d', %d) AND transaction_id <= xid8 '%[4]d'
AND transaction_id <> ALL ('{%[6]s}'::xid8[]) ORDER BY `+order,
		moved.behind+moved.rows, moved.copied.TransactionID, moved.copied.Offset, bound.TransactionID, bound.Offset, joined(at.Pending))
	n, err := m.pipe(ctx, query, topic, `transaction_id, "offset", created_at, era, uuid, own, events, payload, metadata`)
	if err != nil {
		return false, err
	}
	now := *moved
	now.copied, now.rows = bound, moved.rows+n
	if _, err := tx.Exec(ctx, statements.Get("the log is copied up to"), m.p, now.copied.TransactionID, now.copied.Offset, now.rows); err != nil {
		return false, err
	}
	*moved = now
	m.result.LogRows = now.rows
	return now.copied.Before(at.Position), nil
}

// joined returns numbers with commas between them.
func joined(numbers []int64) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(numbers), "[]"), " ", ",")
}
