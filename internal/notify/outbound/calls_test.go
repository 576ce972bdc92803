package outbound_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/notify/outbound"
	"github.com/badged/badged/internal/user/erasure"
	"github.com/badged/badged/projector"
)

// putCRM registers a webhook crm that is told of badges.
func (b *bench) putCRM(t *testing.T) outbound.Webhook {
	t.Helper()
	return putWebhook(t, b.targets, "crm", outbound.BadgeChanged)
}

// nextCalls takes up to limit calls of a webhook.
func (b *bench) nextCalls(t *testing.T, webhook string, limit int) []outbound.Call {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	due, err := b.notifier.NextCalls(ctx, webhook, limit)
	if err != nil {
		t.Fatalf("waited in vain for a call of %s: %v", webhook, err)
	}
	return due
}

// nextCall takes the next call of a webhook.
func (b *bench) nextCall(t *testing.T, webhook string) outbound.Call {
	t.Helper()
	return b.nextCalls(t, webhook, 1)[0]
}

// awaitTold waits until the webhook crm was told of everything that is folded, but for some
// rows of its queue.
func (b *bench) awaitTold(t *testing.T, queued ...string) {
	t.Helper()
	projectortest.Until(t, "the webhook to be told", func() bool {
		due, err := b.targets.DueEvents(t.Context(), "crm")
		return err == nil && due["crm"] == 0 && slices.Equal(queued, b.queue(t))
	})
}

// queue returns the rows of the queue of webhooks.
func (b *bench) queue(t *testing.T) []string {
	t.Helper()
	return b.Lines(t, `SELECT format('%s %s, %s attempts', type, subject, attempts) FROM badged.webhook_queue ORDER BY 1`)
}

// tell lets the endpoint accept calls of crm until something holds.
func (b *bench) tell(t *testing.T, what string, ok func(told []string) bool) (told []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !ok(told) {
		due, err := b.notifier.NextCalls(ctx, "crm", 100)
		if err != nil {
			t.Fatalf("waited in vain for %s; told were %q", what, told)
		}
		for _, c := range due {
			told = append(told, c.Subject)
			b.notifier.CallTold(c)
		}
	}
	return told
}

func TestWebhookIsToldWhatChanged(t *testing.T) {
	b := newBench(t)
	ada := foldtest.User(0, 0)
	b.Happen(t, foldtest.Deliver("chat", 1, ada))
	b.putCRM(t) // what was folded before is not told
	b.Happen(t, foldtest.Deliver("chat", 2, ada))
	first := b.nextCall(t, "crm")
	if first.Type != outbound.BadgeChanged || first.Subject != ada || first.Badge.Total != 2 {
		t.Fatalf("the first call: %+v", first)
	}
	b.Happen(t, foldtest.Deliver("chat", 3, ada), foldtest.Deliver("chat", 4, ada))
	b.notifier.CallTold(first)
	second := b.nextCall(t, "crm")
	if second.Badge.Total != 4 {
		t.Fatalf("the second call: %+v", second)
	}
	b.notifier.CallRetry(second, 0, false)
	if second = b.nextCall(t, "crm"); second.Attempts != 1 || second.Badge.Total != 4 {
		t.Errorf("after a failure: %+v", second)
	}
	b.notifier.CallTold(second)
	b.awaitTold(t)
	b.awaitQuiet(t)
}

// While an endpoint is away its position stands still, and nothing is stored.
func TestNothingIsStoredWhileAnEndpointIsAway(t *testing.T) {
	b := newBench(t)
	b.putCRM(t)
	users := inPartition(0, 20)
	writes := func() []string {
		return b.Lines(t, `SELECT sum(n_tup_ins + n_tup_upd)::text FROM pg_stat_xact_user_tables WHERE relname ~ 'webhook_queue'
UNION ALL SELECT count(*)::text FROM badged.webhook_queue`)
	}
	before := writes()
	for i := range int64(5) {
		b.Happen(t, foldtest.Deliver(fmt.Sprint("chat ", i), 1, users...))
		c := b.nextCall(t, "crm")
		b.notifier.CallRetry(c, time.Hour, true)
	}
	if diff := cmp.Diff(before, writes()); diff != "" {
		t.Errorf("rows were written: %s", diff)
	}
	if due, err := b.targets.DueEvents(t.Context(), "crm"); err != nil || due["crm"] != 5 {
		t.Errorf("the webhook is behind by %v, %v, want 5", due, err)
	}
	// An operator puts the webhook again: all is told.
	b.notifier.CallsRenewed("crm")
	told := b.tell(t, "all users", func(told []string) bool { return len(sorted(told)) == len(users) })
	if diff := cmp.Diff(sorted(users), sorted(told)); diff != "" {
		t.Error(diff)
	}
	b.tellRest(t)
}

