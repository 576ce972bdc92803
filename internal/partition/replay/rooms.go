package replay

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/category"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/pg/query"
)

// movesMembers reports whether events of a type add members to rooms or remove them.
func movesMembers(t events.Type) bool {
	return t == events.RoomJoined || t == events.RoomLeft || t == events.UserLeftAll
}

// room returns a room, which it creates if necessary.
func (r *Replay) room(id string) *badge.Room {
	return (&badge.State{Rooms: r.Rooms}).Room(id)
}

// followOthers updates the numbers of members of rooms after an event that made users join or leave
// who are not replayed: a room counts all its members.
func (r *Replay) followOthers(e *events.Event) {
	id := e.Data.ConversationID
	switch e.Type {
	case events.RoomJoined, events.RoomLeft:
	case events.UserLeftAll:
		for room, members := range r.others {
			if !category.Covers(e.Data.Category, r.room(room).Category) {
				continue
			}
			for _, user := range e.Data.UserIDs {
				if _, member := members[user]; member && !r.Wants(user) {
					r.room(room).Dismiss()
					delete(members, user)
				}
			}
		}
		return
	default:
		return
	}
	for _, user := range e.Data.UserIDs {
		if r.Wants(user) {
			continue
		}
		_, member := r.others[id][user]
		switch {
		case e.Type == events.RoomJoined && !member:
			r.room(id).Admit()
			r.addOther(id, user)
		case e.Type == events.RoomLeft && member:
			r.room(id).Dismiss()
			delete(r.others[id], user)
		}
	}
}

func (r *Replay) addOther(room, user string) {
	if r.others[room] == nil {
		r.others[strings.Clone(room)] = map[string]struct{}{}
	}
	r.others[room][strings.Clone(user)] = struct{}{}
}

// drop removes a user from the replay. Rooms still count the user as a member.
func (r *Replay) drop(user string) {
	for id, c := range r.Users[user].Conversations {
		if c.Member() {
			r.addOther(id, user)
		}
	}
	delete(r.Users, user)
}

// forgetMarks is called after an event was folded. It deletes the marks (see Mark) that no longer
// have an effect, as the projector does.
func (r *Replay) forgetMarks(item *store.Item) {
	if len(r.Rooms) == 0 {
		return
	}
	for _, id := range item.Named() {
		u := r.Users[id]
		if u == nil {
			continue
		}
		if item.Event.Type.OfConversations() {
			for _, c := range u.Conversations {
				r.forgetRead(u, c)
			}
		} else if c, ok := u.Conversations[item.Event.Data.ConversationID]; ok {
			r.forgetRead(u, c)
		}
	}
	if item.Event.Type == events.RoomReset {
		for _, u := range r.Users {
			if c, ok := u.Conversations[item.Event.Data.ConversationID]; ok {
				r.forgetRead(u, c)
			}
		}
		return
	}
	if !item.ToRoom() {
		return
	}
	marks := r.Rooms[item.Event.Data.ConversationID].Marks
	seq := item.Event.Data.Seq
	for user, m := range marks[seq] {
		if m.Gone {
			delete(marks[seq], user)
		}
	}
	if len(marks[seq]) == 0 {
		delete(marks, seq)
	}
}

// forgetRead deletes a member's marks of messages that the member has read since the last call.
func (r *Replay) forgetRead(u *badge.User, c *badge.Conversation) {
	if !c.Member() {
		return
	}
	marks := r.Rooms[c.ID].Marks
	for _, seq := range c.Membership.Unmarked {
		if delete(marks[seq], u.ID); len(marks[seq]) == 0 {
			delete(marks, seq)
		}
	}
	c.Membership.Unmarked = nil
}

// Mark relates a member of a room to a message: the member has sent the message (Own is true), or
// the message mentions the member by name.
type Mark struct {
	Room string
	Seq  int64
	User string
	Own  bool
}

// Marks returns the marks of the replayed users for messages that they have not read. Other marks
// have no effect.
func (r *Replay) Marks() (marks []Mark) {
	for _, room := range store.Sorted(r.Rooms) {
		for seq, byUser := range room.Marks {
			for user, m := range byUser {
				u := r.Users[user]
				if m.Gone || u == nil {
					continue
				}
				if c, ok := u.Conversations[room.ID]; ok && c.Member() && seq > c.ReadSeq {
					marks = append(marks, Mark{room.ID, seq, user, m.Own})
				}
			}
		}
	}
	return marks
}

// baselineRooms returns the ids of the rooms of which one of the users is a member in the baseline.
func (snapshot *Snapshot) baselineRooms(ctx context.Context, users []string) (map[string]struct{}, error) {
	rooms := map[string]struct{}{}
	if snapshot.Baseline.Events == 0 {
		return rooms, nil
	}
	var id string
	return rooms, query.Each(ctx, snapshot.Tx, "read the rooms of the baseline", statements.Of(snapshot.Partition, "read the rooms of users in the baseline"), []any{users}, []any{&id}, func() error {
		rooms[id] = struct{}{}
		return nil
	})
}

// restoreRooms adds the rooms of the baseline to r, with the marks of the replayed users. It adds
// the members who are not replayed to r.others. The replayed users must have been added to r
// before.
func (snapshot *Snapshot) restoreRooms(ctx context.Context, r *Replay) error {
	if err := snapshot.loadRooms(ctx, r, "_baseline", nil); err != nil {
		return err
	}
	var id, user string
	if err := query.Each(ctx, snapshot.Tx, "read the members of the baseline", statements.Of(snapshot.Partition, "read the members in the baseline"), nil, []any{&id, &user}, func() error {
		if !r.Wants(user) {
			r.addOther(id, user)
		}
		return nil
	}); err != nil {
		return err
	}
	var seq int64
	var own bool
	return query.Each(ctx, snapshot.Tx, "read the marks of the baseline", statements.Of(snapshot.Partition, "read the marks of the baseline"), nil, []any{&id, &seq, &user, &own}, func() error {
		if room := r.Rooms[id]; room != nil && r.Wants(user) {
			room.AddMark(seq, strings.Clone(user), badge.Mark{Own: own})
		}
		return nil
	})
}

// loadRooms reads rooms with their closed chunks (older messages) from the tables whose names end
// with suffix, and adds them to r. It marks these rooms as changed, as if they had just been
// folded. If `named` is not nil, it reads only the rooms with ids in `named`.
func (snapshot *Snapshot) loadRooms(ctx context.Context, r *Replay, suffix string, named []string) error {
	tables := store.TablesNamed(snapshot.Partition, suffix)
	where, args := "", []any(nil)
	if named != nil {
		where, args = "\nWHERE conversation_id = ANY ($1::text[])", []any{named}
	}
	rows, _ := snapshot.Tx.Query(ctx, tables.Rooms.Read+where, args...)
	err := store.ScanRooms(rows, r.Rooms)
	if err == nil {
		rows, _ = snapshot.Tx.Query(ctx, tables.Chunks.Read+where, args...)
		err = store.ScanChunks(rows, r.Rooms)
	}
	if err != nil {
		return fmt.Errorf("read rooms%s: %w", suffix, err)
	}
	for _, room := range r.Rooms {
		room.Stored, room.Touched = false, true
		for _, c := range slices.Concat(room.Closed, []*badge.Chunk{&room.Open}) {
			c.Stored, c.Touched = false, true
		}
	}
	return nil
}
