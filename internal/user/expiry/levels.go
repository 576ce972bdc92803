package expiry

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pg/query"
)

// dueLevel is a level that a user has set for a conversation until the time Until, which has
// passed.
type dueLevel struct {
	Until              int64 // in microseconds since 1970
	Conversation, User string
	Version            int64
}

// endLevels ends the levels whose end has passed. It appends events in batches, as a sweep does.
func (x *Sweeper) endLevels(ctx context.Context, conn *pgx.Conn) error {
	for _, p := range x.partitions() {
		for after := (dueLevel{}); ; {
			due, err := x.dueLevels(ctx, conn, p, after)
			if err != nil {
				return err
			}
			folds := true
			for batch := range slices.Chunk(due, x.cfg.BatchSize) {
				if folds, err = x.append(ctx, conn, levelEnds(batch), x.cfg.Metrics.levels, len(batch)); err != nil {
					return fmt.Errorf("end %d levels of partition %d: %w", len(batch), p, err)
				}
				if !folds {
					x.log.WarnContext(ctx, "the projector does not fold ended levels, will try again", "partition", p, "waited", x.foldTimeout)
					break
				}
			}
			if !folds || len(due) < x.pageSize {
				break
			}
			after = due[len(due)-1]
		}
	}
	return nil
}

// dueLevels returns the next levels to end after the level `after`, at most pageSize levels.
func (x *Sweeper) dueLevels(ctx context.Context, conn *pgx.Conn, partition int, after dueLevel) ([]dueLevel, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return query.All(ctx, conn, fmt.Sprintf("find levels to end in partition %d", partition), pgx.RowToStructByPos[dueLevel],
		statements.Of(partition, "find levels to end"), after.Until, after.Conversation, after.User, x.pageSize)
}

// levelEnds returns the events that end levels. Users share an event if their conversation and
// the end of their level are the same.
func levelEnds(due []dueLevel) []events.Event {
	var evs []events.Event
	for len(due) > 0 {
		first, users, versions := due[0], []string(nil), int64(0)
		for len(due) > 0 && due[0].Until == first.Until && due[0].Conversation == first.Conversation {
			users, versions = append(users, due[0].User), versions+due[0].Version
			due = due[1:]
		}
		evs = append(evs, events.Event{
			// Include the versions: a level that is set again with the same end has another
			// version.
			ID: eventID(first.Conversation, users, first.Until, versions), Source: Source, Type: events.ConversationLevelEnded,
			Data: events.Data{ConversationID: first.Conversation, UserIDs: users, Until: time.UnixMicro(first.Until).UTC()},
		})
	}
	return evs
}
