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
	"github.com/badged/badged/internal/pg/query"
)

// sought describes the events that a search of the log must find: events that name one of the
// users, and events of the rooms. Events of rooms, such as messages, do not name the members.
type sought struct {
	users []string
	rooms map[string]struct{}
	// keys maps the event keys of joins and leaves of the rooms to the ids of these events. Every
	// other event with one of these keys is sought too, even if it names none of the users and
	// rooms: if the other event comes first, the join or leave is a repetition without effect.
	keys map[uuid.UUID]string
	// posts is true if messages to any room that mention one of the users are sought too.
	posts bool
	// quoted has the texts to search for in payloads. A sought event contains one of these texts,
	// or has one of the keys, or its publisher has written an id with escapes. names has the
	// texts by which the index finds the events: ids, or types of events.
	quoted [][]byte
	names  []string
}

// maxSoughtRooms is the maximum number of rooms for whose ids the log is searched. If there are
// more rooms, the search finds all events of rooms.
const maxSoughtRooms = 16

// seek describes a search for the events that name one of the users or rooms.
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
		s.name(string(events.UserLeftAll)) // an event of this type makes users leave rooms that it does not name
	}
	return s
}

// name adds ids or types of events to the texts to search for.
func (s *sought) name(texts ...string) {
	for _, text := range texts {
		s.quoted = append(s.quoted, quoted(text))
	}
	s.names = append(s.names, texts...)
}

// soughtFor describes a search for all events that are necessary to replay users: the events that
// name the users, and the events of the rooms that the users have joined or left.
func (snapshot *Snapshot) soughtFor(ctx context.Context, users []string) (*sought, error) {
	inUse, err := query.One[bool](ctx, snapshot.Tx, fmt.Sprintf("look for rooms in partition %d", snapshot.Partition), statements.Of(snapshot.Partition, "find a room"), users)
	if err != nil || !inUse {
		return seek(users, nil), err
	}
	rooms, err := snapshot.baselineRooms(ctx, users)
	if err != nil {
		return nil, err
	}
	found, err := snapshot.search(ctx, snapshot.Baseline.Position, seek(users, nil))
	if err != nil {
		return nil, err
	}
	err = snapshot.visitFound(ctx, found, func(_ *events.Record, item store.Item, dead error) error {
		if dead == nil && movesMembers(item.Event.Type) && item.Event.Data.ConversationID != "" {
			rooms[item.Event.Data.ConversationID] = struct{}{}
		}
		return nil
	})
	return seek(users, rooms), err
}

// has reports whether an event is sought.
func (s *sought) has(item *store.Item) bool {
	d := &item.Event.Data
	if slices.ContainsFunc(s.users, func(u string) bool { return slices.Contains(d.UserIDs, u) }) {
		return true
	}
	if s.posts && slices.ContainsFunc(s.users, func(u string) bool { return slices.Contains(item.Named(), u) }) {
		return true
	}
	for i := range item.Erased {
		if _, ok := s.rooms[item.Erased[i].ConversationID]; ok {
			return true
		}
	}
	if item.Event.Type == events.UserLeftAll && len(s.rooms) > 0 {
		return true // the event makes users leave rooms that it does not name
	}
	_, ok := s.rooms[d.ConversationID]
	return ok && (item.ToRoom() || movesMembers(item.Event.Type))
}

// members returns the erased members of the sought rooms among `erased`, the members in a
// tombstone. If a user left several rooms through one event, its tombstone may have members of
// rooms that are not sought; these members must not be folded, since the other events of these
// rooms are not read.
func (s *sought) members(erased []tombstones.Members) []tombstones.Members {
	return slices.DeleteFunc(erased, func(m tombstones.Members) bool {
		_, ok := s.rooms[m.ConversationID]
		return !ok
	})
}

// shares reports whether the key of an event is one of s.keys.
func (s *sought) shares(key uuid.UUID) bool {
	_, ok := s.keys[key]
	return ok
}

// mayBeIn reports whether a payload contains one of the texts in s.quoted. It does not check
// whether the event has one of s.keys.
func (s *sought) mayBeIn(payload []byte) bool {
	return slices.ContainsFunc(s.quoted, func(name []byte) bool { return bytes.Contains(payload, name) })
}

// maxSoughtKeys is the maximum number of event keys for which payloads are searched by the ids of
// the events. This is necessary for rows with several events, since the UUID of such a row does not
// show the keys of its events. If there are more keys, the search reads all rows with several
// events that the index finds.
const maxSoughtKeys = 16

// text returns an SQL condition that is true for every row with a sought event. `args` are the
// arguments of the condition; `first` is the number of its first parameter, such as 7 for $7. The
// condition searches payloads for quoted ids. It also searches for escapes, since a publisher may
// have written an id with escapes.
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
		if bytes.ContainsAny(name[1:len(name)-1], `"\/`) { // there are other escapes for these characters than \u
			escape = `\`
		}
	}
	anyOf += fmt.Sprintf(` OR position($%d::bytea IN payload) > 0 OR uuid = ANY ($%d)`, first+len(texts), first+len(texts)+1)
	return anyOf, append(args, []byte(escape), keyList(s.keys))
}

// namesToFind returns the texts by which the index finds rows. In the index, every row with a
// sought event has one of these texts.
func (s *sought) namesToFind() []string {
	return slices.AppendSeq(slices.Clone(s.names), maps.Values(s.keys))
}

// mayName reports whether a payload contains the quoted id of a user.
func mayName(payload []byte, user string) bool { return bytes.Contains(payload, quoted(user)) }
