package relay

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
)

// Divided is a [Target] that consists of several databases, some of which may be unavailable. It is
// safe for concurrent use.
type Divided interface {
	// AppendBestEffort does what [cluster.Appender.AppendBestEffort] does. It returns the same
	// kinds of errors as Append of [Target].
	AppendBestEffort(ctx context.Context, excluded []bool, evs ...events.Event) (*cluster.PartialFailure, error)
	// PartitionOf returns the partition to which a user belonged before any partition was split.
	PartitionOf(userID string) int
	// Away reports whether the database of a partition is known to be unavailable. partition is a
	// number from before any split, as PartitionOf returns it.
	Away(partition int) bool
}

// WaitingError means that some events wait in the outbox because a database is unavailable, while
// other events are still carried.
type WaitingError struct{ Err error }

// Error implements error.
func (e *WaitingError) Error() string {
	return "events of some users wait in the outbox: " + e.Err.Error()
}

// Unwrap returns the reason.
func (e *WaitingError) Unwrap() error { return e.Err }

// waiting tracks the rows of the outbox that cannot be carried yet, because a database is
// unavailable. Such a row remains in the outbox, but the users of all other databases get its event
// at once. When the database is available again, the relay reads the outbox again from the first
// row: alternately one page of old rows, and one page of new rows. New rows for users of this
// database also wait, until the database has all older rows.
//
// If a waiting row joins users to a room, all later rows of this room wait, even for users of
// available databases: see [cluster.SplitAtJoins].
type waiting struct {
	// behind marks the partitions whose users have waiting rows; nil means no partition.
	behind []bool
	// lastErr is the last error of an append. It is the reason why rows wait.
	lastErr error
	// catching marks those partitions in behind whose database is available again, so that waiting
	// rows are carried to them now. nil means no partition. reached is the offset up to which these
	// partitions have all rows.
	catching []bool
	reached  int64
	// held has the rooms whose rows must stay in the outbox, without being carried to any database,
	// because a row that joins users to the room waits for a database.
	held rooms
	// stillHeld collects, while the relay catches up, the rooms that must stay in held afterwards.
	stillHeld rooms
	// nextAttempt is the time of the next attempt to catch up.
	nextAttempt time.Time
	pauses      backoff
}

// appendBestEffort appends events to all databases except the databases that have a partition in
// excluded. It returns the partitions that did not get their events because a database is
// unavailable.
func (c *carrier) appendBestEffort(ctx context.Context, evs []events.Event, excluded []bool) (*cluster.PartialFailure, error) {
	if c.cfg.Divided != nil {
		return c.cfg.Divided.AppendBestEffort(ctx, excluded, evs...)
	}
	_, err := c.cfg.Target.Append(ctx, evs)
	return nil, err
}

// union returns `partitions` together with the partitions that missed events.
func union(partitions []bool, missed *cluster.PartialFailure) []bool {
	if missed == nil {
		return partitions
	}
	all := slices.Clone(missed.Partitions)
	for p, is := range partitions {
		all[p] = all[p] || is
	}
	return all
}

// fallBehind marks the partitions that missed events as behind: from now on, rows with users of
// these partitions wait in the outbox.
func (c *carrier) fallBehind(missed *cluster.PartialFailure) {
	if missed == nil {
		return
	}
	c.behind = union(c.behind, missed)
	c.delay(missed.Err)
}

// delay postpones the next attempt to catch up. reason is the new error, or nil.
func (c *carrier) delay(reason error) {
	if reason != nil {
		c.lastErr = reason
	}
	c.catching, c.nextAttempt = nil, time.Now().Add(c.pauses.pauseAfter(reason))
}

// waitError returns why events wait, or nil if none wait. It is a [*WaitingError] if events can
// still be carried to other partitions.
func (c *carrier) waitError() error {
	switch {
	case c.behind == nil || c.lastErr == nil:
		return nil
	case slices.Contains(c.behind, false):
		return &WaitingError{c.lastErr}
	}
	return c.lastErr
}

// waits reports whether a row must stay in the outbox because a partition of one of its users is
// behind.
func (c *carrier) waits(r *row) bool { return c.touches(r, c.behind) }

// touches reports whether a row has a user in one of the partitions. A row without users is about a
// room; touches assumes that the room has members in every partition.
func (c *carrier) touches(r *row, partitions []bool) bool {
	if len(r.event.Data.UserIDs) == 0 {
		return slices.Contains(partitions, true)
	}
	return partitions != nil && slices.ContainsFunc(r.event.Data.UserIDs, func(user string) bool {
		return partitions[c.cfg.Divided.PartitionOf(user)]
	})
}

