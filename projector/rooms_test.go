package projector

import (
	"errors"
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
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/fold/store/storetest"
	"github.com/badged/badged/internal/operations/deadletters"
	"github.com/badged/badged/projector/badges"
)

// With the real log and tables, any history with rooms, cut into any transactions,
// batches and generations of keys, gives the rows of folding one by one: those of
// users, conversations, rooms, chunks and marks.
func TestRoomTablesAgreeWithAReplay(t *testing.T) {
	d := newDatabase(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		users := []string{fmt.Sprint("ann-", n), fmt.Sprint("bob-", n), fmt.Sprint("cem-", n)}
		history := foldtest.DrawNamedRooms(rt, n, users)
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
				if read := (badge.Sums{Version: b.Version, Numbers: b.Numbers, Categories: b.Categories, Levels: b.Levels}); read.String() != sums.String() {
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

// A member with more messages of its own than the fold lists still sees the same
// numbers in every read: the fold counts the oldest.
func TestManyOwnMessages(t *testing.T) {
	d, bot := newDatabase(t), foldtest.User(0, 0)
	const own = badge.MaxRanges + 500
	history := []events.Event{foldtest.Event("join", events.RoomJoined, "room", nil, bot)}
	for i := range int64(own + 1) {
		sender := bot
		if i == own {
			sender = "another"
		}
		history = append(history, foldtest.Event(fmt.Sprint("post-", i), events.RoomPosted, "room", func(data *events.Data) {
			data.Seq, data.SenderID = (i+1)*1000, sender // far apart, so that each is a range
		}))
	}
	for part := range slices.Chunk(history, 500) {
		d.append(t, part...)
		d.fold(t)
	}
	s := d.snapshot(t, bot)
	if s.Total != 1 || len(s.Conversations) != 1 || s.Conversations[0].Unread != 1 || s.Memberships[0].OwnCounted == 0 {
		t.Errorf("the snapshot has %+v", s)
	}
	if b := d.badge(t, bot); b.Total != 1 {
		t.Errorf("the total is %d, want 1", b.Total)
	}
	if page := d.pages(t, bot, badges.Filter{}, 10); len(page) != 1 || page[0].Unread != 1 {
		t.Errorf("the page is %+v", page)
	}
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
	read(tables.Paths.Read, func(rows pgx.Rows) error { return store.ScanPaths(rows, user) }) // of users with more paths than their rows can store
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

// joined returns the event that makes users members of a room.
func joined(room string, users ...string) events.Event {
	return foldtest.Event("joined "+room+" "+strings.Join(users, " "), events.RoomJoined, room, nil, users...)
}

// posted returns message seq of a room.
func posted(room string, seq int64) events.Event {
	return foldtest.Event(fmt.Sprint("posted ", room, seq), events.RoomPosted, room, foldtest.Seq(seq))
}

// A new member has read the room up to its last message, no matter what the first
// member of the partition had read, or in which call that member joined.
func TestJoiningReadsUpToTheLastMessage(t *testing.T) {
	upTo := func(e events.Event, seq int64) events.Event {
		e.Data.UpToSeq = seq
		return e
	}
	for _, tc := range []struct {
		name  string
		calls [][]events.Event // each is folded before the next
	}{
		{"the first has read less", [][]events.Event{
			{joined("c", foldtest.User(0, 0)), posted("c", 3)},
			{upTo(joined("c", foldtest.User(1, 0)), 1)},
			{joined("c", foldtest.User(0, 1), foldtest.User(1, 1), foldtest.User(2, 1))},
		}},
		{"others join in the same call", [][]events.Event{
			{posted("c", 3), upTo(joined("c", foldtest.User(0, 0), foldtest.User(1, 0)), 1), joined("c", foldtest.User(0, 1), foldtest.User(1, 1), foldtest.User(2, 1))},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDatabase(t)
			for _, call := range append(tc.calls, []events.Event{posted("c", 2), posted("c", 3)}) {
				d.append(t, call...)
				d.fold(t)
			}
			for p := range 3 {
				if b := d.badge(t, foldtest.User(p, 1)); b.Total != 0 {
					t.Errorf("who joined in partition %d has %d unread", p, b.Total)
				}
			}
		})
	}
}

// An event that takes a room for an ordinary conversation is folded for those who are
// not members. For the members it becomes a dead letter that tells what to publish
// instead; once they have left, it can be retried.
func TestEventsThatMembersRefuse(t *testing.T) {
	for _, tc := range []struct {
		refused events.Event
		instead string
	}{
		{foldtest.Deliver("c", 2, foldtest.User(0, 0), foldtest.User(0, 1)), "publish room.posted instead of message.delivered"},
		{foldtest.Event("recall", events.MessageRecalled, "c", foldtest.Seq(2), foldtest.User(0, 0), foldtest.User(0, 1)), "publish room.recalled instead of message.recalled"},
		{foldtest.Event("left", events.ConversationLeft, "c", nil, foldtest.User(0, 0), foldtest.User(0, 1)), "publish room.left instead of conversation.left"},
		{foldtest.Event("mark", events.ConversationMarkedUnread, "c", foldtest.Seqs(1), foldtest.User(0, 0), foldtest.User(0, 1)), "publish conversation.marked_unread with from_seq instead of seqs"},
	} {
		t.Run(string(tc.refused.Type), func(t *testing.T) {
			d := newDatabase(t)
			ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
			d.append(t, joined("c", ann), posted("c", 1), foldtest.Deliver("c", 1, bob), tc.refused)
			d.fold(t)
			want := fmt.Sprintf("conversation_id: \"c\" is a room of which %q are members: %s", ann, tc.instead)
			if got := d.lines(t, `SELECT reason || ' ' || array_to_string(user_ids, ',') FROM badged.dead_letters`); !slices.Equal(got, []string{want + " " + ann}) {
				t.Fatalf("the dead letters are %q, want that %s", got, want)
			}
			if b := d.badge(t, ann); b.Total != 1 {
				t.Errorf("the member has %+v, want 1 message", b)
			}
			total := map[events.Type]int64{events.MessageDelivered: 2, events.MessageRecalled: 1, events.ConversationMarkedUnread: 1, events.ConversationLeft: 0}[tc.refused.Type]
			if b := d.badge(t, bob); b.Total != total {
				t.Errorf("who is no member has %+v, want total %d", b, total)
			}

			d.append(t, foldtest.Event("quit", events.RoomLeft, "c", nil, ann))
			d.fold(t)
			letters, err := deadletters.New(d.pool, d.log).List(t.Context(), 0, 10)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := deadletters.New(d.pool, d.log).Retry(t.Context(), letters[0].ID); err != nil {
				t.Fatal(err)
			}
			d.fold(t)
			if got := d.lines(t, `SELECT reason FROM badged.dead_letters`); len(got) > 0 {
				t.Errorf("the retried event is refused again: %q", got)
			}
			after := map[events.Type]int64{events.MessageDelivered: 1}[tc.refused.Type]
			if a, b := d.badge(t, ann), d.badge(t, bob); a.Total != after || b.Total != total {
				t.Errorf("after the retry the totals are %d and %d, want %d and %d", a.Total, b.Total, after, total)
			}
		})
	}
}

// An append folds a message to a room in all partitions, in the transaction that
// appends it. It refuses an event that would become a dead letter.
func TestAppendToARoom(t *testing.T) {
	d := newDatabase(t)
	p := d.newOwner(t, d.pool, 0, 1, 2, 3)
	var members []string
	for i := range foldtest.Partitions {
		members = append(members, foldtest.User(i, 0))
	}
	appendTo(t, p, nil, joined("c", members...))
	appendTo(t, p, nil, posted("c", 1))
	recalled := foldtest.Event("recalled", events.RoomRecalled, "c", foldtest.Seq(2))
	appendTo(t, p, nil, recalled, posted("c", 2), posted("c", 3))
	for _, id := range members {
		if b := d.badge(t, id); b.Total != 2 || b.Version != 4 {
			t.Errorf("%s has total %d at version %d, want 2 at 4", id, b.Total, b.Version)
		}
	}
	if got := d.lines(t, `SELECT count(*)::text || ' in ' || count(DISTINCT xmin::text) FROM badged.rooms`); !slices.Equal(got, []string{"4 in 1"}) {
		t.Errorf("the rows of the room were written by transactions as in %q, want one for the four", got)
	}

	wantRefused(t, p, 1, members[0], posted("c", 4), foldtest.Deliver("c", 4, members[0]))
	for _, part := range p.partitions { // appends fold again once the loops have looked
		drain(t, part)
	}
	appendTo(t, p, nil, posted("c", 5))
	for _, id := range members {
		if b := d.badge(t, id); b.Total != 3 {
			t.Errorf("after the refusal %s has total %d, want 3", id, b.Total)
		}
	}
	if got := d.lines(t, `SELECT reason FROM badged.dead_letters`); len(got) > 0 {
		t.Errorf("there are dead letters: %q", got)
	}
}

// wantRefused requires that p appends none of the events, since the one at index takes a
// room of a member for an ordinary conversation.
func wantRefused(t *testing.T, p *Projector, index int, member string, evs ...events.Event) {
	t.Helper()
	want := &events.BatchError{Events: []events.IndexedError{{Index: index, Err: &events.InvalidError{Fields: []events.FieldError{{
		Field: "conversation_id", Message: fmt.Sprintf("\"c\" is a room of which %q are members: publish room.posted instead of message.delivered", member),
	}}}}}}
	_, err := p.Append(t.Context(), evs...)
	var bad *events.BatchError
	if !errors.As(err, &bad) {
		t.Fatalf("the append ends with %v, want a refusal", err)
	}
	if diff := cmp.Diff(want, bad); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
}

// An owner whose cache is behind the tables, or that has not folded all of the log, refuses
// nothing: the room may have no such member any more.
func TestAppendRefusesByTheFence(t *testing.T) {
	left := foldtest.Event("left", events.RoomLeft, "c", nil, foldtest.User(0, 0))
	for name, leave := range map[string]func(*testing.T, *database){
		"another owner has folded that the member left": func(t *testing.T, d *database) {
			other := d.newOwner(t, d.pool, 0)
			appendTo(t, other, nil, left)
		},
		"the log says that the member left": func(t *testing.T, d *database) { d.append(t, left) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDatabase(t)
			p, ann := d.newOwner(t, d.pool, 0), foldtest.User(0, 0)
			appendTo(t, p, nil, joined("c", ann))
			wantRefused(t, p, 0, ann, foldtest.Deliver("c", 1, ann))
			drain(t, p.partitions[0])
			leave(t, d)
			appendTo(t, p, []int{0}, foldtest.Deliver("c", 1, ann))
			drain(t, p.partitions[0])
			if b := d.badge(t, ann); b.Total != 1 {
				t.Errorf("the total is %d, want the message that came after leaving", b.Total)
			}
			d.checkReplay(t, ann)
		})
	}
}

// A room that ends loses the chunks and marks above its end, in one batch with what comes
// behind it and later.
func TestRowsOfARoomThatEnds(t *testing.T) {
	for _, together := range []bool{true, false} {
		d := newDatabase(t)
		ann := foldtest.User(0, 0)
		posts := func(from, to int64, name string) (evs []events.Event) {
			for seq := from; seq <= to; seq++ {
				e := foldtest.Event(fmt.Sprint(name, seq), events.RoomPosted, "hall", foldtest.Seq(10*seq))
				if seq%10 == 0 {
					e.Data.SenderID = ann
				}
				evs = append(evs, e)
			}
			return evs
		}
		d.append(t, append([]events.Event{foldtest.Event("join", events.RoomJoined, "hall", nil, ann)}, posts(1, 400, "a")...)...)
		d.fold(t)
		for _, part := range [][]events.Event{
			{foldtest.Event("end", events.RoomReset, "hall", func(d *events.Data) { d.Seq = 1005 })},
			append(posts(90, 300, "b"), foldtest.Event("end again", events.RoomReset, "hall", func(d *events.Data) { d.Seq = 2505 })),
		} {
			d.append(t, part...)
			if !together {
				d.fold(t)
			}
		}
		d.fold(t)
		for sql, want := range map[string]string{
			`SELECT DISTINCT last_seq || ' ' || since || ' ' || closed_live || ' ' || (SELECT sum(live) || ' ' || max(bound) FROM badged.room_chunks AS c WHERE c.partition_id = r.partition_id) FROM badged.rooms AS r`: "2505 1920 192 192 1920",
			`SELECT count(*) || ' up to ' || max(seq) FROM badged.room_marks`: "25 up to 2500",
		} {
			if got := d.lines(t, sql); len(got) != 1 || got[0] != want {
				t.Errorf("in one batch %v: %s gives %q, want %q", together, sql, got, want)
			}
		}
	}
}

// Chunks that were stored and then merged have one row, and members below it the numbers.
func TestRowsOfMergedChunks(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	d.append(t, foldtest.Event("join", events.RoomJoined, "hall", nil, ann))
	for seq := int64(1); seq <= 500; seq++ {
		d.append(t, posted("hall", seq<<22))
		if seq%50 == 0 {
			d.fold(t)
		}
	}
	for p := range foldtest.Partitions {
		got := d.lines(t, fmt.Sprintf(`SELECT (SELECT count(*) || ' ' || sum(live) || ' ' || (max(bound) >> 22) FROM badged.room_chunks_p%02[1]d) || ' ' || closed_live || ' ' || (live_before IS NULL) FROM badged.rooms_p%02[1]d`, p))
		if want := "1 384 384 384 true"; got[0] != want {
			t.Errorf("the rows of partition %d are %s, want %s", p, got[0], want)
		}
	}
	if b := d.badge(t, ann); b.Total != 500 {
		t.Errorf("the total is %d, want 500", b.Total)
	}
}
