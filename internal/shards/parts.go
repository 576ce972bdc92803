package shards

import (
	"context"
	"slices"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/eventlog"
)

// part has the events of a call for one shard, or for all shards that are not configured.
type part struct {
	// shard is nil for shards that are not configured; unknown names these.
	shard   *Shard
	unknown error
	events  []events.Event
	// expected are the partitions of the shard by the map with which the call was split.
	expected *eventlog.Expected
}

// index returns the index of the shard, -1 for none.
func (p *part) index() int {
	if p.shard == nil {
		return -1
	}
	return p.shard.index
}

// expecting returns a context for appending the part. Only messages to rooms need the expected
// partitions: other events name users, and a partition that has moved refuses them.
func (p *part) expecting(ctx context.Context) context.Context {
	if !slices.ContainsFunc(p.events, func(e events.Event) bool { return len(e.Data.UserIDs) == 0 }) {
		return ctx
	}
	return eventlog.Expect(ctx, p.expected)
}

// shardOfUser returns the shard of a user, nil if it is not configured.
func (c *Cluster) shardOfUser(st *state, userID string) *Shard {
	if i := st.owner(st.layout.PartitionOf(userID)); i >= 0 {
		return c.shards[i]
	}
	return nil
}

// only returns the shard of all users of events, nil if there are several, or rooms.
func (c *Cluster) only(evs []events.Event) *Shard {
	st := c.state.Load()
	if len(c.shards) == 1 && st.unknown == nil {
		return c.shards[0]
	}
	var only *Shard
	for i := range evs {
		users := evs[i].Data.UserIDs
		if len(users) == 0 {
			return nil
		}
		for _, u := range users {
			s := c.shardOfUser(st, u)
			if s == nil || only != nil && s != only {
				return nil
			}
			only = s
		}
	}
	return only
}

// split returns events by shard, each with the users of the shard. Messages to rooms go
// to every shard, whose log knows whether the room has members there, and so to those that
// are not configured.
func (c *Cluster) split(evs []events.Event) []part {
	st := c.state.Load()
	now := c.cfg.Now()
	parts := make([]part, len(c.shards)+1) // the last for shards that are not configured
	parts[len(c.shards)].unknown = st.unknown
	for i, s := range c.shards {
		parts[i].shard, parts[i].expected = s, st.expected[i]
	}
	add := func(i int, e *events.Event) { parts[i].events = append(parts[i].events, *e) }
	users, mentioned := make([][]string, len(parts)), make([][]string, len(parts))
	for i := range evs {
		e := evs[i]
		if e.Time.IsZero() { // the same everywhere
			e.Time = now
		}
		if len(e.Data.UserIDs) == 0 {
			for j := range c.shards {
				add(j, &e)
			}
			if st.unknown != nil {
				add(len(c.shards), &e)
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

// group sorts users by the index of their shard, the last for none.
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