// tellRest lets the endpoint accept calls of crm until it was told all.
func (b *bench) tellRest(t *testing.T, queued ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			due, err := b.notifier.NextCalls(ctx, "crm", 100)
			if err != nil {
				return
			}
			for _, c := range due {
				b.notifier.CallTold(c)
			}
		}
	}()
	b.awaitTold(t, queued...)
	cancel()
	<-ended
}

func sorted(texts []string) []string { return slices.Compact(slices.Sorted(slices.Values(texts))) }

// What an endpoint refuses while it accepts other calls goes into the queue, so that the
// position moves on.
func TestRefusedSubjectHoldsUpNoOther(t *testing.T) {
	b := newBench(t)
	b.putCRM(t)
	ada, ben := foldtest.User(0, 0), foldtest.User(0, 1)
	b.Happen(t, foldtest.Deliver("chat", 1, ada))
	refused := b.nextCall(t, "crm")
	b.notifier.CallRetry(refused, time.Hour, true)
	b.Happen(t, foldtest.Deliver("other", 1, ben))
	if c := b.nextCall(t, "crm"); c.Subject != ben {
		t.Fatalf("behind what was refused is %+v", c)
	} else {
		if due, err := b.targets.DueEvents(t.Context(), "crm"); err != nil || due["crm"] != 2 {
			t.Errorf("before a call succeeds the webhook is behind by %v, %v, want 2", due, err)
		}
		b.notifier.CallsAccepted("crm")
		b.notifier.CallTold(c)
	}
	b.awaitTold(t, "badge.changed "+ada+", 1 attempts")
	b.Exec(t, `UPDATE badged.webhook_queue SET due = clock_timestamp()`)
	again := b.nextCall(t, "crm")
	if again.Subject != ada || again.Attempts != 1 || again.Badge.Total != 1 {
		t.Errorf("what was refused is told as %+v", again)
	}
	b.notifier.CallRetry(again, 0, true)
	if again = b.nextCall(t, "crm"); again.Attempts != 2 {
		t.Errorf("after another failure it had %d attempts", again.Attempts)
	}
	b.notifier.CallTold(again)
	b.awaitTold(t)
}

// A subject that was refused in each of several pages is one row of the queue.
func TestSubjectRefusedInSeveralPages(t *testing.T) {
	b := newBench(t)
	b.putCRM(t)
	ada := foldtest.User(0, 0)
	for seq := range 2 {
		b.Happen(t, foldtest.Deliver("chat", int64(seq+1), ada))
		b.notifier.CallRetry(b.nextCall(t, "crm"), time.Hour, true)
	}
	b.notifier.CallsAccepted("crm")
	b.awaitTold(t, "badge.changed "+ada+", 1 attempts")
}

// What a killed process has told, but whose position it has not moved, is told again.
func TestToldPageIsToldAgainAfterACrash(t *testing.T) {
	b := newBench(t)
	b.putCRM(t)
	users := inPartition(0, 3)
	b.Happen(t, foldtest.Deliver("chat", 1, users...))
	first := b.nextCalls(t, "crm", 3)
	for _, c := range first[:2] {
		b.notifier.CallTold(c)
	}
	b.start(t, nil)
	told := b.tell(t, "the page", func(told []string) bool { return len(sorted(told)) == 3 })
	if diff := cmp.Diff(sorted(users), sorted(told)); diff != "" {
		t.Error(diff)
	}
	b.tellRest(t)
}

