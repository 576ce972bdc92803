package demo

import (
	"slices"
	"testing"

	"github.com/badged/badged/events"
)

func summaries(entries []entry) []string {
	var all []string
	for _, e := range entries {
		all = append(all, e.Summary)
	}
	return all
}

func TestTailShowsAGroupMessageOnce(t *testing.T) {
	f := newFixture(t)
	end := &tail{pool: f.pool, partitions: partitions}
	read(t, end, 3) // the levels set at the start
	f.mustSend(t, "design-crew", "ada", "Morning!")
	used := map[int]bool{}
	for _, userID := range []string{"ben", "chloe", "dev"} {
		used[f.log.PartitionOf(userID)] = true
	}
	if len(used) < 2 {
		t.Fatal("the group is in one partition: the test proves nothing")
	}
	f.mustSend(t, "design-crew", "ben", "Hello")
	entries := read(t, end, 3)
	got, want := summaries(entries), []string{"Ada wrote message 1 in Design crew", "Ben read Design crew up to 1", "Ben wrote message 2 in Design crew"}
	// Events of one transaction have no order across partitions.
	if len(got) == 3 && got[1] > got[2] {
		want[1], want[2] = want[2], want[1]
	}
	if !slices.Equal(got, want) {
		t.Errorf("entries are %q, want %q", got, want)
	}
	first := entries[0]
	if first.Type != string(events.MessageDelivered) || first.Source != eventSource || first.ID != "design-crew/1" || first.Time.IsZero() || first.Position == "" ||
		!slices.Equal(slices.Sorted(slices.Values(first.Users)), []string{"ben", "chloe", "dev"}) {
		t.Errorf("the first entry is %+v", first)
	}
	if more, err := end.next(t.Context()); err != nil || len(more) > 0 {
		t.Errorf("nothing was appended, and there is %v, %v", summaries(more), err)
	}
}

// The rows of one event are in different transactions after the projector has moved one of them.
// An event that is published again is another entry.
func TestTailShowsAMovedGroupMessageOnce(t *testing.T) {
	f := newFixture(t)
	end := &tail{pool: f.pool, partitions: partitions}
	read(t, end, 3)
	e := events.Event{ID: "1", Source: eventSource, Type: events.MessageDelivered, Data: events.Data{
		ConversationID: "design-crew", Seq: 1, SenderID: "ada", UserIDs: []string{"ben", "chloe", "dev"},
	}}
	appendEvent := func() {
		if _, err := f.log.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	appendEvent()
	f.exec(t, `UPDATE badged.`+events.Topic(f.log.PartitionOf("ben"))+` SET transaction_id = pg_current_xact_id()`)
	appendEvent()
	entries := read(t, end, 2)
	for _, e := range entries {
		if len(e.Users) != 3 {
			t.Errorf("an entry has the users %v", e.Users)
		}
	}
}

// An entry has the people of an event and some of its other users. The entry of an event about a
// room has the people in the room.
func TestTailShowsAFewOfManyUsers(t *testing.T) {
	f := newFixture(t)
	end := &tail{pool: f.pool, partitions: partitions}
	read(t, end, 3)
	if _, _, err := f.store.resize(t.Context(), 2000, stepSize); err != nil {
		t.Fatal(err)
	}
	f.mustSend(t, townHall, "ada", "Hello")
	entries := read(t, end, 2)
	if e := entries[0]; e.Summary != "1997 users joined Town hall" || len(e.Users) != othersShown || e.Others != 1997-othersShown {
		t.Errorf("the entry is %+v", e)
	}
	if e := entries[1]; e.Summary != "Ada wrote message 1 in Town hall" || !slices.Equal(e.Users, []string{"ben"}) || e.Others != 0 {
		t.Errorf("the entry is %+v", e)
	}
}

func TestTailStartsNearTheEnd(t *testing.T) {
	f := newFixture(t)
	for range 40 {
		f.mustSend(t, "ada-ben", "ada", "Got a minute?")
	}
	f.mustSend(t, "ada-ben", "ada", "Thanks")
	entries := read(t, &tail{pool: f.pool, partitions: partitions}, 1)
	if n := len(entries); n > firstEntries {
		t.Errorf("%d entries at first, want at most %d", n, firstEntries)
	}
	if !slices.ContainsFunc(entries[len(entries)-2:], func(e entry) bool { return e.Summary == "Ada wrote message 41 in Ada and Ben" }) {
		t.Errorf("they end with %q", summaries(entries[len(entries)-2:]))
	}
}

func TestTailShowsInvalidEvents(t *testing.T) {
	f := newFixture(t)
	end := &tail{pool: f.pool, partitions: partitions}
	read(t, end, 3)
	f.exec(t, `INSERT INTO badged.`+events.Topic(0)+` (transaction_id, uuid, payload)
		VALUES (pg_current_xact_id(), gen_random_uuid(), '{"id":"x"}'), (pg_current_xact_id(), gen_random_uuid(), '7')`)
	for _, e := range read(t, end, 2) {
		if e.Type != "" || e.Position == "" || e.Summary[:16] != "not understood: " {
			t.Errorf("entry is %+v", e)
		}
	}
}

// Entries do not wait for open transactions. Events of these transactions appear after the
// commit, and a single time, although the projector moves them.
func TestTailSkipsNothingThatCommitsLate(t *testing.T) {
	f := newFixture(t)
	end := &tail{pool: f.pool, partitions: partitions}
	read(t, end, 3)
	early, err := f.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = early.Rollback(t.Context()) }() // no effect after the commit
	if _, err := f.log.Publish(t.Context(), early, level("ada", "lunch", events.LevelNone)); err != nil {
		t.Fatal(err)
	}
	next := func(want ...string) {
		t.Helper()
		entries, err := end.next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := summaries(entries); !slices.Equal(got, want) {
			t.Errorf("entries are %q, want %q", got, want)
		}
	}
	f.mustSend(t, "ada-ben", "ada", "Got a minute?")
	next("Ada wrote message 1 in Ada and Ben")
	next()
	if err := early.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	next("Ada set Lunch & coffee to none")
	f.mustSend(t, "chloe-dev", "chloe", "Now?")
	next("Chloé wrote message 1 in Chloé and Dev")
	log := `badged.` + events.Topic(f.log.PartitionOf("ada"))
	f.exec(t, `UPDATE `+log+` SET transaction_id = pg_current_xact_id()`)
	next()
}

