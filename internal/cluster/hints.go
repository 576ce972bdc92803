package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/pg/pgfault"
)

// This file implements hinted handoff. Messages to rooms, and recalls of these messages, name no
// users. Only the log of a database shows whether the room has members there, so every database
// gets these events. While a database is unavailable, another database stores the events for it as
// hints. When the database is available again, the hints are replayed: their events are appended as
// if the publisher had repeated the call. The late order does no harm: messages commute with each
// other and with reads, and a repeated message counts once.

// errHinted replaces the error of a part whose database is unavailable, after another database has
// stored the part as a hint.
var errHinted = errors.New("another shard has stored a hint")

const (
	// hintInterval is the pause between two searches for hints. A process also searches whenever
	// a database becomes reachable again; the interval matters for hints whose replay a killed
	// process did not finish.
	hintInterval = 10 * time.Second
	// hintPage is the maximum number of hints that one transaction replays.
	hintPage = 20
	// hintTimeout limits how long storing a hint may take, because the publisher waits for it.
	hintTimeout = 5 * time.Second
)

// aboutRooms reports whether all events are messages to rooms or recalls of such messages: these
// events name no users.
func aboutRooms(evs []events.Event) bool {
	return !slices.ContainsFunc(evs, func(e events.Event) bool { return len(e.Data.UserIDs) > 0 })
}

// storeHints is called after all parts were tried; errs has the error of each part. If databases
// are unavailable, it stores their parts as hints on another database, and replaces the errors of
// these parts by errHinted.
func (a *appending) storeHints(ctx context.Context, errs []error) {
	target := a.hintTarget(errs)
	if target == nil || !a.hinting {
		return
	}
	for i, p := range a.parts {
		if !errors.Is(errs[i], ErrAway) && !isGone(errs[i]) || p.database == nil || !aboutRooms(p.events) {
			continue
		}
		// If other parts fail, the publisher repeats the call, and a second hint with the same
		// messages is stored. The repeated messages count once.
		id, err := target.storeHint(ctx, p.database, a.token.moves, a.origin, p.events)
		if err != nil {
			errs[i] = errors.Join(errs[i], fmt.Errorf("store a hint: %w", target.Wrap(err)))
			continue
		}
		errs[i] = errHinted
		a.token.hints = joinHints(a.token.hints, []hintRef{{p.database.Name, target.Name, id}})
	}
}

// isGone reports whether an error shows that a database is unavailable. The status of the
// database may not show this yet.
func isGone(err error) bool {
	f := pgfault.FaultOf(err)
	return f == pgfault.Unreachable || f == pgfault.Restarting || f.OfLogin()
}

// hintTarget returns a database that can store the hints: it can be reached and has appended its
// own part, if it has a part. The result is nil if there is no such database.
func (a *appending) hintTarget(errs []error) *Database {
	failed := map[*Database]bool{}
	for i, p := range a.parts {
		failed[p.database] = errs[i] != nil
	}
	for _, s := range a.cluster.databases {
		if s.Err() == nil && !failed[s] && (a.target == nil || a.target == s) {
			return s
		}
	}
	return nil
}

// storeHint stores events on s as a hint for recipient and returns the id of the hint. moves is
// the number of moves in the map by which the events were split. If the events come from an older
// hint, origin names the hint that stored them first.
func (s *Database) storeHint(ctx context.Context, recipient *Database, moves int64, origin hintRef, evs []events.Event) (id int64, err error) {
	text, err := json.Marshal(evs)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, hintTimeout)
	defer cancel()
	err = s.Pool.QueryRow(ctx, statements.Get("store a hint"), recipient.Name, moves, string(text), len(evs), origin.database, origin.id).Scan(&id)
	return id, err
}

// ReplayHints runs until ctx is done and then returns nil. When a database can be reached again,
// ReplayHints appends the events of all hints for this database to it. Several processes may run
// ReplayHints at the same time.
func (a *Appender) ReplayHints(ctx context.Context) error {
	for ctx.Err() == nil {
		changed := a.cluster.Changed()
		for _, s := range a.cluster.databases {
			a.replayFrom(ctx, s)
		}
		_, _ = wait.Signal(ctx, changed, hintInterval)
	}
	return nil
}

// replayFrom replays the hints that the database `from` stores for databases that can be reached
// now.
func (a *Appender) replayFrom(ctx context.Context, from *Database) {
	if from.Err() != nil {
		return
	}
	rows, _ := from.Pool.Query(ctx, statements.Get("list shards with hints"))
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range names {
		recipient := a.cluster.Database(name) // nil if it was removed from the cluster
		if recipient != nil && recipient.Err() != nil {
			continue
		}
		replayed := 0
		for more := true; more && err == nil; {
			var n int
			n, more, err = a.replay(ctx, from, name, recipient)
			replayed += n
		}
		if replayed > 0 {
			a.cluster.cfg.Logger.InfoContext(ctx, "replayed the hints for a shard: messages to rooms from the time when it was away", "shard", name, "from", from.Name, "messages", replayed)
		}
	}
	if err != nil && ctx.Err() == nil {
		a.cluster.cfg.Logger.WarnContext(ctx, "cannot replay the hints for a shard, which are messages to rooms; trying again", "from", from.Name, "error", err)
	}
}

