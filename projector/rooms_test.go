package projector

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/projector/internal/store"
	"github.com/badged/badged/projector/internal/store/storetest"
)

// drawRooms draws a history whose users and conversations no other has.
func drawRooms(rt *rapid.T, n int, users []string) []events.Event {
	history := foldtest.DrawRooms(rt, users)
	for i := range history {
		history[i].Source, history[i].AppendedAt = fmt.Sprint("history ", n), foldtest.Noon
		if id := &history[i].Data.ConversationID; *id != "" {
			*id = fmt.Sprintf("%s of %d", *id, n)
		}
	}
	return history
}

// With the real log and tables, any history with rooms, cut into any transactions,
// batches and generations of keys, gives the rows of folding one by one: those of
// users, conversations, rooms, chunks and marks.
func TestRoomTablesAgreeWithAReplay(t *testing.T) {
	d := newDatabase(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		users := []string{fmt.Sprint("ann-", n), fmt.Sprint("bob-", n), fmt.Sprint("cem-", n)}
		history := drawRooms(rt, n, users)
		start := d.positions(t)
		d.appendAndFold(t, rt, history)
		for p := range foldtest.Partitions {
			want, got := d.replay(t, p, start[p]), d.roomTables(t, p, fmt.Sprintf("%% of %d", n))
			for _, id := range users {
				if events.PartitionOf(id, foldtest.Partitions) != p {
					continue
				}
				u := got.Users[id]
				if u == nil {
					u = badge.NewUser(id)
				}
				if diff := cmp.Diff(want.Describe(id), storetest.DescribeIn(u, got.Rooms)); diff != "" {
					rt.Fatalf("after\n%sthe tables of %s are (-one by one +got):\n%s", foldtest.Story(history), id, diff)
				}
				sums, b := u.Sums(got.Rooms), d.badge(t, id)
				if read := (badge.Sums{Version: b.Version, Total: b.Total, Mentions: b.Mentions, Categories: badge.NewCategoryTotals(b.Categories)}); read.String() != sums.String() {
					rt.Fatalf("after\n%sthe reader says of %s %s, want %s", foldtest.Story(history), id, read, sums)
				}
				versions := storetest.Versions(u)
				versions["of clients"] = u.Sums(got.Rooms).Version
				if diff := cmp.Diff(want.Versions(id), versions); diff != "" {
					rt.Fatalf("after\n%sthe versions of %s are (-one by one +got):\n%s", foldtest.Story(history), id, diff)
				}
			}
			if diff := cmp.Diff(describeRooms(want.Rooms), describeRooms(got.Rooms)); diff != "" {
				rt.Fatalf("after\n%sthe rooms of partition %d are (-one by one +got):\n%s", foldtest.Story(history), p, diff)
			}
		}
	})
}

// roomTables reads the rooms of a partition whose ids match a pattern, and all users.
func (d *database) roomTables(t *testing.T, partition int, like string) *badge.State {
	t.Helper()
	s, tables := &badge.State{Users: map[string]*badge.User{}, Rooms: map[string]*badge.Room{}}, store.NewTables(partition)
	user := func(id string) *badge.User {
		if s.Users[id] == nil {
			s.Users[id] = badge.NewUser(id)
		}
		return s.Users[id]
	}
	var reads pgx.Batch
	read := func(sql string, scan func(pgx.Rows) error) { reads.Queue(sql).Query(scan) }
	where := fmt.Sprintf(" WHERE conversation_id LIKE '%s'", like)
	read(tables.Users.Read, func(rows pgx.Rows) error { return store.ScanUsersInto(rows, user, func(*badge.User) {}) })
	read(tables.Conversations.Read+where, func(rows pgx.Rows) error {
		return store.ScanConversationsInto(rows, user, func(*badge.User, *badge.Conversation) {})
	})
	read(tables.Rooms.Read+where, func(rows pgx.Rows) error { return store.ScanRooms(rows, s.Rooms) })
	read(tables.Chunks.Read+where, func(rows pgx.Rows) error { return store.ScanChunks(rows, s.Rooms) })
	read(fmt.Sprintf("SELECT conversation_id, seq, user_id, own FROM badged.room_marks_p%02d", partition)+where, func(rows pgx.Rows) error {
		var room, user string
		var seq int64
		var own bool
		_, err := pgx.ForEachRow(rows, []any{&room, &seq, &user, &own}, func() error {
			s.Rooms[room].AddMark(seq, user, badge.Mark{Own: own})
			return nil
		})
		return err
	})
	if err := d.pool.SendBatch(t.Context(), &reads).Close(); err != nil {
		t.Fatal(err)
	}
	return s
}

// describeRooms returns the rows of rooms as text.
func describeRooms(rooms map[string]*badge.Room) string {
	var lines []string
	chunk := func(c *badge.Chunk) {
		lines = append(lines, fmt.Sprintf("  up to %d: live %s, all %s, recalled %s", c.Bound, &c.Live, &c.All, &c.Recalled))
	}
	for _, r := range store.Sorted(rooms) {
		lines = append(lines, fmt.Sprintf("%s: %d changes, last %d, category %s, %d members, hour %d, since %d with %d live, %d all and %d changes",
			r.ID, r.Changes, r.LastSeq, r.Category, r.Members, r.DeliveredHour, r.Since, r.ClosedLive, r.ClosedAll, r.ClosedChanges))
		for _, c := range r.Closed {
			chunk(c)
		}
		chunk(&r.Open)
		for _, seq := range slices.Sorted(maps.Keys(r.Marks)) {
			for _, user := range slices.Sorted(maps.Keys(r.Marks[seq])) {
				lines = append(lines, fmt.Sprintf("  %d names %s, own %v", seq, user, r.Marks[seq][user].Own))
			}
		}
	}
	return strings.Join(lines, "\n")
}
