package relay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/bridge/traffic"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/pg/pgfault"
)

// These constants limit a page of the outbox. The target appends a page of this size efficiently in
// one call, and the page fits into one HTTP request.
const (
	maxEvents = 2000
	maxBytes  = 4 << 20
)

// Bounds of the pause between attempts.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// carry carries events from the outbox until ctx is done. It connects again after errors of the
// outbox.
func (r *Relay) carry(ctx context.Context) {
	pauses := newBackoff()
	for ctx.Err() == nil {
		err := r.carryOver(ctx, &pauses)
		r.report(ctx, err)
		pauses.wait(ctx, err)
	}
}

// carryOver reads pages of the outbox over one connection and carries them, until ctx is done or
// the connection fails. A new connection needs a new carrier: after a crash, Postgres may assign
// the same offsets to other rows.
func (r *Relay) carryOver(ctx context.Context, pauses *backoff) error {
	conn, err := r.cfg.Outbox.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect to the outbox: %w", err)
	}
	defer conn.Release()
	c := carrier{Relay: r, conn: conn, open: openTransactions{young: noTransaction}, waiting: waiting{pauses: newBackoff()}}
	defer c.settle(ctx)
	for ctx.Err() == nil {
		page, err := c.read(ctx)
		if err != nil {
			return err
		}
		more := len(page.rows) > 0
		if err = c.carry(ctx, page); err == nil {
			var caughtUp bool
			if caughtUp, err = c.catchUp(ctx); err != nil {
				return err
			}
			more = more || caughtUp
			err = c.waitError()
		}
		r.report(ctx, err)
		if _, partial := errors.AsType[*WaitingError](err); err != nil && !partial {
			pauses.wait(ctx, err)
			continue
		}
		pauses.Reset()
		if !more {
			_ = wait.For(ctx, r.cfg.PollInterval)
		}
	}
	return nil
}

// backoff has the pauses after errors.
type backoff struct{ wait.Backoff }

func newBackoff() backoff { return backoff{wait.Backoff{First: firstPause, Last: lastPause}} }

// wait pauses after an error, or returns when ctx is done.
func (b *backoff) wait(ctx context.Context, err error) { _ = wait.For(ctx, b.pauseAfter(err)) }

// pauseAfter returns the pause after an error: at least the pause that the target has asked for.
func (b *backoff) pauseAfter(err error) time.Duration {
	pause := b.Next()
	if transient, ok := errors.AsType[*traffic.TransientError](err); ok {
		pause = max(pause, transient.After)
	}
	return pause
}

// carrier reads the outbox in the order of offsets, carries each row, and then deletes it. It reads
// each offset only once, because the part of the table up to `passed` may be full of dead rows.
// There are two exceptions: rows of transactions that were still open when the carrier passed their
// offsets, and rows that wait for a database that is unavailable.
type carrier struct {
	*Relay
	waiting
	conn *pgxpool.Conn
	// passed is the offset up to which all rows have been read, except the rows of the transactions
	// in the field `open`.
	passed int64
	open   openTransactions
	// carried has the offsets of the rows that the next read of a page deletes. refused has the
	// rows among them that badged refused: the read first copies these rows to
	// badged.outbox_refused.
	carried []int64
	refused []refusal
}

// openTransactions has the transactions whose rows were not visible when a page was read: they were
// open, or had not begun.
type openTransactions struct {
	// listed has the ids of the transactions that were open in the snapshot of the read. young is
	// the least id of the transactions that began later.
	listed []string
	young  string
}

// noTransaction is an id that is greater than the id of any transaction.
const noTransaction = "18446744073709551615"

