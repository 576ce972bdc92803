package replay

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/internal/store"
)

// sought are events that a search of the log looks for: those that name any of some
// users, and those of rooms, which name no members.
type sought struct {
	users []string
	rooms map[string]struct{}
	// keys are those of the joins and leaves of the rooms. An event that shares one
	// tells whose joins are repeats, whatever else it says.
	keys map[uuid.UUID]struct{}
	// posts is set if messages to any room are sought that name one of the users.
	posts bool
	// quoted are texts. Every such event has at least one of them, unless the publisher
	// wrote unnecessary escapes.
	quoted [][]byte
}

// maxSoughtRooms is the most rooms that are searched for by name. For more, all
// events of rooms are read.
const maxSoughtRooms = 16

// seek returns what names any of the users or rooms.
func seek(users []string, rooms map[string]struct{}) *sought {
	s := &sought{users: users, rooms: rooms}
	for _, id := range users {
		s.quoted = append(s.quoted, quoted(id))
	}
	if len(rooms) > maxSoughtRooms {
		s.quoted = append(s.quoted, []byte(`"room.`)) // of their types
		return s
	}
	for id := range rooms {
		s.quoted = append(s.quoted, quoted(id))
	}
	return s
}

// soughtFor returns what is needed to fold users: the events that name them, and
// those of the rooms that they have joined or left.
func (in *Snapshot) soughtFor(ctx context.Context, users []string) (*sought, error) {
	var inUse bool
	if err := in.Tx.QueryRow(ctx, statements.Of(in.Partition, "find a room"), users).Scan(&inUse); err != nil {
		return nil, fmt.Errorf("look for rooms in partition %d: %w", in.Partition, err)
	}
	if !inUse {
		return seek(users, nil), nil
	}
	rooms, err := in.baselineRooms(ctx, users)
	if err != nil {
		return nil, err
	}
	found, err := in.search(ctx, in.Baseline.Position, seek(users, nil))
	if err != nil {
		return nil, err
	}
	err = in.visitFound(ctx, found, func(_ *events.Record, it store.Item, dead error) error {
		if dead == nil && movesMembers(it.Event.Type) && it.Event.Data.ConversationID != "" {
			rooms[it.Event.Data.ConversationID] = struct{}{}
		}
		return nil
	})
	return seek(users, rooms), err
}

// has reports whether an event is sought.
func (s *sought) has(it *store.Item) bool {
	d := &it.Event.Data
	if slices.ContainsFunc(s.users, func(u string) bool { return slices.Contains(d.UserIDs, u) }) {
		return true
	}
	if s.posts && slices.ContainsFunc(s.users, func(u string) bool { return slices.Contains(it.Named(), u) }) {
		return true
	}
	for i := range it.Erased {
		if _, ok := s.rooms[it.Erased[i].ConversationID]; ok {
			return true
		}
	}
	if it.Event.Type == events.UserLeftAll && len(s.rooms) > 0 {
		return true // of any room
	}
	_, ok := s.rooms[d.ConversationID]
	return ok && (it.ToRoom() || movesMembers(it.Event.Type))
}

// shares reports whether an event has one of the keys.
func (s *sought) shares(key uuid.UUID) bool {
	_, ok := s.keys[key]
	return ok
}

// mayBeIn reports whether a payload contains any of the names. It does not tell of
// the keys.
func (s *sought) mayBeIn(payload []byte) bool {
	return slices.ContainsFunc(s.quoted, func(name []byte) bool { return bytes.Contains(payload, name) })
}

// sql returns a condition that holds for every single event that is sought, with
// its arguments from $first on. It searches the text; an index on users would not
// pay off. Ids are quoted in one way there, unless the publisher wrote unnecessary
// escapes.
func (s *sought) sql(first int) (condition string, args []any) {
	escape := `\u`
	var anyOf strings.Builder
	for i, name := range s.quoted {
		fmt.Fprintf(&anyOf, `position($%d::bytea IN payload) > 0 OR `, first+i)
		args = append(args, name)
		if bytes.ContainsAny(name[1:len(name)-1], `"\/`) { // these may have other escapes
			escape = `\`
		}
	}
	fmt.Fprintf(&anyOf, `position($%d::bytea IN payload) > 0 OR uuid = ANY ($%d)`, first+len(s.quoted), first+len(s.quoted)+1)
	return anyOf.String(), append(args, []byte(escape), keyList(s.keys))
}

// mayName reports whether a payload contains the quoted id of a user.
func mayName(payload []byte, user string) bool { return bytes.Contains(payload, quoted(user)) }
