package expiry

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
)

// dueLevel is the level of a conversation of a user that was set until a time which has
// passed.
type dueLevel struct {
	until              int64 // in microseconds since 1970
	conversation, user string
	version            int64
}

// endLevels ends the levels whose end has passed. It appends events in batches, as a sweep does.
func (x *Sweeper) endLevels(ctx context.Context, conn *pgx.Conn) error {
	for _, p := range x.partitions() {
		for after := (dueLevel{}); ; {
			due, err := x.dueLevels(ctx, conn, p, after)
			if err != nil {
				return err
			}
			for batch := range slices.Chunk(due, x.cfg.BatchSize) {
				receipt, err := x.cfg.Log.Append(ctx, levelEnds(batch)...)
				if err != nil {
					return fmt.Errorf("end %d levels of partition %d: %w", len(batch), p, err)
				}
				x.cfg.Metrics.levels.Add(float64(len(batch)))
				folds, err := x.awaitFolded(ctx, conn, batch[0].user, receipt)
				if err != nil {
					return err
				}
				if !folds {
					x.log.WarnContext(ctx, "the projector does not fold ended levels, will try again", "partition", p, "waited", x.foldTimeout)
					due = nil
					break
				}
			}
			if len(due) < x.pageSize {
				break
			}
			after = due[len(due)-1]
		}
	}
	return nil
}

// dueLevels returns the next page of levels to end.
func (x *Sweeper) dueLevels(ctx context.Context, conn *pgx.Conn, partition int, after dueLevel) ([]dueLevel, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, _ := conn.Query(ctx, statements.Of(partition, "find levels to end"), after.until, after.conversation, after.user, x.pageSize)
	due, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l dueLevel, err error) {
		return l, row.Scan(&l.until, &l.conversation, &l.user, &l.version)
	})
	if err != nil {
		return nil, fmt.Errorf("find levels to end in partition %d: %w", partition, err)
	}
	return due, nil
}

// levelEnds returns the events that end levels. Users share an event if their conversation and
// the end of their level are the same.
func levelEnds(due []dueLevel) []events.Event {
	var evs []events.Event
	for same := range chunks(due) {
		users, versions := make([]string, len(same)), int64(0)
		for i, l := range same {
			users[i] = l.user
			versions += l.version
		}
		first := same[0]
		evs = append(evs, events.Event{
			// Include the versions: a level that is set again with the same end has another
			// version.
			ID: eventID(first.conversation, users, first.until, versions), Source: Source, Type: events.ConversationLevelEnded,
			Data: events.Data{ConversationID: first.conversation, UserIDs: users, Until: time.UnixMicro(first.until).UTC()},
		})
	}
	return evs
}

// chunks yields the runs of consecutive levels that have the same conversation and end.
func chunks(due []dueLevel) func(yield func([]dueLevel) bool) {
	return func(yield func([]dueLevel) bool) {
		for len(due) > 0 {
			n := slices.IndexFunc(due, func(l dueLevel) bool { return l.until != due[0].until || l.conversation != due[0].conversation })
			if n < 0 {
				n = len(due)
			}
			if !yield(due[:n]) {
				return
			}
			due = due[n:]
		}
	}
}