// carry carries the rows of a page to the target. If carry fails, the caller must read the same
// page again and carry it again.
func (c *carrier) carry(ctx context.Context, p page) error {
	good, refused := decode(p.rows)
	var kept, carried []row
	for stage := range c.stages(good) {
		held, free := split(stage, c.held.has)
		more, missed, err := c.append(ctx, free, c.behind)
		if err != nil {
			return err
		}
		c.fallBehind(missed)
		refused = append(refused, more...)
		_, free = split(free, among(more))
		waiting, done := split(free, c.waits)
		c.held.add(waiting)
		kept, carried = append(append(kept, held...), waiting...), append(carried, done...)
	}
	c.passed, c.open = p.passed, p.open
	c.keep(kept)
	c.settled(carried)
	c.setAside(ctx, refused)
	return nil
}

// settled records that rows were carried, so that the next read deletes them.
func (c *carrier) settled(rows []row) {
	for i := range rows {
		c.carried = append(c.carried, rows[i].offset)
	}
}

// setAside records events that badged refused. The next read moves them to badged.outbox_refused.
func (c *carrier) setAside(ctx context.Context, refused []refusal) {
	c.refused = append(c.refused, refused...)
	for _, f := range refused {
		c.carried = append(c.carried, f.offset)
		c.cfg.Logger.ErrorContext(ctx, "badged refused an event; the relay moves it to badged.outbox_refused", "offset", f.offset, "reason", f.reason)
	}
}

// statementTimeout bounds one transaction in the outbox. A transaction takes far less time unless
// the database is in trouble.
const statementTimeout = 10 * time.Second

// read reads the next page. In the same round trip it deletes the carried rows of the previous
// page: see fetch.
func (c *carrier) read(ctx context.Context) (page, error) {
	p, full, err := c.fetch(ctx, statements.Get("read a page"), c.passed, c.open.listed, c.open.young, maxEvents, maxBytes)
	if err != nil {
		return page{}, err
	}
	p.passed = c.passed
	switch n := len(p.rows); {
	case n > 0 && full: // use this offset even if passed is greater: the full page may end below passed, and the rows in between are still unread
		p.passed = p.rows[n-1].offset
	case n > 0:
		p.passed = max(p.passed, p.rows[n-1].offset)
	}
	return p, nil
}

// fetch runs a statement that reads rows. In the same round trip, it deletes the rows of the
// previous page that were carried, and moves the rows that badged refused to badged.outbox_refused.
// full reports whether the page is full, so that more rows may follow.
func (c *carrier) fetch(ctx context.Context, statement string, args ...any) (p page, full bool, err error) {
	// Do not cancel the statement with ctx: pgx would close the connection, and the state of the
	// carrier would be lost.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	var batch pgx.Batch
	c.queueSettling(&batch)
	batch.Queue(statement, args...).Query(func(rows pgx.Rows) error {
		var offset *int64
		var payload *string
		read := 0
		_, err := pgx.ForEachRow(rows, []any{&p.open.listed, &p.open.young, &offset, &payload}, func() error {
			read++
			if offset == nil { // an empty page is one row without an offset
				return nil
			}
			if payload == nil { // the earlier rows fill the page
				full = true
				return nil
			}
			p.rows = append(p.rows, row{offset: *offset, payload: *payload})
			return nil
		})
		full = full || read == maxEvents
		return err
	})
	if err := c.conn.SendBatch(ctx, &batch).Close(); err != nil {
		return page{}, false, fmt.Errorf("read the outbox: %w", err)
	}
	c.cfg.Metrics.carried.Add(float64(len(c.carried) - len(c.refused)))
	c.cfg.Metrics.refused.Add(float64(len(c.refused)))
	c.carried, c.refused = nil, nil
	return p, full, nil
}

// queueSettling queues statements that delete carried rows and move refused rows to
// badged.outbox_refused.
func (c *carrier) queueSettling(batch *pgx.Batch) {
	if len(c.refused) > 0 {
		var offsets []int64
		var reasons []string
		for _, f := range c.refused {
			offsets, reasons = append(offsets, f.offset), append(reasons, storable(f.reason))
		}
		batch.Queue(statements.Get("set rows aside"), offsets, reasons)
	}
	if len(c.carried) > 0 {
		batch.Queue(statements.Get("delete rows"), c.carried)
	}
}

