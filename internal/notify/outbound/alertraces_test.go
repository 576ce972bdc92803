package outbound_test

import (
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/notify/outbound"
)

// A statement that waits for the row of a device finds alerts that were added with the
// change it waited for: the device is due at once, not after the interval of silent
// pushes.
func TestAlertAddedWhileADeviceIsWritten(t *testing.T) {
	for _, tc := range []struct {
		name string
		held bool // by an open app
		// write writes the device, and may return before it is written.
		write   func(t *testing.T, b *bench, taken outbound.DevicePush)
		written func(d outbound.Device) bool
	}{
		{"its app is closed", true, func(t *testing.T, b *bench, p outbound.DevicePush) {
			b.hold(t, "gateway", []outbound.DeviceName{{UserID: p.UserID, DeviceID: p.DeviceID}}, 0)
		}, func(d outbound.Device) bool { return d.HeldUntil == nil }},
		{"it was told", false, func(_ *testing.T, b *bench, p outbound.DevicePush) {
			b.notifier.DeviceTold(p, time.Hour)
		}, func(d outbound.Device) bool { return d.ToldAt != nil }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			ada := foldtest.User(0, 0)
			put(t, b.targets, phone(ada, "phone"))
			taken := b.next(t)
			b.Exec(t, `UPDATE badged.devices SET quiet_until = now() + interval '1 hour', due = now() + interval '1 hour',
held_until = CASE WHEN $1 THEN now() + interval '1 hour' END`, tc.held)

			// As the notifier does when a message is marked.
			tx := b.Begin(t)
			for _, sql := range []string{
				`UPDATE badged.devices SET changes = changes + 1 WHERE user_id = $1`,
				`INSERT INTO badged.alerts (partition_id, user_id, device_id, conversation_id, seq, mentions, named, title, body, queued_at)
SELECT partition_id, user_id, device_id, 'chat', 1, false, false, 'Ben', 'Lunch?', now() FROM badged.devices WHERE user_id = $1`,
			} {
				pgtest.Exec(t, tx, sql, ada)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				tc.write(t, b, taken)
			}()
			const waiting = `SELECT pid::text FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
			projectortest.Until(t, "a statement that waits", func() bool { return len(b.Lines(t, waiting)) > 0 })
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-done
			projectortest.Until(t, "the device as it was written", func() bool { return tc.written(device(t, b.targets, ada, "phone")) })
			if d := device(t, b.targets, ada, "phone"); d.Due == nil || time.Until(*d.Due) > 50*time.Minute {
				t.Errorf("with an alert it is due at %v", d.Due)
			}
		})
	}
}
