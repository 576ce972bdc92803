package outbound_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/notify/outbound"
)

// saying returns a message with a notification.
func saying(body string, e events.Event) events.Event {
	e.Data.Notification = events.Notification{Title: "Ben", Body: body, Data: map[string]string{"chat": e.Data.ConversationID}}
	return e
}

// tellAll tells devices of the app chat until nothing is due, and returns what each
// push said, a line each.
func (b *bench) tellAll(t *testing.T) (said []string) {
	t.Helper()
	for _, p := range b.drain(t, func(p outbound.DevicePush) { b.notifier.DeviceTold(p, 0) }) {
		line := fmt.Sprintf("%s: %d", p.DeviceID, p.Number)
		for _, a := range p.Alerts {
			line += fmt.Sprintf(" %q", a.Body)
		}
		said = append(said, line)
	}
	return said
}

// expectSaid fails unless the devices are told this, in any order.
func (b *bench) expectSaid(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, b.tellAll(t), unordered); diff != "" {
		t.Errorf("said (-want +got):\n%s", diff)
	}
}

func TestAlertComesWithTheNumber(t *testing.T) {
	b := newBench(t)
	ada := foldtest.User(0, 0)
	put(t, b.targets, phone(ada, "phone"))
	put(t, b.targets, phone(ada, "tablet"))
	b.expectSaid(t, "phone: 0", "tablet: 0")

	b.Happen(t, foldtest.Deliver("chat", 1, ada), saying("Lunch?", foldtest.Deliver("chat", 2, ada)))
	b.expectSaid(t, `phone: 2 "Lunch?"`, `tablet: 2 "Lunch?"`)

	// The publisher tries again, with the same event and with another.
	b.Append(t, saying("Lunch?", foldtest.Deliver("chat", 2, ada)))
	b.Happen(t, foldtest.Named("again", saying("Lunch?", foldtest.Deliver("chat", 2, ada))))
	b.expectSaid(t)
}

// What is read, recalled or muted before it was pushed is not.
func TestAlertOfWhatDoesNotCountIsDropped(t *testing.T) {
	b := newBench(t)
	ada := foldtest.User(0, 0)
	for _, c := range []struct {
		name string
		then events.Event
		want []string
	}{
		{"unread", foldtest.Event("other", events.ConversationRead, "elsewhere", foldtest.UpTo(1), ada), []string{`phone: 1 "hi"`}},
		{"read", foldtest.Event("read", events.ConversationRead, "read", foldtest.UpTo(1), ada), nil},
		{"recalled", foldtest.Event("recall", events.MessageRecalled, "recalled", foldtest.Seq(1), ada), nil},
		{"muted", foldtest.Event("mute", events.ConversationLevelSet, "muted", foldtest.Level(events.LevelNone), ada), nil},
		{"for mentions", foldtest.Event("level", events.ConversationLevelSet, "for mentions", foldtest.Level(events.LevelMentions), ada), nil},
		{"left", foldtest.Event("leave", events.ConversationLeft, "left", nil, ada), nil},
	} {
		put(t, b.targets, phone(ada, "phone"))
		b.tellAll(t)
		b.Append(t, saying("hi", foldtest.Deliver(c.name, 1, ada)))
		b.Happen(t, c.then)
		if diff := cmp.Diff(c.want, b.tellAll(t), unordered); diff != "" {
			t.Errorf("%s: said (-want +got):\n%s", c.name, diff)
		}
	}
	b.Happen(t, saying("you", foldtest.Mentioning(foldtest.Deliver("for mentions", 2, ada))))
	b.expectSaid(t, `phone: 2 "you"`)
}

