package replay

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/log/tombstones"
)

// sought describes the events that a search of the log looks for: events that name one of some
// users, and events of some rooms, which name no members.
type sought struct {
	users []string
	rooms map[string]struct{}
	// keys maps event keys of joins and leaves of the rooms to their event ids. Every other
	// event with one of these keys is sought too, whatever it says: it decides which joins and
	// leaves are repeats.
	keys map[uuid.UUID]string
	// posts is set if messages to any room are sought too, if they name one of the users.
	posts bool
	// quoted are texts to search for. A sought event contains at least one of them, or has one
	// of the keys, or has unnecessary escapes by its publisher. names are the texts by which
	// the index finds the events: ids, or types of events.
	quoted [][]byte
	names  []string
}

// maxSoughtRooms is the number of rooms up to which rooms are searched for by name. For more
// rooms, all events of rooms are read.
const maxSoughtRooms = 16

// seek returns a search for events that name one of the users or rooms.
func seek(users []string, rooms map[string]struct{}) *sought {
	s := &sought{users: users, rooms: rooms}
	s.name(users...)
	switch {
	case len(rooms) > maxSoughtRooms:
		s.quoted = append(s.quoted, []byte(`"room.`)) // the types of events of rooms begin with it
		for _, t := range events.Types() {
			if t.Type.OfRooms() {
				s.names = append(s.names, string(t.Type))
			}
		}
	default:
		s.name(slices.Collect(maps.Keys(rooms))...)
	}
	if len(rooms) > 0 {
		s.name(string(events.UserLeftAll)) // leaves all rooms without naming them
	}
	return s
}

// name adds texts by which events are searched for.
func (s *sought) name(texts ...string) {
	for _, text := range texts {
		s.quoted = append(s.quoted, quoted(text))
	}
	s.names = append(s.names, texts...)
}

// soughtFor returns the search for all events that are necessary to fold users: events that
// name the users, and events of the rooms that the users have joined or left.
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
		return true // leaves all rooms without naming them
	}
	_, ok := s.rooms[d.ConversationID]
	return ok && (it.ToRoom() || movesMembers(it.Event.Type))
}

// members returns the erased members of the sought rooms. If an erased event left several rooms,
// its tombstone also has members of other rooms, whose events are not read.
func (s *sought) members(erased []tombstones.Members) []tombstones.Members {
	return slices.DeleteFunc(erased, func(m tombstones.Members) bool {
		_, ok := s.rooms[m.ConversationID]
		return !ok
	})
}

// shares reports whether the key of an event is one of the keys.
func (s *sought) shares(key uuid.UUID) bool {
	_, ok := s.keys[key]
	return ok
}

// mayBeIn reports whether a payload contains one of the quoted texts. It does not check keys.
func (s *sought) mayBeIn(payload []byte) bool {
	return slices.ContainsFunc(s.quoted, func(name []byte) bool { return bytes.Contains(payload, name) })
}

// maxSoughtKeys is the number of keys up to which rows with several events are searched for the
// event ids of the keys. For more keys, all rows with several events that contain a name are
// read.
const maxSoughtKeys = 16

// text returns an SQL condition that is true for every row with a sought event, and its
// arguments from $first on. It searches for quoted ids, and for the escapes with which a
// publisher may have written an id in another way.
func (s *sought) text(first int) (condition string, args []any) {
	texts, anyOf := s.quoted, `substr(payload, 1, 1) NOT IN ('{'::bytea, '['::bytea)`
	if len(s.keys) > maxSoughtKeys {
		anyOf = statements.Get("opaque")
	} else {
		for _, id := range s.keys {
			texts = append(slices.Clip(texts), quoted(id))
		}
	}
	escape := `\u`
	for i, name := range texts {
		anyOf += fmt.Sprintf(` OR position($%d::bytea IN payload) > 0`, first+i)
		args = append(args, name)
		if bytes.ContainsAny(name[1:len(name)-1], `"\/`) { // these characters may have other escapes
			escape = `\`
		}
	}
	anyOf += fmt.Sprintf(` OR position($%d::bytea IN payload) > 0 OR uuid = ANY ($%d)`, first+len(texts), first+len(texts)+1)
	return anyOf, append(args, []byte(escape), keyList(s.keys))
}

// namesToFind returns the texts for the index: every row with a sought event has one of them.
func (s *sought) namesToFind() []string {
	return slices.AppendSeq(slices.Clone(s.names), maps.Values(s.keys))
}

// mayName reports whether a payload contains the quoted id of a user.
func mayName(payload []byte, user string) bool { return bytes.Contains(payload, quoted(user)) }