// Two notifiers share the partitions; a position has one that moves it.
func TestTwoNotifiersTellAll(t *testing.T) {
	b := newBench(t)
	b.putCRM(t)
	other := &bench{Database: b.Database, targets: b.targets}
	other.start(t, nil)
	var users []string
	for p := range foldtest.Partitions {
		users = append(users, foldtest.User(p, 0), foldtest.User(p, 1))
	}
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan []string, 2)
	for _, n := range []*outbound.Notifier{b.notifier, other.notifier} {
		go func() {
			var all []string
			for {
				due, err := n.NextCalls(ctx, "crm", 100)
				if err != nil {
					told <- all
					return
				}
				for _, c := range due {
					all = append(all, c.Subject)
					n.CallTold(c)
				}
			}
		}()
	}
	for i := range int64(20) {
		b.Happen(t, foldtest.Deliver("chat", i+1, users...))
	}
	b.awaitTold(t)
	cancel()
	if diff := cmp.Diff(sorted(users), sorted(append(<-told, <-told...))); diff != "" {
		t.Error(diff)
	}
}

// A webhook that was behind is told of each user once, however many pages changed the user.
func TestWebhookCatchesUp(t *testing.T) {
	b := newBench(t)
	b.start(t, func(cfg *outbound.NotifierConfig) { cfg.PageEvents = 7 })
	b.putCRM(t)
	users := inPartition(0, 5)
	for i := range int64(100) {
		b.Append(t, foldtest.Deliver("chat", i+1, users...))
	}
	b.Fold(t)
	b.tellRest(t)
	if diff := cmp.Diff([]string{"200"}, b.Lines(t, `SELECT (f.folded + o.folded)::text FROM badged.events_p00_offsets AS f, badged.events_p00_offsets AS o
WHERE f.consumer_group = $1 AND o.consumer_group = 'badged webhook crm'`, events.ProjectorGroup)); diff != "" {
		t.Error(diff)
	}
}

// Members of a room are told one by one, those of a large one by a call for the room, at most
// once in an interval.
func TestWebhookIsToldOfRooms(t *testing.T) {
	b := newBench(t)
	b.start(t, func(cfg *outbound.NotifierConfig) { cfg.RoomInterval = time.Hour })
	b.putCRM(t)
	members := inPartition(0, outbound.MaxToldMembers+1)
	b.Happen(t, foldtest.Event("join", events.RoomJoined, "den", nil, members[:3]...), foldtest.Event("join too", events.RoomJoined, "hall", nil, members...))
	b.tellRest(t)
	b.Happen(t, post("den", 1, nil))
	told := b.tell(t, "the members", func(told []string) bool { return len(told) >= 3 })
	if diff := cmp.Diff(sorted(members[:3]), sorted(told)); diff != "" {
		t.Error(diff)
	}
	for i := range int64(3) {
		b.Happen(t, post("hall", 1+i, nil))
		if i == 0 {
			c := b.nextCall(t, "crm")
			if c.Type != outbound.RoomChanged || c.Subject != "hall" || c.Room.LastSeq != 1 {
				t.Errorf("the call of the room: %+v", c)
			}
			b.notifier.CallTold(c)
		}
	}
	b.tellRest(t, "room.changed hall, 0 attempts")
	b.Exec(t, `UPDATE badged.webhook_queue SET due = clock_timestamp()`)
	if c := b.nextCall(t, "crm"); c.Room == nil || c.Room.LastSeq != 3 {
		t.Errorf("the next call of the room: %+v", c)
	}
}

