package expiry

import (
	"fmt"
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/store"
)

// sweepChats sweeps with a limit on chats.
func sweepChats(t *testing.T, d *projectortest.Database, after time.Duration) {
	t.Helper()
	sweep(t, d, newExpiry(t, d, func(cfg *Config) { cfg.After["chat"] = after }))
}

// A sweep reads only rows after the stored progress, with an overlap of two hours. A batch with
// events older than an hour resets the progress.
func TestSweepsGoOn(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(0, 0)
	d.AppendAgo(t, 3*week, foldtest.Deliver("old", 1, ann))
	d.Fold(t)
	sweepChats(t, d, week)
	projectortest.Same(t, "progress", []string{"0 chat " + hourAgo(week), "1 chat " + hourAgo(week), "2 chat " + hourAgo(week), "3 chat " + hourAgo(week)}, progress(t, d))
	projectortest.Same(t, "unread after the first sweep", []string{}, unread(t, d))
	d.AppendAgo(t, week+3*time.Hour, foldtest.Deliver("behind", 1, ann))
	d.Fold(t)
	projectortest.Same(t, "progress after old events", []string{"1 chat " + hourAgo(week)}, progress(t, d)[:1])
	d.AppendAgo(t, week+2*time.Hour, foldtest.Deliver("late", 1, ann))
	d.Fold(t)
	sweepChats(t, d, week)
	projectortest.Same(t, "unread after the second", []string{}, unread(t, d))
	d.AppendAgo(t, 0, foldtest.Deliver("behind", 2, ann))
	d.Fold(t)
	sweep(t, d, at(foldtest.Noon.Add(week+time.Hour), newExpiry(t, d, nil)))
	projectortest.Same(t, "unread after something new", []string{}, unread(t, d))
}

// After a change to a shorter limit, a sweep reads the rows between both limits; to a longer
// limit, no rows; to a first limit, all rows.
func TestSweepsAfterLimitsChange(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(0, 0)
	for _, weeks := range []time.Duration{2, 4, 6} {
		d.AppendAgo(t, weeks*week, foldtest.Deliver(fmt.Sprint("chat ", int(weeks)), 1, ann), foldtest.InCategory("likes", foldtest.Deliver(fmt.Sprint("likes ", int(weeks)), 1, ann)))
	}
	d.Fold(t)
	likes := []string{"likes 2: 1", "likes 4: 1", "likes 6: 1"}
	sweepChats(t, d, 5*week)
	projectortest.Same(t, "unread for 5 weeks", append([]string{"chat 2: 1", "chat 4: 1"}, likes...), unread(t, d))
	sweepChats(t, d, 3*week)
	projectortest.Same(t, "unread for 3 weeks", append([]string{"chat 2: 1"}, likes...), unread(t, d))
	sweepChats(t, d, 5*week)
	sweepChats(t, d, 4*week)
	projectortest.Same(t, "progress of partition 0", []string{"0 chat " + hourAgo(3*week)}, progress(t, d)[:1])
	sweep(t, d, newExpiry(t, d, func(cfg *Config) { cfg.After = map[string]time.Duration{"*": week, "chat": 3 * week} }))
	projectortest.Same(t, "unread with likes that expire", []string{"chat 2: 1"}, unread(t, d))
}

// The progress does not go past an event that is not folded.
func TestSweepsWaitForWhatIsNotFolded(t *testing.T) {
	d := projectortest.New(t)
	ann, now := foldtest.User(0, 0), time.Now()
	x := at(now, newExpiry(t, d, func(cfg *Config) { cfg.Log = logOf(t, d) }))
	d.Append(t, foldtest.Deliver("c", 1, ann), foldtest.Deliver("d", 1, foldtest.User(1, 0)))
	d.Exec(t, `UPDATE badged.events_p00 SET created_at = $1`, now.Add(-2*week))
	sweep(t, d, x)
	hour := func(ago time.Duration) string { return fmt.Sprint(badge.HourOf(now.Add(-ago))) }
	projectortest.Same(t, "progress", []string{"0 chat " + hour(2*week), "1 chat " + hour(week)}, progress(t, d)[:2])
	d.Fold(t)
	x.cfg.Log = folding(t, d)
	sweep(t, d, x)
	projectortest.Same(t, "unread", []string{"d: 1"}, unread(t, d))
	projectortest.Same(t, "progress", []string{"0 chat " + hour(week), "1 chat " + hour(week)}, progress(t, d)[:2])
}

// A sweep whose progress was reset meanwhile does not overwrite it.
func TestProgressIsTakenAway(t *testing.T) {
	d := projectortest.New(t)
	x, conn := newExpiry(t, d, nil), d.Connect(t)
	advance := func(from, to int64, want string) {
		t.Helper()
		if _, err := x.progress(t.Context(), conn, 0, "chat"); err != nil {
			t.Fatal(err)
		}
		if err := x.advance(t.Context(), conn, 0, "chat", from, to); err != nil {
			t.Fatal(err)
		}
		projectortest.Same(t, "progress", []string{"0 chat " + want}, progress(t, d))
	}
	advance(0, 10, "10")
	d.Exec(t, store.ResetExpirySQL, 0)
	advance(10, 20, "0")
}

// Settled hours end before the oldest event that is not folded.
func TestSettled(t *testing.T) {
	d := projectortest.Open(t, pgtest.Borrow(t).NewDB(t, projectortest.Migrated())) // no other test writes
	x, conn := newExpiry(t, d, nil), d.Connect(t)
	sharp := time.Unix(badge.HourOf(foldtest.Noon)*3600, 0) // the least age is of the hour before
	settled := func(p int) int64 {
		t.Helper()
		hour, err := x.settled(t.Context(), conn, p, sharp)
		if err != nil {
			t.Fatal(err)
		}
		return hour - badge.HourOf(sharp)
	}
	if n := settled(0); n != 0 {
		t.Errorf("with nothing to wait for, it is %d hours from now", n)
	}
	d.Append(t, foldtest.Deliver("c", 1, foldtest.User(0, 0)))
	if n, other := settled(0), settled(1); n != -1 || other != 0 {
		t.Errorf("with an event to fold it is %d hours from now, in another partition %d", n, other)
	}
	d.Fold(t)
	if n := settled(0); n != 0 {
		t.Errorf("with all folded it is %d hours from now", n)
	}
}

// Old unread messages that healing restores expire in a later sweep, also if they
// were restored during one.
func TestHealedConversationsExpire(t *testing.T) {
	for name, during := range map[string]bool{"after a sweep": false, "during a sweep": true} {
		t.Run(name, func(t *testing.T) {
			d := projectortest.New(t)
			ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
			d.AppendAgo(t, 3*week, foldtest.Deliver("c", 1, ann))
			d.AppendAgo(t, 2*week, foldtest.Deliver("d", 1, bob))
			d.Fold(t)
			d.Exec(t, `UPDATE badged.conversations SET unread = 0, unread_set = NULL WHERE user_id = $1`, ann)
			folding := folding(t, d)
			sweep(t, d, newExpiry(t, d, func(cfg *Config) {
				cfg.Log = appender(func(evs ...events.Event) (events.Receipt, error) {
					if during {
						heal(t, d, ann)
					}
					return folding(evs...)
				})
			}))
			if !during {
				heal(t, d, ann)
			}
			projectortest.Same(t, "unread, healed", []string{"c: 1"}, unread(t, d))
			sweepChats(t, d, week)
			projectortest.Same(t, "unread after another sweep", []string{}, unread(t, d))
			replaytest.Verify(t, d.Pool, d.Log)
		})
	}
}
