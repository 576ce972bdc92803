package projector

import (
	"fmt"
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/projector/expiry"
	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/projector/internal/store"
	"github.com/badged/badged/projector/replay"
)

// sweepChats sweeps with a limit on chats.
func (d *database) sweepChats(t *testing.T, after time.Duration) {
	t.Helper()
	d.sweep(t, d.newExpiry(t, func(cfg *expiry.Config) { cfg.After["chat"] = after }))
}

// What has been looked at is not looked at again, but for the last two hours:
// what comes behind them has been folded two hours after it would have expired,
// and nobody could know that it was to come.
func TestSweepsGoOn(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	d.appendAgo(t, 3*week, foldtest.Deliver("old", 1, ann))
	d.fold(t)
	d.sweepChats(t, week)
	same(t, "progress", []string{"0 chat " + hourAgo(week), "1 chat " + hourAgo(week), "2 chat " + hourAgo(week), "3 chat " + hourAgo(week)}, d.progress(t))
	same(t, "unread after the first sweep", []string{}, d.unread(t))
	d.appendAgo(t, week+3*time.Hour, foldtest.Deliver("behind", 1, ann))
	d.appendAgo(t, week+2*time.Hour, foldtest.Deliver("late", 1, ann))
	d.fold(t)
	d.sweepChats(t, week)
	same(t, "unread after the second", []string{"behind: 1"}, d.unread(t))
	d.appendAgo(t, 0, foldtest.Deliver("behind", 2, ann))
	d.fold(t)
	d.sweep(t, d.newExpiry(t, func(cfg *expiry.Config) { cfg.Now = func() time.Time { return foldtest.Noon.Add(week + time.Hour) } }))
	same(t, "unread after something new", []string{}, d.unread(t))
}

// A shorter limit looks at what the longer one had not come to, a longer one at
// nothing, and a category that had none at everything.
func TestSweepsAfterLimitsChange(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	for _, weeks := range []time.Duration{2, 4, 6} {
		d.appendAgo(t, weeks*week, foldtest.Deliver(fmt.Sprint("chat ", int(weeks)), 1, ann), foldtest.InCategory("likes", foldtest.Deliver(fmt.Sprint("likes ", int(weeks)), 1, ann)))
	}
	d.fold(t)
	likes := []string{"likes 2: 1", "likes 4: 1", "likes 6: 1"}
	d.sweepChats(t, 5*week)
	same(t, "unread for 5 weeks", append([]string{"chat 2: 1", "chat 4: 1"}, likes...), d.unread(t))
	d.sweepChats(t, 3*week)
	same(t, "unread for 3 weeks", append([]string{"chat 2: 1"}, likes...), d.unread(t))
	d.sweepChats(t, 5*week)
	d.sweepChats(t, 4*week)
	same(t, "progress of partition 0", []string{"0 chat " + hourAgo(3*week)}, d.progress(t)[:1])
	d.sweep(t, d.newExpiry(t, func(cfg *expiry.Config) { cfg.After = map[string]time.Duration{"*": week, "chat": 3 * week} }))
	same(t, "unread with likes that expire", []string{"chat 2: 1"}, d.unread(t))
}

// The progress does not go past an event that is not folded.
func TestSweepsWaitForWhatIsNotFolded(t *testing.T) {
	d := newDatabase(t)
	ann, now := foldtest.User(0, 0), time.Now()
	x := d.newExpiry(t, func(cfg *expiry.Config) {
		cfg.Log, cfg.Now = d.log, func() time.Time { return now }
	})
	d.append(t, foldtest.Deliver("c", 1, ann), foldtest.Deliver("d", 1, foldtest.User(1, 0)))
	d.exec(t, `UPDATE badged.events_p00 SET created_at = $1`, now.Add(-2*week))
	d.sweep(t, x)
	hour := func(ago time.Duration) string { return fmt.Sprint(badge.HourOf(now.Add(-ago))) }
	same(t, "progress", []string{"0 chat " + hour(2*week), "1 chat " + hour(week)}, d.progress(t)[:2])
	d.fold(t)
	x.Cfg.Log = d.folding(t)
	d.sweep(t, x)
	same(t, "unread", []string{"d: 1"}, d.unread(t))
	same(t, "progress", []string{"0 chat " + hour(week), "1 chat " + hour(week)}, d.progress(t)[:2])
}

