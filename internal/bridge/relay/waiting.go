package relay

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
)

// Divided is a [Target] of several databases. Some of them may be away. It is safe for
// concurrent use.
type Divided interface {
	// AppendBestEffort is [cluster.Appender.AppendBestEffort] with the errors of [Target].
	AppendBestEffort(ctx context.Context, without []bool, evs ...events.Event) (*cluster.PartialFailure, error)
	// PartitionOf returns the partition to which a user belonged before any split.
	PartitionOf(userID string) int
	// Away reports whether the database of a partition is known to be away. The partition has
	// a number as returned by PartitionOf.
	Away(partition int) bool
}

// WaitingError means that some events wait for a database while other events are carried.
type WaitingError struct{ Err error }

// Error implements error.
func (e *WaitingError) Error() string {
	return "events of some users wait in the outbox: " + e.Err.Error()
}

// Unwrap returns the reason.
func (e *WaitingError) Unwrap() error { return e.Err }

// waiting tracks the rows that wait for a database that is away. Such a row remains in the
// outbox, but users of other databases get its event at once. When the database is back, the
// relay reads the outbox again from the first row, in turns: a page of old rows, then a page
// of new rows. A new row with users of this database waits until all older rows are carried.
//
// If a waiting row joins users to a room, all later rows of this room wait, for the users of
// all databases: see [cluster.SplitAtJoins].
type waiting struct {
	// behind marks the partitions whose users have waiting rows; nil means no partition.
	behind []bool
	// why is the last error while rows wait.
	why error
	// catching marks the partitions of behind that are catching up; nil means no partition.
	// These partitions have all rows up to the offset reached.
	catching []bool
	reached  int64
	// held has the rooms whose rows wait, for the users of all databases.
	held rooms
	// stillHeld has the rooms whose rows will still wait after this round of catching up.
	stillHeld rooms
	// again is the time of the next attempt.
	again  time.Time
	pauses backoff
}

// appendBestEffort appends events to the databases that hold no partition of without.
func (c *carrier) appendBestEffort(ctx context.Context, evs []events.Event, without []bool) (*cluster.PartialFailure, error) {
	if c.cfg.Divided != nil {
		return c.cfg.Divided.AppendBestEffort(ctx, without, evs...)
	}
	_, err := c.cfg.Target.Append(ctx, evs)
	return nil, err
}

// union returns the union of partitions and the partitions of a failure.
func union(partitions []bool, lack *cluster.PartialFailure) []bool {
	if lack == nil {
		return partitions
	}
	all := slices.Clone(lack.Partitions)
	for p, is := range partitions {
		all[p] = all[p] || is
	}
	return all
}

// fallBehind marks the partitions of a failure as behind.
func (c *carrier) fallBehind(lack *cluster.PartialFailure) {
	if lack == nil {
		return
	}
	c.behind = union(c.behind, lack)
	c.delay(lack.Err)
}

// delay postpones the next attempt to catch up.
func (c *carrier) delay(why error) {
	if why != nil {
		c.why = why
	}
	c.catching, c.again = nil, time.Now().Add(c.pauses.after(why))
}

// trouble returns why events wait, nil if no events wait.
func (c *carrier) trouble() error {
	switch {
	case c.behind == nil || c.why == nil:
		return nil
	case slices.Contains(c.behind, false):
		return &WaitingError{c.why}
	}
	return c.why
}

// waits reports whether a row must wait for a database.
func (c *carrier) waits(r *row) bool { return c.touches(r, c.behind) }

// touches reports whether a row has a user in one of the partitions. A row about a room names
// no users: its members may be in any partition.
func (c *carrier) touches(r *row, partitions []bool) bool {
	if len(r.event.Data.UserIDs) == 0 {
		return slices.Contains(partitions, true)
	}
	return partitions != nil && slices.ContainsFunc(r.event.Data.UserIDs, func(user string) bool {
		return partitions[c.cfg.Divided.PartitionOf(user)]
	})
}

// keep leaves rows in the outbox until they can be carried. The offset of a row may be below
// reached, if the transaction of the row was still open when later rows were carried again.
// keep then lowers reached, so that catching up reads the row too.
func (c *carrier) keep(rows []row) {
	for i := range rows {
		c.reached = min(c.reached, rows[i].offset-1)
	}
}

// rooms is a set of rooms whose joins are missing on a database.
type rooms map[string]bool

// add adds the rooms to which rows join users.
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
func (r *rooms) has(of *row) bool { return (*r)[of.event.Data.ConversationID] }

// catchUp carries a page of waiting rows to databases that may be back. found reports whether
// the page has rows. It fails only if the outbox fails.
func (c *carrier) catchUp(ctx context.Context) (found bool, err error) {
	if c.behind == nil || c.catching == nil && !c.begin() {
		return false, nil
	}
	// Omit transactions that were open when the last page was read: their rows may be visible
	// only now and are on no database. The next page has these rows.
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
			c.behind, c.why = nil, nil
		}
	}
	return len(p.rows) > 0, nil
}

// carryAgain carries rows to the databases that are catching up: the databases that hold no
// partition of others. If the room of a row is in held, carryAgain also carries the row to all
// databases that are not behind. ok reports whether all rows were appended; if not, catching
// up is postponed.
func (c *carrier) carryAgain(ctx context.Context, rows []row, others []bool) (refused []refusal, ok bool) {
	held, _ := split(rows, c.held.has)
	for _, part := range []struct {
		rows    []row
		without []bool
	}{{rows, others}, {held, c.behind}} {
		_, rest := split(part.rows, among(refused))
		more, lack, err := c.append(ctx, rest, part.without)
		switch {
		case err != nil: // the target failed
			c.delay(err)
			return nil, false
		case lack != nil:
			c.behind = union(c.behind, lack)
			c.held.add(rows)
			c.delay(lack.Err)
			return nil, false
		}
		refused = append(refused, more...)
	}
	return refused, true
}

// begin starts catching up with the databases that may be back. It does nothing before the
// pause after the last error has ended, or if all databases with waiting rows are known to be
// away.
func (c *carrier) begin() bool {
	if time.Now().Before(c.again) {
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
