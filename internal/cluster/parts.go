package cluster

import (
	"context"
	"slices"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/log/eventlog"
)

// part has those events of a call that go to one database, or to the unconfigured databases,
// which share one part.
type part struct {
	// database is nil for unconfigured databases; unknown is then the error that names them.
	database *Database
	unknown  error
	events   []events.Event
	// expected has the partitions that the map assigned to the database when the events were
	// split into parts.
	expected *eventlog.PlacementSnapshot
}

// index returns the index of the database, -1 for none.
func (p *part) index() int {
	if p.database == nil {
		return -1
	}
	return p.database.index
}

// expecting returns the context for appending the part. If the part has messages to rooms, an
// append with this context fails unless the database holds exactly the expected partitions. Other
// events need no such check: they name users, and a database refuses an event if it does not hold
// the partition of a user.
func (p *part) expecting(ctx context.Context) context.Context {
	if !slices.ContainsFunc(p.events, func(e events.Event) bool { return len(e.Data.UserIDs) == 0 }) {
		return ctx
	}
	return eventlog.Expect(ctx, p.expected)
}

// shardOfUser returns the database of a user, nil if it is not configured.
func (c *Cluster) shardOfUser(st *state, userID string) *Database {
	if i := st.owner(st.layout.PartitionOf(userID)); i >= 0 {
		return c.databases[i]
	}
	return nil
}

// singleDatabase returns the database that must get all of the events. It returns nil if the users
// of the events are in several databases, if the database of a user is not configured, or if an
// event names no users: a message to a room goes to every database of the cluster.
func (c *Cluster) singleDatabase(evs []events.Event) *Database {
	st := c.state.Load()
	if len(c.databases) == 1 && st.unknown == nil {
		return c.databases[0]
	}
	var found *Database
	for i := range evs {
		users := evs[i].Data.UserIDs
		if len(users) == 0 {
			return nil
		}
		for _, u := range users {
			s := c.shardOfUser(st, u)
			if s == nil || found != nil && s != found {
				return nil
			}
			found = s
		}
	}
	return found
}

// split divides events into one part for each database. The part of a database names only users of
// this database. A message to a room is in the part of every database, even if the database is not
// configured, because only the log of a database shows whether the room has members in this
// database.
func (c *Cluster) split(evs []events.Event) []part {
	st := c.state.Load()
	now := c.cfg.Now()
	parts := make([]part, len(c.databases)+1) // the last part is for databases that are not configured
	parts[len(c.databases)].unknown = st.unknown
	for i, s := range c.databases {
		parts[i].database, parts[i].expected = s, st.expected[i]
	}
	add := func(i int, e *events.Event) { parts[i].events = append(parts[i].events, *e) }
	users, mentioned := make([][]string, len(parts)), make([][]string, len(parts))
	for i := range evs {
		e := evs[i]
		if e.Time.IsZero() { // all databases get the same time
			e.Time = now
		}
		if len(e.Data.UserIDs) == 0 {
			for j := range c.databases {
				add(j, &e)
			}
			if st.unknown != nil {
				add(len(c.databases), &e)
			}
			continue
		}
		c.group(st, e.Data.UserIDs, users)
		c.group(st, e.Data.MentionedUserIDs, mentioned)
		for j := range parts {
			switch {
			case len(users[j]) == 0:
			case len(users[j]) == len(e.Data.UserIDs):
				add(j, &e)
			default:
				some := e
				some.Data.UserIDs, some.Data.MentionedUserIDs = slices.Clone(users[j]), slices.Clone(mentioned[j])
				add(j, &some)
			}
		}
	}
	return slices.DeleteFunc(parts, func(p part) bool { return len(p.events) == 0 })
}

// group divides users by database: by[i] gets the users of the database with the index i, and the
// last element of `by` gets the users whose database is not configured.
func (c *Cluster) group(st *state, users []string, by [][]string) {
	for i := range by {
		by[i] = by[i][:0]
	}
	for _, u := range users {
		i := st.owner(st.layout.PartitionOf(u))
		if i < 0 {
			i = len(by) - 1
		}
		by[i] = append(by[i], u)
	}
}
