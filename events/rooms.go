package events

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/badged/badged/internal/log/eventlog"
)

// OfRooms reports whether events of the type exist only for rooms.
func (t Type) OfRooms() bool { return strings.HasPrefix(string(t), "room.") }

// ToRoom reports whether events of the type name no users and reach all members of a room.
func (t Type) ToRoom() bool {
	return t == RoomPosted || t == RoomChanged || t == RoomRecalled || t == RoomReset
}

// OfConversations reports whether an event of the type applies to all conversations of its users
// that a category covers.
func (t Type) OfConversations() bool { return t.ofAll() || t == UserLeftAll || t == CategoryLevelSet }

// ofAll reports whether events of the type may omit the category, and then apply to all
// conversations.
func (t Type) ofAll() bool { return t == UserReadAll || t == UserSeenAll }

// ReachesRoom reports whether e concerns a whole room: it changes the members of the room, or
// applies to members that it does not name.
func (e *Event) ReachesRoom() bool { return e.Type.OfRooms() || len(e.Data.UserIDs) == 0 }

// A message to a room is written to every partition, even if the room has no members there. So
// each partition has all messages of the room, and users can join it later in any partition. If
// there are several databases, each database gets the message for the partitions that it has.

// heldTextSQL returns the partitions that the database has. It returns JSON, since
// database/sql cannot scan arrays.
const heldTextSQL = `SELECT coalesce(json_agg(partition_id), '[]')::text FROM badged.partitions`

// readHeld returns the partitions that the database has. queryRow runs the query, with any driver.
func readHeld(ctx context.Context, queryRow queryRow) (held eventlog.Set, err error) {
	var text string
	if err := queryRow(ctx, heldTextSQL, &text); err != nil {
		return held, notMigrated(err)
	}
	var partitions []int
	if err := json.Unmarshal([]byte(text), &partitions); err != nil {
		return held, fmt.Errorf("read the partitions: %w", err)
	}
	for _, p := range partitions {
		held.Add(p)
	}
	return held, nil
}

// toRooms returns the partitions to which an append writes messages to rooms. If ctx names the
// partitions that the append expects in the database, toRooms returns the named partitions, and the
// append fails if the database does not have all of them. Otherwise toRooms returns the partitions
// that the database has.
func (l *Log) toRooms(ctx context.Context) (eventlog.Set, error) {
	switch e := eventlog.ExpectedBy(ctx); {
	case e != nil:
		return e.Set(), nil
	case l.shared.Load():
		return readHeld(ctx, l.queryRow)
	}
	return l.Layout().living, nil
}
