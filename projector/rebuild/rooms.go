package rebuild

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/projector/internal/store"
	"github.com/badged/badged/projector/replay"
)

// stagedRooms are the rooms of staging tables.
type stagedRooms struct {
	// different are the rooms whose live rows differ, with their members.
	different map[string][]string
	// touched are those with events since the comparison, to be compared again.
	touched map[string]struct{}
}

// judgeRooms finds the touched rooms, or all, that differ in the tables that in
// sees.
func (s *Staging) judgeRooms(ctx context.Context, in *replay.Snapshot, all bool) error {
	where, args := "true", []any(nil)
	if !all {
		if len(s.rooms.touched) == 0 {
			return nil
		}
		touched := slices.Collect(maps.Keys(s.rooms.touched))
		where, args = "conversation_id = ANY ($1::text[])", []any{touched}
		for _, id := range touched {
			delete(s.rooms.different, id)
		}
	}
	if err := in.ScanTables(ctx, all); err != nil {
		return err
	}
	s.rooms.touched = map[string]struct{}{}
	number := fmt.Sprintf("%02d", s.partition)
	rows, _ := in.Tx.Query(ctx, differingSQL("conversation_id", "rooms_p"+number, "conversation_id", where, new(store.RoomRow).Columns())+`
UNION
`+differingSQL("conversation_id", "room_chunks_p"+number, "conversation_id, bound", where, new(store.ChunkRow).Columns())+`
UNION
`+differingMarksSQL(number, where), args...)
	different, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("compare with the live rooms: %w", err)
	}
	for _, id := range different {
		rows, _ := in.Tx.Query(ctx, statements.Of(s.partition, "read the staged members"), id)
		if s.rooms.different[id], err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return fmt.Errorf("read the members of room %q: %w", id, err)
		}
	}
	return nil
}

// differingMarksSQL finds the rooms with a mark that differs. Marks at or below the
// read position say nothing.
func differingMarksSQL(number, where string) string {
	marks := func(suffix string) string {
		return fmt.Sprintf(`(
    SELECT conversation_id, seq, user_id, own
    FROM badged.room_marks_p%[1]s%[2]s JOIN badged.conversations_p%[1]s%[2]s USING (conversation_id, user_id)
    WHERE seq > read_seq AND joined IS NOT NULL AND %[3]s
)`, number, suffix, where)
	}
	return `SELECT conversation_id FROM ` + marks("") + ` AS live
FULL JOIN ` + marks("_staging") + ` AS log USING (conversation_id, seq, user_id)
WHERE live.own IS DISTINCT FROM log.own`
}

// inspectRooms compares the first different rooms column by column, as a
// verification does.
func (s *Staging) inspectRooms(ctx context.Context, in *replay.Snapshot, found func(replay.Difference)) error {
	ids := slices.Sorted(maps.Keys(s.rooms.different))
	if len(ids) == 0 {
		return nil
	}
	rooms := map[string]*badge.Room{}
	for _, id := range ids[:min(reported, len(ids))] {
		rooms[id] = badge.NewRoom(id)
	}
	var reads pgx.Batch
	const ofRooms = "\nWHERE conversation_id = ANY ($1::text[])"
	wanted := slices.Collect(maps.Keys(rooms))
	reads.Queue(s.tables.Rooms.Read+ofRooms, wanted).Query(func(rows pgx.Rows) error { return store.ScanRooms(rows, rooms) })
	reads.Queue(s.tables.Chunks.Read+ofRooms, wanted).Query(func(rows pgx.Rows) error { return store.ScanChunks(rows, rooms) })
	if err := in.Tx.SendBatch(ctx, &reads).Close(); err != nil {
		return fmt.Errorf("load rooms: %w", err)
	}
	for _, r := range rooms {
		r.Touched = r.Stored // it has a row
	}
	c := replay.Comparison{In: in, Options: replay.VerifyOptions{Found: found}}
	return c.CompareRooms(ctx, rooms)
}
