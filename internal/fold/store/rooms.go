package store

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/badge"
)

// roomsSQL has the statements on rooms of a partition.
type roomsSQL struct {
	load, loadOfReaders, loadMemberships           string
	loadChunks, loadMarks, loadMarked, loadMarkers string
	loadAllChunks, loadMembers, loadMemberUsers    string
	mark, unmark, deleteChunks, deleteMarks        string
	deleteMerged                                   string
}

func (t *Tables) newRoomsSQL(suffix string) roomsSQL {
	fill := strings.NewReplacer(
		"CONVERSATIONS", fmt.Sprintf("badged.conversations_p%02d%s", t.partition, suffix),
		"CHUNKS", fmt.Sprintf("badged.room_chunks_p%02d%s", t.partition, suffix),
		"MARKS", fmt.Sprintf("badged.room_marks_p%02d%s", t.partition, suffix),
		"PARTITION", fmt.Sprint(t.partition),
	).Replace
	return roomsSQL{
		load:            t.Rooms.Read + "\n" + fill(statements.Get("rooms by key")),
		loadOfReaders:   t.Rooms.Read + "\n" + fill(statements.Get("rooms of members")),
		loadMemberships: t.Conversations.Read + "\n" + fill(statements.Get("memberships of users")),
		loadChunks:      t.Chunks.Read + "\n" + fill(statements.Get("chunks of messages")),
		loadMarks:       fill(statements.Get("read marks")),
		loadMarked:      t.Users.Read + "\n" + fill(statements.Get("marked users")),
		loadMarkers:     t.Conversations.Read + "\n" + fill(statements.Get("marked memberships")),
		loadAllChunks:   t.Chunks.Read + "\n" + fill(statements.Get("rooms by key")),
		loadMembers:     t.Conversations.Read + "\n" + fill(statements.Get("members of rooms")),
		loadMemberUsers: t.Users.Read + "\n" + fill(statements.Get("users who are members of rooms")),
		deleteChunks:    fill(statements.Get("delete chunks")),
		deleteMarks:     fill(statements.Get("delete marks above")),
		deleteMerged:    fill(statements.Get("delete merged chunks")),
		mark:            fill(statements.Get("write marks")),
		unmark:          fill(statements.Get("delete marks")),
	}
}

// queueRoomLoads adds to batch the statements that load the missing rows about rooms.
func (t *Tables) queueRoomLoads(batch *pgx.Batch, m *Missing, s *badge.State, c *Cache) {
	rooms := func(rows pgx.Rows) error { return ScanRooms(rows, s.Rooms) }
	if len(m.Rooms) > 0 {
		batch.Queue(t.rooms.load, m.Rooms).Query(rooms)
	}
	if len(m.ReadAll) > 0 {
		batch.Queue(t.rooms.loadMemberships, m.ReadAll).Query(func(rows pgx.Rows) error { return ScanConversations(rows, s.Users) })
		batch.Queue(t.rooms.loadOfReaders, m.ReadAll).Query(rooms)
	}
	user := func(id string) *badge.User {
		u, ok := s.Users[id]
		if !ok {
			if u = c.User(id); u == nil {
				u = badge.NewUser(id)
			}
			s.Users[u.ID] = u
		}
		return u
	}
	chunks := func(rows pgx.Rows) error { return ScanChunks(rows, s.Rooms) }
	users := func(rows pgx.Rows) error { return ScanUsersInto(rows, user, stored) }
	memberships := func(rows pgx.Rows) error {
		return ScanConversationsInto(rows, user, func(_ *badge.User, c *badge.Conversation) { c.Stored = true })
	}
	if len(m.MessageSeqs) > 0 {
		batch.Queue(t.rooms.loadChunks, m.MessageRooms, m.MessageSeqs).Query(chunks)
		batch.Queue(t.rooms.loadMarks, m.MessageRooms, m.MessageSeqs).Query(func(rows pgx.Rows) error { return scanMarks(rows, s.Rooms) })
		batch.Queue(t.rooms.loadMarked, m.MessageRooms, m.MessageSeqs).Query(users)
		batch.Queue(t.rooms.loadMarkers, m.MessageRooms, m.MessageSeqs).Query(memberships)
	}
	if len(m.ResetRooms) > 0 {
		batch.Queue(t.rooms.loadAllChunks, m.ResetRooms).Query(chunks)
		batch.Queue(t.rooms.loadMemberUsers, m.ResetRooms).Query(users)
		batch.Queue(t.rooms.loadMembers, m.ResetRooms).Query(memberships)
	}
}

// markedMessages returns messages whose closed chunks must be loaded after the memberships and
// before folding: rooms has the room of each message, seqs its seq. It looks for events that make
// messages of a room count again from a seq on. It returns the messages from that seq on that a
// user of the event sent or is mentioned in by name, if these messages are in closed chunks.
func markedMessages(items []Item, s *badge.State) (rooms []string, seqs []int64) {
	for i := range items {
		d := &items[i].Event.Data
		from := d.FromSeq
		if items[i].Event.Type == events.ConversationReset {
			from = max(d.UpToSeq, d.UpToSeq+1) // the greatest seq has no successor
		}
		room := s.Rooms[d.ConversationID]
		if from == 0 || room == nil {
			continue
		}
		for _, id := range d.UserIDs {
			c, ok := s.Users[id].Conversations[d.ConversationID]
			if !ok || !c.Member() {
				continue
			}
			for _, seq := range c.MayCount(from) {
				if seq <= room.Since {
					rooms, seqs = append(rooms, room.ID), append(seqs, seq)
				}
			}
		}
	}
	return rooms, seqs
}

