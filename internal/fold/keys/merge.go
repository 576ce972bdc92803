package keys

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// merge is a merge of several runs (inputs) into one run (output), in several transactions. The
// last transaction replaces the inputs with the output. If a merge is interrupted, a later step of
// a Merger, in this process or another, drops the output.
type merge struct {
	inputs  []*run
	cursors []*cursor
	output  *run
	// read counts the entries read.
	read int64
}

// cursor reads the entries of a run in ascending order.
type cursor struct {
	run *run
	// next is a lower bound for the first prefix of the next page, as ordered returns it.
	next    int64
	ended   bool
	entries []Entry
}

// beginMerge starts a merge of runs of one generation.
func (m *Merger) beginMerge(ctx context.Context, inputs []*run) error {
	c := &merge{inputs: inputs}
	err := pgx.BeginFunc(ctx, m.Pool, func(tx pgx.Tx) (err error) {
		c.output, err = m.beginRun(ctx, tx, inputs[0].generation)
		return err
	})
	if err != nil {
		return fmt.Errorf("merge %d runs of event keys: %w", len(inputs), err)
	}
	for _, r := range inputs {
		c.cursors = append(c.cursors, &cursor{run: r, next: math.MinInt64})
	}
	m.current = c
	return nil
}

// continueMerge writes the next segment of the current merge, or finishes the merge if every
// entry is written. After an error it abandons the merge.
func (m *Merger) continueMerge(ctx context.Context) (err error) {
	c := m.current
	defer func() {
		if err != nil {
			m.current, m.listed = nil, false
			err = fmt.Errorf("merge %d runs of event keys: %w", len(c.inputs), err)
		}
	}()
	entries, err := m.nextSegment(ctx, c)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return m.finishMerge(ctx, c)
	}
	return pgx.BeginFunc(ctx, m.Pool, func(tx pgx.Tx) error { return m.writeSegment(ctx, tx, c.output, entries) })
}

// nextSegment returns the entries of the next segment; none at the end of the merge.
func (m *Merger) nextSegment(ctx context.Context, c *merge) ([]Entry, error) {
	entries := make([]Entry, 0, min(m.Sizes.Segment, 1<<16))
	for {
		var least *cursor
		for _, at := range c.cursors {
			if err := m.fill(ctx, at); err != nil {
				return nil, err
			}
			if len(at.entries) > 0 && (least == nil || compareEntries(at.entries[0], least.entries[0]) < 0) {
				least = at
			}
		}
		if least == nil {
			return entries, nil
		}
		e, n := least.entries[0], len(entries)
		if n >= m.Sizes.Segment && entries[n-1].Prefix != e.Prefix {
			return entries, nil
		}
		if n == 0 || entries[n-1] != e {
			entries = append(entries, e)
		}
		least.entries = least.entries[1:]
		c.read++
	}
}

// fill reads the next pages of a run if the cursor has no entries left.
func (m *Merger) fill(ctx context.Context, c *cursor) error {
	if len(c.entries) > 0 || c.ended {
		return nil
	}
	var first int64
	var page []byte
	c.entries = c.entries[:0]
	rows, _ := m.Pool.Query(ctx, statements.Of(m.Window.partition, "read pages"), c.run.number, c.next, m.Sizes.Read)
	tag, err := pgx.ForEachRow(rows, []any{&first, &page}, func() (err error) {
		if c.entries, err = decode(c.entries, page); err != nil {
			return corruptRun(m.Window.partition, c.run.number, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.ended = tag.RowsAffected() < int64(m.Sizes.Read) || first == math.MaxInt64
	c.next = first + 1
	return nil
}

// finishMerge replaces the inputs with the output, in the tables and in the window. During this
// time it has the fold lock of the partition: otherwise a batch could look up keys in runs that are
// being dropped.
func (m *Merger) finishMerge(ctx context.Context, c *merge) error {
	return m.Locked(ctx, func() error {
		w := m.Window
		if w.loads != m.loads || w.present != m.present {
			return nil // the next step abandons the merge
		}
		var expected int64
		for _, r := range c.inputs {
			expected += r.entries
		}
		err := pgx.BeginFunc(ctx, m.Pool, func(tx pgx.Tx) error {
			if err := m.replace(ctx, tx, c.inputs, c.output); err != nil {
				return err
			}
			if c.read != expected { // replace has checked that the inputs are live, so their pages exist
				return fmt.Errorf("runs in badged.dedup_pages_p%02d are corrupt: %s have %d entries, want %d",
					w.partition, numbersOf(c.inputs), c.read, expected)
			}
			return nil
		})
		if err != nil {
			w.Forget() // the commit may have succeeded
			return err
		}
		w.remove(func(r *run) bool { return slices.Contains(c.inputs, r) })
		w.add(c.output)
		m.current, m.listed = nil, false
		return nil
	})
}

func numbersOf(runs []*run) (numbers string) {
	for i, r := range runs {
		if i > 0 {
			numbers += ", "
		}
		numbers += fmt.Sprint(r.number)
	}
	return numbers
}

// expire deletes expired blocks, and marks expired and unfinished runs as dropped. It then
// lists all dropped runs in m.dropped; later steps delete their pages. There must be no
// current merge.
func (m *Merger) expire(ctx context.Context, oldest int) error {
	var updates pgx.Batch
	updates.Queue(statements.Of(m.Window.partition, "drop expired blocks"), oldest)
	updates.Queue(statements.Get("give up runs"), m.Window.partition, oldest)
	updates.Queue(statements.Get("list dropped runs"), m.Window.partition).Query(func(rows pgx.Rows) (err error) {
		m.dropped, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err := m.Pool.SendBatch(ctx, &updates).Close(); err != nil {
		return fmt.Errorf("find expired runs of event keys: %w", err)
	}
	m.listed = true
	return nil
}

// droppedPages is the maximum number of pages that one transaction deletes.
const droppedPages = 4096

// drop deletes some pages of the first run in m.dropped. When no pages are left, it deletes
// the run.
func (m *Merger) drop(ctx context.Context) error {
	number := m.dropped[0]
	tag, err := m.Pool.Exec(ctx, statements.Of(m.Window.partition, "drop pages"), number, droppedPages)
	if err == nil && tag.RowsAffected() < droppedPages {
		var deletes pgx.Batch
		deletes.Queue(statements.Get("drop filters"), m.Window.partition, number)
		deletes.Queue(statements.Get("drop a run"), m.Window.partition, number)
		err = m.Pool.SendBatch(ctx, &deletes).Close()
		m.dropped = m.dropped[1:]
	}
	if err != nil {
		m.listed = false
		return fmt.Errorf("delete run %d of event keys: %w", number, err)
	}
	return nil
}

// mustBeOne returns [ErrOutdated] unless a statement changed exactly one row.
func mustBeOne(tag pgconn.CommandTag) error {
	if tag.RowsAffected() != 1 {
		return ErrOutdated
	}
	return nil
}
