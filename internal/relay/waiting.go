package relay

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/shards"
)

// Divided is a [Target] of several databases. Some of them may be away. It is safe for
// concurrent use.
type Divided interface {
	// AppendBestEffort is that of [shards.Appender]. Its errors are those of [Target].
	AppendBestEffort(ctx context.Context, without []bool, evs ...events.Event) (*shards.PartialFailure, error)
	// PartitionOf returns the partition of a user before any was split.
	PartitionOf(userID string) int
	// Away reports whether a database of such a partition is known to be away.
	Away(partition int) bool
}

// PartialError is the error of events that wait while others are carried.
type PartialError struct{ Err error }

// Error implements error.
func (e *PartialError) Error() string {
	return "events of some users wait in the outbox: " + e.Err.Error()
}

// Unwrap returns the reason.
func (e *PartialError) Unwrap() error { return e.Err }

// waiting tracks the rows that wait for databases that are away. A row with users of such a
// database stays in the outbox; its other users get it at once. Once the database is back,
// the relay reads the outbox again from the first row on, one page in turn with one page of
// new rows. New rows with users of the database wait until all older ones are carried.
//
// Behind a row that waits and joins users to a room, all rows of the room wait, for all
// users: see [shards.SplitAtJoins].
type waiting struct {
	// behind marks the partitions whose users have waiting rows; nil if there are none.
	behind []bool
	// why is the last error.
	why error
	// catching marks the partitions of behind that are catching up, nil if there are none;
	// reached is the offset up to which they have all rows.
	catching []bool
	reached  int64
	// held has the rooms whose rows wait for all users.
	held rooms
	// stillHeld has the rooms whose rows wait even after the waiting rows are carried.
	stillHeld rooms
	// again is the time of the next attempt.
	again  time.Time
	pauses backoff
}

// appendSome appends events to the databases without a partition of without.
func (c *carrier) appendSome(ctx context.Context, evs []events.Event, without []bool) (*shards.PartialFailure, error) {
	if c.cfg.Divided != nil {
		return c.cfg.Divided.AppendBestEffort(ctx, without, evs...)
	}
	_, err := c.cfg.Target.Append(ctx, evs)
	return nil, err
}

// union returns partitions and the partitions of a failure.
func union(partitions []bool, lack *shards.PartialFailure) []bool {
	if lack == nil {
		return partitions
	}
	all := slices.Clone(lack.Partitions)
	for p, is := range partitions {
		all[p] = all[p] || is
	}
	return all
}

// fallBehind records which databases lack events.
func (c *carrier) fallBehind(lack *shards.PartialFailure) {
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

// trouble returns why events wait, nil if none do.
func (c *carrier) trouble() error {
	switch {
	case c.behind == nil || c.why == nil:
		return nil
	case slices.Contains(c.behind, false):
		return &PartialError{c.why}
	}
	return c.why
}

// waits reports whether a row has to wait for a database.
func (c *carrier) waits(r *row) bool { return c.touches(r, c.behind) }

// touches reports whether a row has a user of some partitions, or is about a room, whose
// members may be anywhere.
func (c *carrier) touches(r *row, partitions []bool) bool {
	if len(r.event.Data.UserIDs) == 0 {
		return slices.Contains(partitions, true)
	}
	return partitions != nil && slices.ContainsFunc(r.event.Data.UserIDs, func(user string) bool {
		return partitions[c.cfg.Divided.PartitionOf(user)]
	})
}

// keep does not delete rows from the outbox. They may be of a transaction that was open when later
// rows were carried again.
func (c *carrier) keep(rows []row) {
	for i := range rows {
		c.reached = min(c.reached, rows[i].offset-1)
	}
}

// rooms are rooms with joins that a database lacks.
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

// has reports whether a row is of one of the rooms.
func (r *rooms) has(of *row) bool { return (*r)[of.event.Data.ConversationID] }

// catchUp carries a page of what waits for databases that may be back, and reports
// whether there was any. It fails only if the outbox does.
func (c *carrier) catchUp(ctx context.Context) (found bool, err error) {
	if c.behind == nil || c.catching == nil && !c.begin() {
		return false, nil
	}
	// Transactions that were open when the last page was read may have rows that are
	// visible only now, and that no database has.
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
	if !full { // they have all that was passed
		c.behind, c.held, c.catching, c.pauses = still, c.stillHeld, nil, newBackoff()
		if !slices.Contains(still, true) {
			c.behind, c.why = nil, nil
		}
	}
	return len(p.rows) > 0, nil
}

// carryAgain carries rows to the databases that are being caught up, those without partitions
// of others, and what was held to all that are not behind as well. It reports whether they
// have them; if not, it puts catching up off.
func (c *carrier) carryAgain(ctx context.Context, rows []row, others []bool) (refused []refusal, ok bool) {
	held, _ := split(rows, c.held.has)
	for _, part := range []struct {
		rows    []row
		without []bool
	}{{rows, others}, {held, c.behind}} {
		_, rest := split(part.rows, among(refused))
		more, lack, err := c.append(ctx, rest, part.without)
		switch {
		case err != nil: // of the target, which is tried again
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

// begin begins to catch up what is not known to be away, unless it is too early.
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
