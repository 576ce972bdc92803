package outbound_test

import (
	"context"
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/notify/outbound"
	"github.com/badged/badged/internal/pg/dbclock"
)

const month = 30 * 24 * time.Hour

// A device is told what changes after a clock was a month ahead when its waits were stored,
// and none of these waits stays.
func TestDeviceIsToldAfterAWrongClock(t *testing.T) {
	b := newBench(t)
	ada := foldtest.User(0, 0)
	put(t, b.targets, phone(ada, "phone"))
	b.notifier.DeviceTold(b.next(t), time.Hour)
	b.awaitQuiet(t)
	for i, wrong := range []string{
		`SET told_at = told_at + $1::interval, quiet_until = quiet_until + $1::interval`,
		`SET told_at = told_at + $1::interval, held_until = clock_timestamp() + $1::interval, attempts = 1`,
		`SET told_at = told_at + $1::interval, due = clock_timestamp() + $1::interval, told = NULL`,
	} {
		b.Exec(t, `UPDATE badged.devices `+wrong, month)
		b.Happen(t, foldtest.Deliver("chat", int64(i+1), ada))
		p := b.next(t)
		expectNumber(t, p, ada, int64(i+1))
		b.notifier.DeviceTold(p, time.Hour)
		projectortest.Until(t, "the report to be stored, and no wait of a month", func() bool {
			return len(b.Lines(t, `SELECT device_id FROM badged.devices WHERE greatest(quiet_until, held_until, told_at, due) > clock_timestamp() + interval '2 hours'`)) == 0
		})
	}
}

// An alert that has waited for almost a day is pushed.
func TestAlertOfAlmostADayIsPushed(t *testing.T) {
	b := newBench(t)
	ada := foldtest.User(0, 0)
	put(t, b.targets, phone(ada, "phone"))
	b.tellAll(t)
	b.Happen(t, saying("hello", foldtest.Deliver("chat", 1, ada)))
	p := b.next(t)
	b.Exec(t, `UPDATE badged.alerts SET queued_at = queued_at - interval '23 hours'`)
	b.notifier.DeviceHold(p, 0)
	if p := b.next(t); len(p.Alerts) != 1 {
		t.Errorf("an alert of 23 hours is dropped: %+v", p)
	}
}

// Calls and rounds through rooms that wait for a month are made at once.
func TestCallsAreMadeAfterAWrongClock(t *testing.T) {
	b := newBench(t)
	b.putCRM(t)
	ada := foldtest.User(0, 0)
	if err := b.targets.Enqueue(t.Context(), 0, outbound.BadgeChanged, ada); err != nil {
		t.Fatal(err)
	}
	b.notifier.CallRetry(b.nextCall(t, "crm"), month, true)
	if c := b.nextCall(t, "crm"); c.Subject != ada || c.Attempts != 1 {
		t.Errorf("the call is %+v", c)
	}

	put(t, b.targets, phone(ada, "phone"))
	b.Happen(t, foldtest.Event("join", events.RoomJoined, "hall", nil, ada))
	b.tellAll(t)
	b.Happen(t, post("hall", 1, nil))
	b.tellAll(t)
	b.Exec(t, `INSERT INTO badged.room_rounds_p00 (partition_id, conversation_id, due, changed) VALUES (0, 'hall', clock_timestamp() + $1::interval, true)
ON CONFLICT DO NOTHING`, month)
	b.Exec(t, `UPDATE badged.room_rounds SET due = clock_timestamp() + $1::interval, changed = true`, month)
	projectortest.Until(t, "the round", func() bool { return len(b.Lines(t, `SELECT 'r' FROM badged.room_rounds WHERE changed`)) == 0 })
}

// While the clock of the process and that of Postgres differ, no reminder is due. What was
// queued until then counts from when they agree.
func TestRemindersWaitUntilClocksAgree(t *testing.T) {
	b := newBench(t)
	clock := &dbclock.Clock{}
	clock.Set(time.Now().Add(month))
	b.start(t, func(cfg *outbound.NotifierConfig) { cfg.Clock = clock })
	putWebhook(t, b.targets, "mail", outbound.UnreadReminder)
	b.Happen(t, foldtest.Deliver("chat", 1, foldtest.User(0, 0)))
	b.nextCall(t, "mail") // by the clock of Postgres itself, which is right
	ben := foldtest.User(0, 1)
	b.Exec(t, `INSERT INTO badged.webhook_queue (partition_id, webhook, type, subject, queued_at, due, changes, attempts)
VALUES (0, 'mail', 'unread.reminder', $1, clock_timestamp() - $2::interval, clock_timestamp(), 1, 0)`, ben, month)
	clock.Set(time.Now())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	calls, err := b.notifier.NextCalls(ctx, "mail", 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		if c.Subject != ben || time.Since(c.QueuedAt) > time.Hour {
			t.Errorf("a reminder of %s counts from %s", c.Subject, c.QueuedAt)
		}
	}
}