// storable returns text in a form that Postgres can store: without zero bytes or invalid UTF-8.
func storable(text string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "\\0"), "\uFFFD")
}

// settle is called when the relay stops. It deletes the rows of the last page that were carried,
// and moves the rows that badged refused to badged.outbox_refused. If settle fails, the next relay
// carries the page again, and repeated events count only once.
func (c *carrier) settle(ctx context.Context) {
	if len(c.carried) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	var batch pgx.Batch
	c.queueSettling(&batch)
	if err := c.conn.SendBatch(ctx, &batch).Close(); err != nil {
		c.cfg.Logger.WarnContext(ctx, "cannot delete published events from the outbox; the relay will publish them again, and they count once", "error", err)
	}
}

// append appends valid events, in order, to all databases except the databases that have a
// partition in excluded. It returns the events that badged refuses. missed has the partitions that
// did not get the events because their database is unavailable; it is nil if there are none.
//
// If badged refuses some events, append calls the target again with the other events. If the
// refusal does not say which events are refused, or if a proxy rejects the call as too large,
// append splits the call into two halves. If append fails, some events may have been appended.
func (c *carrier) append(ctx context.Context, rows []row, excluded []bool) (refused []refusal, missed *cluster.PartialFailure, err error) {
	for len(rows) > 0 {
		some, err := c.appendBestEffort(ctx, eventsOf(rows), excluded)
		missed, excluded = missed.Add(some), union(excluded, some)
		if err == nil {
			return refused, missed, nil
		}
		named, isRefusal := refusedIn(err)
		switch {
		case !isRefusal && (len(rows) == 1 || !isTooLarge(err)):
			return refused, missed, fmt.Errorf("publish events of the outbox: %w", err)
		case len(named) > 0:
			var rest []row
			for i := range rows {
				if reason, bad := named[i]; bad {
					refused = append(refused, refusal{rows[i].offset, reason})
				} else {
					rest = append(rest, rows[i])
				}
			}
			if len(rest) == len(rows) {
				return refused, missed, fmt.Errorf("publish events of the outbox: %w", err)
			}
			rows = rest
		case len(rows) == 1:
			return append(refused, refusal{rows[0].offset, err.Error()}), missed, nil
		default:
			half := len(rows) / 2
			for _, part := range [][]row{slices.Clone(rows[:half]), slices.Clone(rows[half:])} {
				more, some, err := c.append(ctx, part, excluded)
				refused, missed, excluded = append(refused, more...), missed.Add(some), union(excluded, some)
				if err != nil {
					return refused, missed, err
				}
			}
			return refused, missed, nil
		}
	}
	return refused, missed, nil
}

// isTooLarge reports whether the server or a proxy rejected a call as too large.
func isTooLarge(err error) bool {
	refused, ok := errors.AsType[*traffic.ServerError](err)
	return ok && refused.Status == http.StatusRequestEntityTooLarge
}

// refusedIn reports whether an error is a refusal by badged. A failure, or an answer of a proxy or
// another server, is no refusal. named has the reasons by the index of the event, if the answer
// contains reasons.
func refusedIn(err error) (named map[int]string, isRefusal bool) {
	named = map[int]string{}
	if bad, ok := errors.AsType[*events.BatchError](err); ok {
		for _, e := range bad.Events {
			named[e.Index] = e.Err.Error()
		}
		return named, true
	}
	if refused, ok := errors.AsType[*traffic.ServerError](err); ok {
		if !refused.ByBadged {
			return nil, false
		}
		if _, transient := errors.AsType[*traffic.TransientError](err); transient {
			return nil, false
		}
		for _, e := range refused.Events {
			if before := named[e.Index]; before != "" {
				named[e.Index] = before + "; " + e.Error()
			} else {
				named[e.Index] = e.Error()
			}
		}
		switch refused.Status {
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
			return named, true
		case http.StatusForbidden: // the key may not publish these events, or is itself refused
			return named, len(named) > 0
		}
		return nil, false
	}
	return nil, pgfault.OfContent(err)
}