// A webhook that is disabled has no position; a deleted one neither. It begins at the present
// when it becomes active again.
func TestPositionsOfWebhooks(t *testing.T) {
	b := newBench(t)
	crm := b.putCRM(t)
	positions := func() string {
		return b.Lines(t, `SELECT count(*)::text FROM badged.tail_partitions WHERE consumer_group = 'badged webhook crm'`)[0] +
			b.Lines(t, `SELECT count(*)::text FROM badged.events_p00_offsets WHERE consumer_group LIKE 'badged webhook %'`)[0]
	}
	some := fmt.Sprint(foldtest.Partitions, "1")
	if got := positions(); got != some {
		t.Errorf("a new webhook has positions in %s partitions, want %s", got, some)
	}
	set := func(state outbound.State, types ...string) {
		t.Helper()
		stored, err := b.targets.Webhook(t.Context(), "crm")
		if err != nil {
			t.Fatal(err)
		}
		crm.State, crm.Events = state, types
		if err := b.targets.PutWebhook(t.Context(), crm, stored.Generation); err != nil {
			t.Fatal(err)
		}
	}
	set(outbound.Disabled, outbound.BadgeChanged)
	if got := positions(); got != "00" {
		t.Errorf("a disabled webhook has positions in %s partitions", got)
	}
	b.Happen(t, foldtest.Deliver("chat", 1, foldtest.User(0, 0)))
	set(outbound.Paused, outbound.BadgeChanged)
	b.Happen(t, foldtest.Deliver("chat", 1, foldtest.User(0, 1)))
	set(outbound.Active, outbound.BadgeChanged)
	if c := b.nextCall(t, "crm"); c.Subject != foldtest.User(0, 1) {
		t.Errorf("told is %s, who changed while the webhook was disabled", c.Subject)
	}
	set(outbound.Active, outbound.DriftFound)
	if got := positions(); got != "00" {
		t.Errorf("a webhook that is not told of users has positions in %s partitions", got)
	}
	set(outbound.Active, outbound.UnreadReminder)
	// A partition that was elsewhere may lack it, and have what was deleted.
	b.Exec(t, `UPDATE badged.events_p00_offsets SET consumer_group = 'badged webhook gone' WHERE consumer_group = 'badged webhook crm'`)
	projectortest.Until(t, "the positions to be settled", func() bool {
		return cmp.Equal([]string{"badged webhook crm"}, b.Lines(t, `SELECT consumer_group FROM badged.events_p00_offsets WHERE consumer_group LIKE 'badged webhook %'`))
	})
	if err := b.targets.DeleteWebhook(t.Context(), "crm"); err != nil {
		t.Fatal(err)
	}
	if got := positions(); got != "00" {
		t.Errorf("a deleted webhook has positions in %s partitions", got)
	}
}

// What changes all badges without the log is told of all users, and stores one row.
func TestNewRevisionIsToldOfAllUsers(t *testing.T) {
	b := newBench(t)
	users := inPartition(0, 3)
	b.Happen(t, foldtest.Deliver("chat", 1, users...))
	b.putCRM(t)
	b.Exec(t, `UPDATE badged.partitions SET epoch = 'new' WHERE partition_id = 0`)
	told := b.tell(t, "all users", func(told []string) bool { return len(told) >= 3 })
	if diff := cmp.Diff(sorted(users), sorted(told)); diff != "" {
		t.Error(diff)
	}
	projectortest.Until(t, "the revision to be stored", func() bool {
		return len(b.Lines(t, `SELECT 'told' FROM badged.tail_partitions AS t, badged.events_p00_offsets AS f
WHERE t.partition_id = 0 AND f.consumer_group = $1 AND t.revision = f.revision AND t.after_user IS NULL`, events.ProjectorGroup)) == 1
	})
	if queued := b.queue(t); len(queued) > 0 {
		t.Errorf("the queue has %q", queued)
	}
}

// Since when something has been unread is stored once, not with each message.
func TestRemindersAreStoredWhenTheyChange(t *testing.T) {
	b := newBench(t)
	putWebhook(t, b.targets, "crm", outbound.UnreadReminder)
	ada := foldtest.User(0, 0)
	deliver := func(seq int64, tell string, same bool) outbound.Call {
		t.Helper()
		b.Happen(t, foldtest.Deliver("chat", seq, ada))
		c := b.nextCall(t, "crm")
		if c.Type != outbound.UnreadReminder || c.Subject != ada {
			t.Fatalf("due is %+v", c)
		}
		taken := c
		c.NewState, c.Unchanged = []byte(tell), same
		c.RepeatAfter = time.Hour
		b.notifier.CallTold(c)
		return taken
	}
	deliver(1, `{"chat": 1}`, false)
	b.awaitTold(t, "unread.reminder "+ada+", 0 attempts")
	if c := deliver(2, `{"chat": 1}`, true); string(c.SentState) != `{"chat": 1}` {
		t.Errorf("stored is %s", c.SentState)
	}
	b.awaitTold(t, "unread.reminder "+ada+", 0 attempts")
	if changes := b.Lines(t, `SELECT changes::text FROM badged.webhook_queue`); !cmp.Equal([]string{"1"}, changes) {
		t.Errorf("the row was stored %s times", changes)
	}
	deliver(3, "", false)
	b.awaitTold(t)
}