// A sweep from under which the progress was taken leaves it to whoever has begun
// again since.
func TestProgressIsTakenAway(t *testing.T) {
	d := newDatabase(t)
	x, conn := d.newExpiry(t, nil), d.connect(t)
	advance := func(from, to int64, want string) {
		t.Helper()
		if _, err := x.Progress(t.Context(), conn, 0, "chat"); err != nil {
			t.Fatal(err)
		}
		if err := x.Advance(t.Context(), conn, 0, "chat", from, to); err != nil {
			t.Fatal(err)
		}
		same(t, "progress", []string{"0 chat " + want}, d.progress(t))
	}
	advance(0, 10, "10")
	d.exec(t, store.ResetExpirySQL, 0)
	advance(10, 20, "0")
}

// What is settled begins before the oldest event that is not folded, and before
// the oldest transaction that may append one.
func TestSettled(t *testing.T) {
	server := pgtest.NewServer(t) // where nobody else writes
	d := openDatabase(t, server.NewDB(t, migrated))
	x, conn := d.newExpiry(t, nil), d.connect(t)
	sharp := time.Unix(badge.HourOf(foldtest.Noon)*3600, 0) // the least age is of the hour before
	settled := func(p int) int64 {
		t.Helper()
		hour, err := x.Settled(t.Context(), conn, p, sharp)
		if err != nil {
			t.Fatal(err)
		}
		return hour - badge.HourOf(sharp)
	}
	if n := settled(0); n != 0 {
		t.Errorf("with nothing to wait for, it is %d hours from now", n)
	}
	d.append(t, foldtest.Deliver("c", 1, foldtest.User(0, 0)))
	if n, other := settled(0), settled(1); n != -1 || other != 0 {
		t.Errorf("with an event to fold it is %d hours from now, in another partition %d", n, other)
	}
	d.fold(t)
	if n := settled(0); n != 0 {
		t.Errorf("with all folded it is %d hours from now", n)
	}
	tx, err := d.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT pg_current_xact_id()`); err != nil {
		t.Fatal(err)
	}
	if n := settled(0); n != -1 {
		t.Errorf("with an open transaction it is %d hours from now", n)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Whom healing gives back what is unread from long ago has that expire: after a
// sweep has gone past it, and also while one does.
func TestHealedConversationsExpire(t *testing.T) {
	for name, during := range map[string]bool{"after a sweep": false, "during a sweep": true} {
		t.Run(name, func(t *testing.T) {
			d := newDatabase(t)
			ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
			d.appendAgo(t, 3*week, foldtest.Deliver("c", 1, ann))
			d.appendAgo(t, 2*week, foldtest.Deliver("d", 1, bob))
			d.fold(t)
			d.exec(t, `UPDATE badged.conversations SET unread = 0, unread_set = '{}' WHERE user_id = $1`, ann)
			folding := d.folding(t)
			d.sweep(t, d.newExpiry(t, func(cfg *expiry.Config) {
				cfg.Log = appender(func(evs ...events.Event) (events.Receipt, error) {
					if during {
						d.heal(t, ann)
					}
					return folding(evs...)
				})
			}))
			if !during {
				d.heal(t, ann)
			}
			same(t, "unread, healed", []string{"c: 1"}, d.unread(t))
			d.sweepChats(t, week)
			same(t, "unread after another sweep", []string{}, d.unread(t))
			d.verifyAll(t, replay.VerifyOptions{})
		})
	}
}
