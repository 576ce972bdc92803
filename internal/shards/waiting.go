package shards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pgfault"
	"github.com/badged/badged/internal/wait"
)

// Messages to rooms, and their recalls, name no users. Only a shard itself knows whether it
// has members of the room, so each shard gets them. What one of them lacks while it is away
// waits on another, and is delivered once the shard is back, as if the publisher had repeated
// it then. The order does not matter: messages commute with each other and with reads. What
// the shard has already counts once.

// errWaits stands for an append that another shard keeps for one that is away.
var errWaits = errors.New("it waits on another shard")

const (
	// waitingInterval is how often a process looks for what others left, as when they were
	// killed. It also looks whenever a shard comes back.
	waitingInterval = 10 * time.Second
	// waitingPage is how many calls are delivered in one transaction.
	waitingPage = 20
	// keepTimeout bounds keeping a call, which its publisher waits for.
	keepTimeout = 5 * time.Second
)

// aboutRooms reports whether events are about rooms as such, and name no users.
func aboutRooms(evs []events.Event) bool {
	return !slices.ContainsFunc(evs, func(e events.Event) bool { return len(e.Data.UserIDs) > 0 })
}

// leave keeps what shards that are away lack on another, and puts errWaits in place of the
// errors of these parts. errs are by part.
func (a *appending) leave(ctx context.Context, errs []error) {
	keeper := a.keeper(errs)
	if keeper == nil || !a.keeps {
		return
	}
	for i, p := range a.parts {
		if !errors.Is(errs[i], ErrAway) && !isGone(errs[i]) || p.shard == nil || !aboutRooms(p.events) {
			continue
		}
		// If others fail, the publisher repeats all, and this is delivered twice, which
		// counts once.
		id, err := keeper.keep(ctx, p.shard, a.token.moves, a.first, p.events)
		if err != nil {
			errs[i] = errors.Join(errs[i], fmt.Errorf("keep them meanwhile: %w", keeper.named(err)))
			continue
		}
		errs[i] = errWaits
		a.token.waits = joinWaits(a.token.waits, []awaited{{p.shard.Name, keeper.Name, id}})
	}
}

// isGone reports whether an error is that a shard cannot be reached, although that is not
// known of it yet.
func isGone(err error) bool {
	f := pgfault.Of(err)
	return f == pgfault.Unreachable || f == pgfault.Restarting || f.OfLogin()
}

// keeper returns a shard that can be reached and has not failed, nil if there is none.
func (a *appending) keeper(errs []error) *Shard {
	failed := map[*Shard]bool{}
	for i, p := range a.parts {
		failed[p.shard] = errs[i] != nil
	}
	for _, s := range a.cluster.shards {
		if s.Err() == nil && !failed[s] && (a.on == nil || a.on == s) {
			return s
		}
	}
	return nil
}

// keep stores events for another shard. first is where they waited first, if they wait again.
func (s *Shard) keep(ctx context.Context, target *Shard, moves int64, first awaited, evs []events.Event) (id int64, err error) {
	text, err := json.Marshal(evs)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	err = s.Pool.QueryRow(ctx, statements.Get("keep messages"), target.Name, moves, string(text), len(evs), first.shard, first.id).Scan(&id)
	return id, err
}

// DeliverWaiting delivers what waits for shards once they can be reached, until ctx is
// done, and then returns nil. Every process may run it.
func (a *Appender) DeliverWaiting(ctx context.Context) error {
	for ctx.Err() == nil {
		changed := a.cluster.Changed()
		again := time.NewTimer(waitingInterval)
		for _, s := range a.cluster.shards {
			a.deliverFrom(ctx, s)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-again.C:
		}
		again.Stop()
	}
	return nil
}

// deliverFrom delivers what a shard keeps for those that can be reached.
func (a *Appender) deliverFrom(ctx context.Context, keeper *Shard) {
	if keeper.Err() != nil {
		return
	}
	rows, _ := keeper.Pool.Query(ctx, statements.Get("list shards with waiting messages"))
	targets, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range targets {
		target := a.cluster.Shard(name) // nil if it has left, after all its partitions
		if target != nil && target.Err() != nil {
			continue
		}
		delivered := 0
		for more := true; more && err == nil; {
			var n int
			n, more, err = a.deliver(ctx, keeper, name, target)
			delivered += n
		}
		if delivered > 0 {
			a.cluster.cfg.Logger.InfoContext(ctx, "delivered messages to rooms that waited for a shard", "shard", name, "on", keeper.Name, "messages", delivered)
		}
	}
	if err != nil && ctx.Err() == nil {
		a.cluster.cfg.Logger.WarnContext(ctx, "cannot deliver messages to rooms that wait for a shard; trying again", "on", keeper.Name, "error", err)
	}
}

