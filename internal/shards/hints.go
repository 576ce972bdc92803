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

// Hinted handoff. Messages to rooms, and their recalls, name no users. Only a shard itself knows
// whether it has members of the room, so each shard gets them. While a shard is away, another
// shard stores its messages as hints and replays them once the shard is back, as if the
// publisher had repeated the call. The order does not matter: messages commute with each other
// and with reads, and repeated messages count once.

// errHinted replaces the error of an append for which another shard has stored a hint.
var errHinted = errors.New("another shard has stored a hint")

const (
	// hintInterval is how often a process looks for hints, such as those of processes that
	// were killed. It also looks whenever a shard comes back.
	hintInterval = 10 * time.Second
	// hintPage is how many hints are replayed in one transaction.
	hintPage = 20
	// hintTimeout bounds storing a hint, since the publisher waits for it.
	hintTimeout = 5 * time.Second
)

// aboutRooms reports whether no event names users: these are messages to rooms and the like.
func aboutRooms(evs []events.Event) bool {
	return !slices.ContainsFunc(evs, func(e events.Event) bool { return len(e.Data.UserIDs) > 0 })
}

// storeHints stores the parts of shards that are away as hints on another shard, and replaces
// the errors of these parts by errHinted. errs are by part.
func (a *appending) storeHints(ctx context.Context, errs []error) {
	target := a.hintTarget(errs)
	if target == nil || !a.hinting {
		return
	}
	for i, p := range a.parts {
		if !errors.Is(errs[i], ErrAway) && !isGone(errs[i]) || p.shard == nil || !aboutRooms(p.events) {
			continue
		}
		// If other parts fail, the publisher repeats the call, and a second hint is stored:
		// its messages count once.
		id, err := target.storeHint(ctx, p.shard, a.token.moves, a.origin, p.events)
		if err != nil {
			errs[i] = errors.Join(errs[i], fmt.Errorf("store a hint: %w", target.named(err)))
			continue
		}
		errs[i] = errHinted
		a.token.hints = joinHints(a.token.hints, []hintRef{{p.shard.Name, target.Name, id}})
	}
}

// isGone reports whether an error means that a shard cannot be reached, before its state says so.
func isGone(err error) bool {
	f := pgfault.Of(err)
	return f == pgfault.Unreachable || f == pgfault.Restarting || f.OfLogin()
}

// hintTarget returns the shard that stores the hints, one that can be reached and has not
// failed; nil if there is none.
func (a *appending) hintTarget(errs []error) *Shard {
	failed := map[*Shard]bool{}
	for i, p := range a.parts {
		failed[p.shard] = errs[i] != nil
	}
	for _, s := range a.cluster.shards {
		if s.Err() == nil && !failed[s] && (a.target == nil || a.target == s) {
			return s
		}
	}
	return nil
}

// storeHint stores events on s for the shard that lacks them. origin names the hint that stored
// them first, if they are handed on.
func (s *Shard) storeHint(ctx context.Context, lacking *Shard, moves int64, origin hintRef, evs []events.Event) (id int64, err error) {
	text, err := json.Marshal(evs)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, hintTimeout)
	defer cancel()
	err = s.Pool.QueryRow(ctx, statements.Get("store a hint"), lacking.Name, moves, string(text), len(evs), origin.shard, origin.id).Scan(&id)
	return id, err
}