// keep ensures that catchUp will read the given rows, which stay in the outbox. catchUp reads the
// rows after the offset c.reached. If the transaction of a given row was still open when catchUp
// passed the offset of the row, keep moves c.reached back to before the row.
func (c *carrier) keep(rows []row) {
	for i := range rows {
		c.reached = min(c.reached, rows[i].offset-1)
	}
}

// rooms is a set of rooms for which a database has not stored all joins yet.
type rooms map[string]bool

// add adds the rooms that the rows join users to.
func (r *rooms) add(rows []row) {
	for i := range rows {
		if rows[i].event.Type == events.RoomJoined {
			if *r == nil {
				*r = rooms{}
			}
			(*r)[rows[i].event.Data.ConversationID] = true
		}
	}
}

// has reports whether a row is about one of the rooms.
func (r *rooms) has(candidate *row) bool { return (*r)[candidate.event.Data.ConversationID] }

// catchUp reads a page of waiting rows and carries it to the databases that are available again.
// found reports whether the page has rows. An error means that the outbox failed; if the target
// fails, catchUp tries again later.
func (c *carrier) catchUp(ctx context.Context) (found bool, err error) {
	if c.behind == nil || c.catching == nil && !c.begin() {
		return false, nil
	}
	// Do not read rows of the transactions that were open when the last page was read: these rows
	// may have become visible only now, and no database has them yet. The next page reads them.
	p, full, err := c.fetch(ctx, statements.Get("read waiting rows"), c.reached, c.passed, c.open.listed, c.open.young, maxEvents, maxBytes)
	if err != nil {
		return false, err
	}
	good, refused := decode(p.rows)
	still, others := slices.Clone(c.behind), make([]bool, len(c.catching))
	for p, is := range c.catching {
		still[p], others[p] = still[p] && !is, !is
	}
	for stage := range c.stages(good) {
		_, free := split(stage, c.stillHeld.has)
		due, _ := split(free, func(r *row) bool { return c.touches(r, c.catching) || c.held.has(r) })
		more, ok := c.carryAgain(ctx, due, others)
		if !ok {
			return false, nil
		}
		refused = append(refused, more...)
		_, good := split(due, among(more))
		waits, done := split(good, func(r *row) bool { return c.touches(r, still) })
		c.stillHeld.add(waits)
		c.settled(done)
	}
	c.setAside(ctx, refused)
	if n := len(p.rows); n > 0 {
		c.reached = p.rows[n-1].offset
	}
	if !full { // the databases that were catching up have all rows up to passed
		c.behind, c.held, c.catching, c.pauses = still, c.stillHeld, nil, newBackoff()
		if !slices.Contains(still, true) {
			c.behind, c.lastErr = nil, nil
		}
	}
	return len(p.rows) > 0, nil
}

// carryAgain carries rows to the databases that are catching up; `others` has the partitions of all
// other databases. If the room of a row is in held, no database has the row yet, so carryAgain also
// carries this row to the databases that are not behind. If the target fails, carryAgain postpones
// the next attempt, and ok is false.
func (c *carrier) carryAgain(ctx context.Context, rows []row, others []bool) (refused []refusal, ok bool) {
	held, _ := split(rows, c.held.has)
	for _, part := range []struct {
		rows     []row
		excluded []bool
	}{{rows, others}, {held, c.behind}} {
		_, rest := split(part.rows, among(refused))
		more, missed, err := c.append(ctx, rest, part.excluded)
		switch {
		case err != nil: // the target failed
			c.delay(err)
			return nil, false
		case missed != nil:
			c.behind = union(c.behind, missed)
			c.held.add(rows)
			c.delay(missed.Err)
			return nil, false
		}
		refused = append(refused, more...)
	}
	return refused, true
}

// begin starts catching up with the databases that are available again. It returns false if the
// pause after the last error has not ended, or if every database with waiting rows is known to be
// unavailable.
func (c *carrier) begin() bool {
	if time.Now().Before(c.nextAttempt) {
		return false
	}
	back := slices.Clone(c.behind)
	for p := range back {
		back[p] = back[p] && !c.cfg.Divided.Away(p)
	}
	if !slices.Contains(back, true) {
		return false
	}
	c.catching, c.reached, c.stillHeld = back, math.MinInt64, nil
	return true
}