// Alerts that were told before one failed are not told again.
func TestFailureKeepsWhatWasTold(t *testing.T) {
	b := newBench(t)
	ada := foldtest.User(0, 0)
	put(t, b.targets, phone(ada, "phone"))
	b.expectSaid(t, "phone: 0")
	for seq := range int64(3) {
		b.Append(t, saying(fmt.Sprint("message ", seq+1), foldtest.Deliver("chat", seq+1, ada)))
	}
	b.Fold(t)
	projectortest.Until(t, "three alerts", func() bool { return len(b.Lines(t, `SELECT seq::text FROM badged.alerts`)) == 3 })
	p := b.next(t)
	if len(p.Alerts) != 3 {
		t.Fatalf("alerts: %+v", p.Alerts)
	}
	b.notifier.DeviceRetry(p, 2, 0, "the vendor is down")
	again := b.next(t)
	if len(again.Alerts) != 1 || again.Alerts[0].Body != "message 3" || again.Attempts != 1 || again.Told != nil {
		t.Errorf("after a failure: %+v", again)
	}
	if d := device(t, b.targets, ada, "phone"); *d.Told != 3 || d.Attempts != 1 || *d.LastError != "the vendor is down" {
		t.Errorf("after a failure: %+v", d)
	}
	b.notifier.DeviceTold(again, 0)
	b.expectSaid(t)
}

func TestSenderIsNotNotified(t *testing.T) {
	b := newBench(t)
	ada, ben := foldtest.User(0, 0), foldtest.User(0, 1)
	put(t, b.targets, phone(ada, "phone"))
	put(t, b.targets, phone(ben, "tablet"))
	b.tellAll(t)
	lunch := saying("Lunch?", foldtest.Deliver("chat", 1, ada, ben))
	lunch.Data.SenderID = ada
	b.Happen(t, lunch)
	b.expectSaid(t, `tablet: 1 "Lunch?"`)
}

func post(room string, seq int64, change func(*events.Data)) events.Event {
	e := foldtest.Event(fmt.Sprint(room, "/", seq), events.RoomPosted, room, foldtest.Seq(seq))
	if change != nil {
		change(&e.Data)
	}
	return e
}

func TestRoomTellsItsMembers(t *testing.T) {
	b := newBench(t)
	ada, ben, eve := foldtest.User(0, 0), foldtest.User(0, 1), foldtest.User(1, 0)
	for _, user := range []string{ada, ben, eve} {
		put(t, b.targets, phone(user, user))
	}
	b.Happen(t, foldtest.Event("join", events.RoomJoined, "hall", nil, ada, ben, eve))
	b.tellAll(t)

	b.Happen(t, saying("Welcome", post("hall", 1, func(d *events.Data) { d.SenderID = ben })))
	b.expectSaid(t, ada+`: 1 "Welcome"`, eve+`: 1 "Welcome"`)
	b.Happen(t, post("hall", 2, nil))
	b.expectSaid(t, ada+": 2", ben+": 1", eve+": 2")

	b.Happen(t, foldtest.Event("mute", events.ConversationLevelSet, "hall", foldtest.Level(events.LevelMentions), ada, eve))
	b.tellAll(t)
	b.Happen(t, saying("Ada!", post("hall", 3, func(d *events.Data) { d.MentionedUserIDs = []string{ada, "stranger"} })))
	b.expectSaid(t, ada+`: 1 "Ada!"`, ben+`: 2 "Ada!"`)
	b.Happen(t, saying("All!", post("hall", 4, func(d *events.Data) { d.MentionsAll = true })))
	b.expectSaid(t, ada+`: 2 "All!"`, ben+`: 3 "All!"`, eve+`: 1 "All!"`)
	b.Happen(t, foldtest.Event("recall", events.RoomRecalled, "hall", foldtest.Seq(4)))
	b.expectSaid(t, ada+": 1", ben+": 2", eve+": 0")

	b.Happen(t, foldtest.Event("direct", events.ConversationLevelSet, "hall", foldtest.Level(events.LevelDirectMentions), ada, eve))
	b.tellAll(t)
	b.Happen(t, saying("All?", post("hall", 5, func(d *events.Data) { d.MentionsAll = true })))
	b.expectSaid(t, ben+`: 3 "All?"`)
	b.Happen(t, saying("Eve and all!", post("hall", 6, func(d *events.Data) { d.MentionsAll, d.MentionedUserIDs = true, []string{eve} })))
	b.expectSaid(t, ben+`: 4 "Eve and all!"`, eve+`: 1 "Eve and all!"`)
	projectortest.Until(t, "no rounds", func() bool {
		return len(b.Lines(t, `SELECT conversation_id FROM badged.room_rounds UNION ALL SELECT conversation_id FROM badged.room_alerts`)) == 0
	})
}