// replayBefore is called before p is appended. If p has a join without a read position,
// replayBefore first replays the hints for the database of p: the new member's read position is
// then the last message of the room, and this message may still be in a hint. If the database that
// stores the hint is unavailable, the hint is replayed later, and its messages then count as unread
// for the new members.
func (a *Appender) replayBefore(ctx context.Context, p part) error {
	if !a.cluster.several || !slices.ContainsFunc(p.events, func(e events.Event) bool { return e.Type == events.RoomJoined && e.Data.UpToSeq == 0 }) {
		return nil
	}
	for _, from := range a.cluster.databases {
		if from == p.database || from.Err() != nil {
			continue
		}
		for {
			var has bool
			if err := from.Pool.QueryRow(ctx, statements.Get("does a shard have hints"), p.database.Name).Scan(&has); err != nil {
				return fmt.Errorf("look for hints: %w", from.Wrap(err))
			}
			if !has {
				break
			}
			// n is 0 if another process has locked the hints to replay them: wait for that
			// process.
			if n, _, err := a.replay(ctx, from, p.database.Name, p.database); err != nil {
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

// hint has the events of one stored hint. All its events are for one database.
type hint struct {
	// origin names the hint that first stored the events. The positions that publishers got refer
	// to this hint.
	origin hintRef
	events []events.Event
}

func eventsOf(hints []hint) (evs []events.Event) {
	for _, h := range hints {
		evs = append(evs, h.events...)
	}
	return evs
}

// byOrigin merges the hints whose origins name the same recipient (origin.database). The merged
// hint gets the least id of these origins. A position refers to an origin by its id, and
// [Cluster.replayed] looks for hints with this id or a lesser one. So the position counts as
// replayed only after all events of the merged hint were appended.
func byOrigin(hints []hint) (merged []hint) {
	for _, h := range hints {
		i := slices.IndexFunc(merged, func(m hint) bool { return m.origin.database == h.origin.database })
		if i < 0 {
			merged = append(merged, h)
			continue
		}
		merged[i].origin.id = min(merged[i].origin.id, h.origin.id)
		merged[i].events = append(merged[i].events, h.events...)
	}
	return merged
}

// replay replays up to hintPage of the hints that the database `from` stores for the database
// `name`, and deletes these hints. recipient is the database `name`, or nil if it was removed from
// the cluster. n is the number of replayed events; more is true if there may be further hints.
func (a *Appender) replay(ctx context.Context, from *Database, name string, recipient *Database) (n int, more bool, err error) {
	err = pgx.BeginFunc(ctx, from.Pool, func(tx pgx.Tx) error {
		st := a.cluster.state.Load()
		var ids []int64
		var there, everywhere []hint
		rows, _ := tx.Query(ctx, statements.Get("lock hints"), name, hintPage)
		var id, moves int64
		var text string
		origin := hintRef{holder: from.Name}
		if _, err := pgx.ForEachRow(rows, []any{&id, &moves, &text, &origin.database, &origin.id}, func() error {
			evs, err := decodeAll(text)
			if err != nil {
				return fmt.Errorf("hint %d: %w", id, err)
			}
			ids, n = append(ids, id), n+len(evs)
			if recipient != nil && moves == st.moves() {
				there = append(there, hint{origin, evs})
			} else { // partitions have moved since, so any database may need the events now
				everywhere = append(everywhere, hint{origin, evs})
			}
			return nil
		}); err != nil {
			return err
		}
		if len(there) > 0 {
			call := appending{Appender: a}
			switch _, err := call.appendPart(ctx, part{database: recipient, events: eventsOf(there), expected: st.expected[recipient.index]}); {
			case errors.Is(err, events.ErrNotHeld): // a partition is being moved
				everywhere = append(there, everywhere...)
			case err != nil:
				return err
			}
		}
		for _, h := range byOrigin(everywhere) {
			// Store new hints on the database `from` only. An erasure searches the hints of one
			// database after the other. It would miss an event that is in a hint on database 2
			// while the erasure searches database 1, and then moves to a hint on database 1.
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

// decodeAll decodes the events of a hint with [events.Decode].
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

// replayed reports whether the database `to` has got all events that the given hints of a token
// have for it: neither these hints nor hints that replaced them are stored any more. Hints on a
// database that was removed from the cluster count as replayed.
func (c *Cluster) replayed(ctx context.Context, hints []hintRef, to *Database) (bool, error) {
	for _, h := range hints {
		on := c.Database(h.holder)
		if on == nil {
			continue // it was removed from the cluster
		}
		if err := on.Err(); err != nil {
			return false, err
		}
		rows, _ := on.Pool.Query(ctx, statements.Get("which shards have hints"), h.database, h.id, to.Name, c.moves())
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return false, on.Wrap(err)
		}
		for _, name := range names {
			if recipient := c.Database(name); recipient != nil && recipient.Err() != nil {
				return false, recipient.Err()
			}
		}
		if len(names) > 0 {
			return false, nil
		}
	}
	return true, nil
}