// ReplayHints appends the events of hints to their shards once these can be reached, until ctx
// is done, and then returns nil. Every process may run it.
func (a *Appender) ReplayHints(ctx context.Context) error {
	for ctx.Err() == nil {
		changed := a.cluster.Changed()
		again := time.NewTimer(hintInterval)
		for _, s := range a.cluster.shards {
			a.replayFrom(ctx, s)
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

// replayFrom replays the hints that a shard stores for shards that can be reached.
func (a *Appender) replayFrom(ctx context.Context, from *Shard) {
	if from.Err() != nil {
		return
	}
	rows, _ := from.Pool.Query(ctx, statements.Get("list shards with hints"))
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range names {
		lacking := a.cluster.Shard(name) // nil if it has left the cluster, after its partitions
		if lacking != nil && lacking.Err() != nil {
			continue
		}
		replayed := 0
		for more := true; more && err == nil; {
			var n int
			n, more, err = a.replay(ctx, from, name, lacking)
			replayed += n
		}
		if replayed > 0 {
			a.cluster.cfg.Logger.InfoContext(ctx, "replayed the hints for a shard: messages to rooms that it lacked", "shard", name, "from", from.Name, "messages", replayed)
		}
	}
	if err != nil && ctx.Err() == nil {
		a.cluster.cfg.Logger.WarnContext(ctx, "cannot replay the hints for a shard, messages to rooms that it lacks; trying again", "from", from.Name, "error", err)
	}
}

// replayBefore replays the hints for the shard of a part, if the part makes users members of
// rooms: new members have read up to the last message, which may be in a hint. Hints on a shard
// that is away are replayed later, and their messages count for these members.
func (a *Appender) replayBefore(ctx context.Context, p part) error {
	if !a.cluster.sharded || !slices.ContainsFunc(p.events, func(e events.Event) bool { return e.Type == events.RoomJoined && e.Data.UpToSeq == 0 }) {
		return nil
	}
	for _, from := range a.cluster.shards {
		if from == p.shard || from.Err() != nil {
			continue
		}
		for {
			var has bool
			if err := from.Pool.QueryRow(ctx, statements.Get("does a shard have hints"), p.shard.Name).Scan(&has); err != nil {
				return fmt.Errorf("look for hints: %w", from.named(err))
			}
			if !has {
				break
			}
			// If another process replays them, n is 0.
			if n, _, err := a.replay(ctx, from, p.shard.Name, p.shard); err != nil {
				return fmt.Errorf("replay hints before users join: %w", err)
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

// hint is a stored call.
type hint struct {
	// origin names the hint that stored the events first: positions name it.
	origin hintRef
	events []events.Event
}

// eventsOf returns the events of hints.
func eventsOf(hints []hint) (evs []events.Event) {
	for _, h := range hints {
		evs = append(evs, h.events...)
	}
	return evs
}

// byOrigin merges the hints that were stored first for the same shard. A merged hint has the
// least id: none of its events is replayed before all are.
func byOrigin(hints []hint) (merged []hint) {
	for _, h := range hints {
		i := slices.IndexFunc(merged, func(m hint) bool { return m.origin.shard == h.origin.shard })
		if i < 0 {
			merged = append(merged, h)
			continue
		}
		merged[i].origin.id = min(merged[i].origin.id, h.origin.id)
		merged[i].events = append(merged[i].events, h.events...)
	}
	return merged
}

// replay replays a page of the hints that a shard stores for another, which lacks them; nil if
// it has left the cluster. It returns how many messages the page had, and whether there may be
// more hints.
func (a *Appender) replay(ctx context.Context, from *Shard, name string, lacking *Shard) (n int, more bool, err error) {
	err = pgx.BeginFunc(ctx, from.Pool, func(tx pgx.Tx) error {
		st := a.cluster.state.Load()
		var ids []int64
		var there, everywhere []hint
		rows, _ := tx.Query(ctx, statements.Get("lock hints"), name, hintPage)
		var id, moves int64
		var text string
		origin := hintRef{on: from.Name}
		if _, err := pgx.ForEachRow(rows, []any{&id, &moves, &text, &origin.shard, &origin.id}, func() error {
			evs, err := decodeAll(text)
			if err != nil {
				return fmt.Errorf("hint %d: %w", id, err)
			}
			ids, n = append(ids, id), n+len(evs)
			if lacking != nil && moves == st.moves() {
				there = append(there, hint{origin, evs})
			} else { // the partitions that lack the events may have moved
				everywhere = append(everywhere, hint{origin, evs})
			}
			return nil
		}); err != nil {
			return err
		}
		if len(there) > 0 {
			call := appending{Appender: a}
			switch _, err := call.one(ctx, part{shard: lacking, events: eventsOf(there), expected: st.expected[lacking.index]}); {
			case errors.Is(err, events.ErrNotHeld): // a partition is being moved
				everywhere = append(there, everywhere...)
			case err != nil:
				return err
			}
		}
		for _, h := range byOrigin(everywhere) {
			// New hints are stored on the same shard: an erasure reads the shards one after the
			// other.
			if _, err := a.append(ctx, appending{Appender: a, target: from, origin: h.origin}, h.events); err != nil {
				return err
			}
		}
		more = len(ids) == hintPage
		_, err := tx.Exec(ctx, statements.Get("delete hints"), ids)
		return err
	})
	if err != nil {
		return 0, false, fmt.Errorf("replay hints for shard %s: %w", name, err)
	}
	return n, more, nil
}

// decodeAll decodes the events of a hint.
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

// replayed reports whether a shard has the events of all hints that a position names.
func (c *Cluster) replayed(ctx context.Context, hints []hintRef, to *Shard) (bool, error) {
	for _, h := range hints {
		on := c.Shard(h.on)
		if on == nil {
			continue // it has left the cluster
		}
		if err := on.Err(); err != nil {
			return false, err
		}
		rows, _ := on.Pool.Query(ctx, statements.Get("which shards have hints"), h.shard, h.id, to.Name, c.moves())
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return false, on.named(err)
		}
		for _, name := range names {
			if lacking := c.Shard(name); lacking != nil && lacking.Err() != nil {
				return false, lacking.Err()
			}
		}
		if len(names) > 0 {
			return false, nil
		}
	}
	return true, nil
}