// A room with more members than one transaction takes is told page by page, and not
// again until the interval is over.
func TestLargeRoomIsToldInRounds(t *testing.T) {
	b := newBench(t)
	members := inPartition(0, outbound.MaxPromptMembers+500)
	ada, eve := members[0], members[len(members)-1]
	b.putCRM(t)
	for _, m := range members {
		put(t, b.targets, phone(m, m))
	}
	b.Happen(t, foldtest.Event("join", events.RoomJoined, "hall", nil, members...))
	b.tellAll(t)
	b.Exec(t, `DELETE FROM badged.webhook_queue`)

	b.Happen(t, post("hall", 1, nil))
	if said := b.tellAll(t); len(said) != len(members) {
		t.Errorf("%d of %d members are told", len(said), len(members))
	}
	c := b.nextCall(t, "crm")
	if c.Type != outbound.RoomChanged || c.Subject != "hall" || c.Room == nil || c.Room.LastSeq != 1 || c.Room.Members != int64(len(members)) || c.Room.Epoch == "" || c.Badge != nil {
		t.Errorf("the call of the room: %+v, %+v", c, c.Room)
	}
	c.NewState = []byte(`{"last_seq": 1}`)
	b.notifier.CallTold(c)

	b.Happen(t, post("hall", 2, func(d *events.Data) { d.MentionedUserIDs = []string{eve} }))
	projectortest.Until(t, "the mentioned member to be due", func() bool { return device(t, b.targets, eve, eve).Due != nil })
	if d := device(t, b.targets, ada, ada); d.Due != nil {
		t.Error("a member is told twice within the interval")
	}
	// A minute later.
	b.Exec(t, `UPDATE badged.room_rounds SET due = clock_timestamp()`)
	projectortest.Until(t, "the next round", func() bool { return device(t, b.targets, ada, ada).Due != nil })
}

// inPartition returns n users of a partition.
func inPartition(partition, n int) (all []string) {
	for i := 0; len(all) < n; i++ {
		if u := fmt.Sprint("member-", i); events.PartitionOf(u, foldtest.Partitions) == partition {
			all = append(all, u)
		}
	}
	return all
}

// Deleting old alerts reads those that are old, however many others are shown or wait.
func TestOldAlertsAreFoundByTheirIndex(t *testing.T) {
	b := newBench(t)
	ada := foldtest.User(0, 0)
	put(t, b.targets, phone(ada, "phone"))
	b.Exec(t, `INSERT INTO badged.alerts_p00 (partition_id, user_id, device_id, conversation_id, seq, mentions, named, title, body, queued_at, settled_at, sent_at)
SELECT 0, $1, 'phone', 'chat', n, false, false, '', '', now() - n * interval '1 minute', now(), CASE WHEN n % 10 > 0 THEN now() END FROM generate_series(1, 20000) AS n`, ada)
	b.Exec(t, `ANALYZE badged.alerts_p00`)
	plan := strings.Join(b.Lines(t, `EXPLAIN (ANALYZE, COSTS off, TIMING off) `+outbound.DeleteOldAlerts(0), "1 day", "7 days", time.Now(), 1000), "\n")
	if strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Removed by Filter") {
		t.Errorf("the plan is\n%s", plan)
	}
	// Those that are shown for a week, and one in ten that is a day old.
	if got := b.Lines(t, `SELECT (count(*) BETWEEN 20000 - 1002 AND 20000 - 998)::text FROM badged.alerts_p00`); got[0] != "true" {
		t.Errorf("left are %s", b.Lines(t, `SELECT count(*)::text FROM badged.alerts_p00`))
	}
}