func TestTailOfADatabaseThatIsAway(t *testing.T) {
	f := newFixture(t)
	f.pool.Close()
	if entries, err := (&tail{pool: f.pool, partitions: partitions}).next(t.Context()); err == nil {
		t.Errorf("entries are %v", entries)
	}
}

func TestSummaries(t *testing.T) {
	users := []string{"ada", "ben"}
	for _, test := range []struct {
		event events.Event
		want  string
	}{
		{events.Event{Type: events.MessageDelivered, Data: events.Data{Seq: 7, ConversationID: "lunch", UserIDs: users}}, "Message 7 in Lunch & coffee"},
		{events.Event{Type: events.ConversationRead, Data: events.Data{UpToSeq: 7, ConversationID: "lunch", UserIDs: users}}, "Ada, Ben read Lunch & coffee up to 7"},
		{events.Event{Type: events.MessageRecalled, Data: events.Data{Seq: 7, ConversationID: "lunch", UserIDs: users}}, "Message 7 in Lunch & coffee recalled"},
		{events.Event{Type: events.ConversationLevelSet, Data: events.Data{Level: events.LevelNone, ConversationID: "lunch", UserIDs: users}}, "Ada, Ben set Lunch & coffee to none"},
		{events.Event{Type: events.ConversationMarkedUnread, Data: events.Data{ConversationID: "lunch", UserIDs: users}}, "Ada, Ben marked Lunch & coffee unread"},
		{events.Event{Type: events.CategoryLevelSet, Data: events.Data{Level: events.LevelNone, Category: "acme", UserIDs: users}}, "Ada, Ben set acme to none"},
		{events.Event{Type: events.UserLeftAll, Data: events.Data{Category: "acme", UserIDs: users}}, "Ada, Ben left all of acme"},
		{events.Event{Type: events.ConversationSeen, Data: events.Data{UpToSeq: 7, ConversationID: "lunch", UserIDs: users}}, "Ada, Ben saw Lunch & coffee up to 7"},
		{events.Event{Type: events.UserSeenAll, Data: events.Data{Category: "bell", UserIDs: users}}, "Ada, Ben saw all of bell"},
		{events.Event{Type: events.UserSeenAll, Data: events.Data{UserIDs: users}}, "Ada, Ben saw everything"},
		{events.Event{Type: events.ConversationLeft, Data: events.Data{ConversationID: "lunch", UserIDs: users}}, "Ada, Ben left Lunch & coffee"},
		{events.Event{Type: events.UserReadAll, Data: events.Data{UserIDs: users}}, "Ada, Ben read everything"},
		{events.Event{Type: events.UserReadAll, Data: events.Data{Category: "updates", UserIDs: users}}, "Ada, Ben read all of updates"},
		{events.Event{Type: events.RoomPosted, Data: events.Data{Seq: 7, ConversationID: townHall, SenderID: "guest-12"}}, "Guest 12 wrote message 7 in Town hall"},
		{events.Event{Type: events.RoomRecalled, Data: events.Data{Seq: 7, ConversationID: townHall}}, "Message 7 in Town hall recalled"},
		{events.Event{Type: events.RoomJoined, Data: events.Data{ConversationID: townHall, UserIDs: users}}, "Ada, Ben joined Town hall"},
		{events.Event{Type: events.RoomLeft, Data: events.Data{ConversationID: townHall, UserIDs: guestIDs(0, 6)}}, "6 users left Town hall"},
		{events.Event{Type: events.ConversationExpired, Data: events.Data{UpToSeq: 7, ConversationID: "lunch", UserIDs: users}}, "Lunch & coffee up to 7 expired for Ada, Ben"},
	} {
		if got := summarize(&test.event); got != test.want {
			t.Errorf("%s: %q, want %q", test.event.Type, got, test.want)
		}
	}
}