// What changes some users without the log is told of these users only, and erasing a user
// tells nothing of the others.
func TestOnlyUsersWhoChangedWithoutTheLogAreTold(t *testing.T) {
	b := newBench(t)
	users := inPartition(0, 3)
	b.Happen(t, foldtest.Deliver("chat", 1, users...))
	b.putCRM(t)
	put(t, b.targets, phone(users[1], "phone"))
	b.expectSaid(t, "phone: 1")
	b.StopFolding()
	if _, err := erasure.Erase(t.Context(), erasure.Config{Pool: b.Pool, Log: b.Log, Settle: -1, UserID: users[2]}); err != nil {
		t.Fatal(err)
	}
	b.expectSaid(t)
	b.awaitTold(t)
	// As healing does.
	b.Exec(t, `UPDATE badged.users SET total = 5 WHERE user_id = ANY ($1)`, users[:2])
	b.Exec(t, `WITH raised AS (UPDATE badged.partitions SET revision = revision + 1 WHERE partition_id = 0 RETURNING 1)
SELECT badged.tell_of_users(0, ARRAY[$1]) FROM raised`, users[0])
	b.expectSaid(t)
	if c := b.nextCall(t, "crm"); c.Subject != users[0] || c.Badge.Total != 5 {
		t.Errorf("told is %+v", c)
	} else {
		b.notifier.CallTold(c)
	}
	b.awaitTold(t)
}

// Erasing users, folding and telling lock rows in no other order than each other.
func TestErasingFoldingAndTellingDoNotDeadlock(t *testing.T) {
	b := newBench(t)
	b.putCRM(t)
	users := inPartition(0, 20)
	for _, u := range users {
		put(t, b.targets, phone(u, "phone"))
	}
	b.StopFolding()
	b.Start(t, func(cfg *projector.Config) { cfg.PollInterval, cfg.Folded = time.Millisecond, b.Folded })
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer working.Wait()
	defer stop()
	working.Go(func() {
		for seq := int64(1); ctx.Err() == nil; seq++ {
			if _, err := b.Log.Append(context.WithoutCancel(ctx), foldtest.Deliver("chat", seq, users...)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	working.Go(func() {
		for refuse := 0; ctx.Err() == nil; refuse++ {
			due, _ := b.notifier.NextCalls(ctx, "crm", 10)
			for i, c := range due {
				if i == refuse%10 { // it becomes a row, since others are accepted
					b.notifier.CallRetry(c, 0, true)
				} else {
					b.notifier.CallTold(c)
				}
			}
		}
	})
	working.Go(func() {
		for ctx.Err() == nil {
			due, _ := b.notifier.NextDevices(ctx, "chat", "fcm", 10)
			for _, d := range due {
				b.notifier.DeviceTold(d, 0)
			}
		}
	})
	for i := range 10 {
		if _, err := erasure.Erase(t.Context(), erasure.Config{Pool: b.Pool, Log: b.Log, Settle: -1, UserID: users[i]}); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	working.Wait()
	b.AwaitFolded(t)
	if got := b.Lines(t, `SELECT deadlocks::text FROM pg_stat_database WHERE datname = current_database()`); got[0] != "0" {
		t.Errorf("%s deadlocks", got[0])
	}
}

// What is folded shortly after the webhook was told is read, and told, together.
func TestWebhookIsToldTogether(t *testing.T) {
	b := newBench(t)
	b.putCRM(t)
	b.start(t, func(cfg *outbound.NotifierConfig) { cfg.CallInterval, cfg.IdleInterval = time.Hour, time.Hour })
	users := inPartition(0, 6)
	b.Happen(t, foldtest.Deliver("chat", 1, users[0]))
	if first := b.nextCall(t, "crm"); first.Subject != users[0] {
		t.Fatalf("the first call: %+v", first)
	}
	var rest []string
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		for _, c := range b.nextCalls(t, "crm", 100) {
			rest = append(rest, c.Subject)
		}
	}()
	for i, user := range users[1:] {
		b.Happen(t, foldtest.Deliver("chat", int64(2+i), user))
	}
	b.notifier.CallsRenewed("crm") // as when the interval is over
	<-asked
	if diff := cmp.Diff(sorted(users[1:]), sorted(rest)); diff != "" {
		t.Error(diff)
	}
}
