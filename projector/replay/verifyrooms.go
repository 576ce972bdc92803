package replay

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/projector/internal/store"
)

// compareRooms compares the rooms, their closed chunks, and the marks of the users
// that r wants. Of a few users it compares the rooms that they have joined.
func (c *Comparison) compareRooms(ctx context.Context, r *Replay) error {
	where, args := "true", []any(nil)
	if len(c.Options.Users) > 0 {
		where, args = someRooms(r.Rooms)
	}
	if !c.roomsDone {
		c.roomsDone = true
		if err := c.compareHeads(ctx, r.Rooms, where, args); err != nil {
			return err
		}
		if err := c.compareChunks(ctx, r.Rooms, where, args); err != nil {
			return err
		}
	}
	return c.compareMarks(ctx, r, where, args)
}

// CompareRooms compares rooms, with all their closed chunks, but not the marks.
func (c *Comparison) CompareRooms(ctx context.Context, rooms map[string]*badge.Room) error {
	where, args := someRooms(rooms)
	if err := c.compareHeads(ctx, rooms, where, args); err != nil {
		return err
	}
	return c.compareChunks(ctx, rooms, where, args)
}

// someRooms returns the condition on the rows of rooms, with its arguments.
func someRooms(rooms map[string]*badge.Room) (string, []any) {
	return "conversation_id = ANY ($1::text[])", []any{slices.Collect(maps.Keys(rooms))}
}

func (c *Comparison) foundInRoom(id string, ds ...Difference) {
	for _, d := range ds {
		d.ConversationID = id
		c.found(d)
	}
}

func (c *Comparison) compareHeads(ctx context.Context, rooms map[string]*badge.Room, where string, args []any) error {
	var row store.RoomRow
	columns := row.Columns()[store.RoomKey:]
	sql, values, targets := texts(columns)
	rows, _ := c.In.Tx.Query(ctx, fmt.Sprintf(`SELECT conversation_id%s FROM badged.rooms_p%02d WHERE %s`, sql, c.In.Partition, where), args...)
	seen := map[string]struct{}{}
	var id string
	if _, err := pgx.ForEachRow(rows, append([]any{&id}, targets...), func() error {
		seen[id] = struct{}{}
		room := rooms[id]
		if room == nil || !room.Exists() {
			c.foundInRoom(id, Difference{Field: rowField, Table: present, Log: absent})
			return nil
		}
		row.Set(room)
		c.foundInRoom(id, differing(columns, values)...)
		return nil
	}); err != nil {
		return fmt.Errorf("read the rooms: %w", err)
	}
	for _, room := range store.Sorted(rooms) {
		if _, ok := seen[room.ID]; !ok && room.Exists() {
			c.foundInRoom(room.ID, Difference{Field: rowField, Table: absent, Log: present})
		}
	}
	return nil
}

func (c *Comparison) compareChunks(ctx context.Context, rooms map[string]*badge.Room, where string, args []any) error {
	var row store.ChunkRow
	columns := row.Columns()[store.ChunkKey:]
	sql, values, targets := texts(columns)
	rows, _ := c.In.Tx.Query(ctx, fmt.Sprintf(`SELECT conversation_id, bound%s FROM badged.room_chunks_p%02d WHERE %s`, sql, c.In.Partition, where), args...)
	type key struct {
		room  string
		bound int64
	}
	chunks := map[key]*badge.Chunk{}
	for id, room := range rooms {
		for _, chunk := range room.Closed {
			chunks[key{id, chunk.Bound}] = chunk
		}
	}
	field := func(bound int64, field string) string { return fmt.Sprintf("%s of the chunk up to %d", field, bound) }
	var k key
	if _, err := pgx.ForEachRow(rows, append([]any{&k.room, &k.bound}, targets...), func() error {
		chunk := chunks[k]
		if chunk == nil {
			c.foundInRoom(k.room, Difference{Field: field(k.bound, rowField), Table: present, Log: absent})
			return nil
		}
		delete(chunks, k)
		row.Set(k.room, chunk)
		for _, d := range differing(columns, values) {
			d.Field = field(k.bound, d.Field)
			c.foundInRoom(k.room, d)
		}
		return nil
	}); err != nil {
		return fmt.Errorf("read the chunks of rooms: %w", err)
	}
	for k := range chunks {
		c.foundInRoom(k.room, Difference{Field: field(k.bound, rowField), Table: absent, Log: present})
	}
	return nil
}

// compareMarks compares the marks above the read positions of their users by the
// log. Others say nothing.
func (c *Comparison) compareMarks(ctx context.Context, r *Replay, where string, args []any) error {
	type key struct {
		room string
		seq  int64
		user string
	}
	marks := map[key]bool{} // own
	for _, m := range r.Marks() {
		marks[key{m.Room, m.Seq, m.User}] = m.Own
	}
	text := map[bool]string{true: "of the sender", false: "of a mention"}
	find := func(k key, table, log string) {
		c.found(Difference{UserID: k.user, ConversationID: k.room, Field: fmt.Sprintf("the mark of message %d", k.seq), Table: table, Log: log})
	}
	rows, _ := c.In.Tx.Query(ctx, fmt.Sprintf(`SELECT conversation_id, seq, user_id, own FROM badged.room_marks_p%02d WHERE %s`, c.In.Partition, where), args...)
	var k key
	var own bool
	if _, err := pgx.ForEachRow(rows, []any{&k.room, &k.seq, &k.user, &own}, func() error {
		if !r.Wants(k.user) {
			return nil
		}
		log, ok := marks[k]
		delete(marks, k)
		switch m := r.user(k.user).Conversations[k.room]; {
		case ok && log != own:
			find(k, text[own], text[log])
		case !ok && m != nil && m.Member() && k.seq > m.ReadSeq:
			find(k, present, absent)
		}
		return nil
	}); err != nil {
		return fmt.Errorf("read the marks of rooms: %w", err)
	}
	for k := range marks {
		find(k, absent, present)
	}
	return nil
}