// deliverBefore delivers what waits for the shard of a part, if the part makes users members
// of rooms: these have read up to the last message, which may be one that waits. What a shard
// keeps that is away comes later, and counts for them.
func (a *Appender) deliverBefore(ctx context.Context, p part) error {
	if !a.cluster.sharded || !slices.ContainsFunc(p.events, func(e events.Event) bool { return e.Type == events.RoomJoined && e.Data.UpToSeq == 0 }) {
		return nil
	}
	for _, keeper := range a.cluster.shards {
		if keeper == p.shard || keeper.Err() != nil {
			continue
		}
		for {
			var waits bool
			if err := keeper.Pool.QueryRow(ctx, statements.Get("does anything wait for a shard"), p.shard.Name).Scan(&waits); err != nil {
				return fmt.Errorf("look for messages that wait: %w", keeper.named(err))
			}
			if !waits {
				break
			}
			// Another process may be delivering them.
			if n, _, err := a.deliver(ctx, keeper, p.shard.Name, p.shard); err != nil {
				return fmt.Errorf("deliver messages that wait, before users join: %w", err)
			} else if n > 0 {
				continue
			}
			if err := wait.For(ctx, movePause); err != nil {
				return err
			}
		}
	}
	return nil
}

// kept are messages that wait on a shard.
type kept struct {
	// first is where they waited first: positions name that.
	first  awaited
	events []events.Event
}

// eventsOf returns the events of all.
func eventsOf(all []kept) (evs []events.Event) {
	for _, k := range all {
		evs = append(evs, k.events...)
	}
	return evs
}

// byFirst puts together what waited first for the same shard. Of such a part, the least id
// stands for all: nothing is delivered before the whole part is.
func byFirst(all []kept) (parts []kept) {
	for _, k := range all {
		i := slices.IndexFunc(parts, func(p kept) bool { return p.first.shard == k.first.shard })
		if i < 0 {
			parts = append(parts, k)
			continue
		}
		parts[i].first.id = min(parts[i].first.id, k.first.id)
		parts[i].events = append(parts[i].events, k.events...)
	}
	return parts
}

// deliver delivers some of what a shard keeps for another, and reports how many messages
// these were and whether there may be more.
func (a *Appender) deliver(ctx context.Context, keeper *Shard, name string, target *Shard) (n int, more bool, err error) {
	err = pgx.BeginFunc(ctx, keeper.Pool, func(tx pgx.Tx) error {
		st := a.cluster.state.Load()
		var ids []int64
		var here, everywhere []kept
		rows, _ := tx.Query(ctx, statements.Get("take waiting messages"), name, waitingPage)
		var id, moves int64
		var text string
		first := awaited{on: keeper.Name}
		if _, err := pgx.ForEachRow(rows, []any{&id, &moves, &text, &first.shard, &first.id}, func() error {
			evs, err := decodeAll(text)
			if err != nil {
				return fmt.Errorf("messages %d: %w", id, err)
			}
			ids, n = append(ids, id), n+len(evs)
			if target != nil && moves == st.moves() {
				here = append(here, kept{first, evs})
			} else { // partitions that lack them may be elsewhere by now
				everywhere = append(everywhere, kept{first, evs})
			}
			return nil
		}); err != nil {
			return err
		}
		if len(here) > 0 {
			call := appending{Appender: a}
			switch _, err := call.one(ctx, part{shard: target, events: eventsOf(here), expected: st.expected[target.index]}); {
			case errors.Is(err, events.ErrNotHeld): // a partition moves now
				everywhere = append(here, everywhere...)
			case err != nil:
				return err
			}
		}
		for _, k := range byFirst(everywhere) {
			// What must wait on stays on this shard: an erasure looks for it in one after the
			// other.
			if _, err := a.append(ctx, appending{Appender: a, on: keeper, first: k.first}, k.events); err != nil {
				return err
			}
		}
		more = len(ids) == waitingPage
		_, err := tx.Exec(ctx, statements.Get("delete waiting messages"), ids)
		return err
	})
	if err != nil {
		return 0, false, fmt.Errorf("deliver to shard %s: %w", name, err)
	}
	return n, more, nil
}

// decodeAll decodes events as keep has stored them.
func decodeAll(text string) ([]events.Event, error) {
	var all []json.RawMessage
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, err
	}
	evs := make([]events.Event, len(all))
	for i, one := range all {
		var err error
		if evs[i], err = events.Decode(one); err != nil {
			return nil, err
		}
	}
	return evs, nil
}

// delivered reports whether a shard has all that a position names as waiting.
func (c *Cluster) delivered(ctx context.Context, waits []awaited, to *Shard) (bool, error) {
	for _, w := range waits {
		on := c.Shard(w.on)
		if on == nil {
			continue // it has left the cluster
		}
		if err := on.Err(); err != nil {
			return false, err
		}
		rows, _ := on.Pool.Query(ctx, statements.Get("for which shards do messages wait"), w.shard, w.id, to.Name, c.moves())
		targets, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return false, on.named(err)
		}
		for _, name := range targets {
			if target := c.Shard(name); target != nil && target.Err() != nil {
				return false, target.Err()
			}
		}
		if len(targets) > 0 {
			return false, nil
		}
	}
	return true, nil
}