// MoreMessages returns messages whose closed chunks (rows with a room's older messages) must
// be loaded after the other rows of a batch and before folding: rooms has the room of each
// message, seqs its seq. It returns the messages that may count again because of a mark or
// reset. For each room whose open chunk may become too large, it also returns the last message
// in closed chunks.
func MoreMessages(items []Item, s *badge.State) (rooms []string, seqs []int64) {
	if len(s.Rooms) == 0 {
		return nil, nil
	}
	rooms, seqs = markedMessages(items, s)
	messages := map[string]int{}
	for i := range items {
		if items[i].ToRoom() {
			messages[items[i].Event.Data.ConversationID]++
		}
	}
	for id, n := range messages {
		if r := s.Rooms[id]; r != nil && r.MayClose(n) {
			rooms, seqs = append(rooms, id), append(seqs, r.Since)
		}
	}
	return rooms, seqs
}

// ScanRooms reads rows of rooms and adds them to the map `rooms`.
func ScanRooms(rows pgx.Rows, rooms map[string]*badge.Room) error {
	var r RoomRow
	_, err := pgx.ForEachRow(rows, targets(r.Columns()), func() error {
		room, err := r.room()
		if err != nil {
			return err
		}
		room.Stored, room.StoredChanges = true, room.Changes
		rooms[room.ID] = room
		return nil
	})
	return err
}

// ScanChunks reads rows of closed chunks and adds the chunks to their rooms in the map `rooms`. It
// skips chunks of rooms that the map does not have.
func ScanChunks(rows pgx.Rows, rooms map[string]*badge.Room) error {
	var r ChunkRow
	_, err := pgx.ForEachRow(rows, targets(r.Columns()), func() error {
		room := rooms[r.room]
		if room == nil {
			return nil
		}
		chunk, err := r.chunk()
		if err != nil {
			return err
		}
		chunk.Stored = true
		room.AddClosed(chunk)
		return nil
	})
	return err
}

func scanMarks(rows pgx.Rows, rooms map[string]*badge.Room) error {
	var r MarkRow
	_, err := pgx.ForEachRow(rows, targets(r.Columns()), func() error {
		if room := rooms[r.room]; room != nil {
			room.AddMark(r.seq, r.user, badge.Mark{Own: r.own})
		}
		return nil
	})
	return err
}

// marks collects rows of badged.room_marks as array parameters of a statement.
type marks struct {
	rooms []string
	seqs  []int64
	users []string
	own   []bool
}

func (m *marks) add(room string, seq int64, user string, own bool) {
	m.rooms, m.seqs, m.users, m.own = append(m.rooms, room), append(m.seqs, seq), append(m.users, user), append(m.own, own)
}

// queueRoomWrites adds to batch the statements that write the changes of rooms. It also adds
// the statement that deletes marks at messages that the user of the mark has read.
func (t *Tables) queueRoomWrites(batch *pgx.Batch, users []*badge.User, rooms map[string]*badge.Room) {
	var room RoomRow
	var chunk ChunkRow
	var newRooms, knownRooms, newChunks, knownChunks rows
	var marked, gone marks
	for _, r := range Sorted(rooms) {
		if r.Ended && r.Stored { // before new rows are inserted
			batch.Queue(t.rooms.deleteChunks, r.ID, r.EndedAt)
			batch.Queue(t.rooms.deleteMarks, r.ID, r.EndedAt)
		}
		if len(r.Merged) > 0 {
			batch.Queue(t.rooms.deleteMerged, r.ID, r.Merged)
		}
		if r.Touched || r.Open.Touched {
			room.Set(r)
			if r.Stored {
				knownRooms.add(&room)
			} else {
				newRooms.add(&room)
			}
		}
		for _, c := range r.Closed {
			if !c.Touched {
				continue
			}
			if chunk.Set(r.ID, c); c.Stored {
				knownChunks.add(&chunk)
			} else {
				newChunks.add(&chunk)
			}
		}
		for seq, byUser := range r.Marks {
			for user, m := range byUser {
				if m.Gone {
					gone.add(r.ID, seq, user, false)
				} else if m.Touched {
					marked.add(r.ID, seq, user, m.Own)
				}
			}
		}
	}
	for _, u := range users {
		for _, c := range u.Changed {
			if c.Member() {
				for _, seq := range c.Membership.Unmarked {
					gone.add(c.ID, seq, u.ID, false)
				}
			}
		}
	}
	newRooms.queue(batch, t.Rooms.insert)
	knownRooms.queue(batch, t.Rooms.update)
	newChunks.queue(batch, t.Chunks.insert)
	knownChunks.queue(batch, t.Chunks.update)
	if len(marked.seqs) > 0 {
		batch.Queue(t.rooms.mark, marked.rooms, marked.seqs, marked.users, marked.own)
	}
	if len(gone.seqs) > 0 { // after the insert: the batch may have added the same marks
		batch.Queue(t.rooms.unmark, gone.rooms, gone.seqs, gone.users)
	}
}
