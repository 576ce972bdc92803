package expiry

import (
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
)

// Levels whose time has come end, of ordinary conversations and of rooms, on however many
// pages; others stay. A level that is set again until a time in the past ends again.
func TestLevelsEndWhenTheirTimeHasCome(t *testing.T) {
	d := projectortest.New(t)
	ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
	past, future := time.Now().UTC().Add(-time.Second).Truncate(time.Microsecond), time.Now().UTC().Add(time.Hour).Truncate(time.Microsecond)
	mute := func(id, conversation string, until time.Time, users ...string) events.Event {
		return foldtest.Event(id, events.ConversationLevelSet, conversation, func(d *events.Data) { d.Level, d.Until = events.LevelNone, until }, users...)
	}
	d.Append(t,
		foldtest.Deliver("lunch", 1, ann, bob), mute("1", "lunch", past, ann, bob),
		foldtest.Deliver("tea", 1, ann), mute("2", "tea", past.Add(-time.Hour), ann),
		foldtest.Deliver("later", 1, ann), mute("3", "later", future, ann),
		foldtest.Deliver("never", 1, ann), foldtest.Event("4", events.ConversationLevelSet, "never", foldtest.Level(events.LevelNone), ann),
		foldtest.Event("5", events.RoomJoined, "hall", nil, ann), mute("6", "hall", past, ann),
		foldtest.Event("7", events.RoomPosted, "hall", foldtest.Seq(1)))
	d.Fold(t)
	x := newExpiry(t, d, nil)
	x.pageSize, x.cfg.BatchSize = 2, 1
	end := func() {
		t.Helper()
		if err := x.endLevels(t.Context(), d.Connect(t)); err != nil {
			t.Fatal(err)
		}
	}
	levels := func() []string {
		return d.Lines(t, `SELECT format('%s of %s: %s', conversation_id, user_id, level) || CASE WHEN level_until > now() THEN ' for now' ELSE '' END
FROM badged.unread ORDER BY conversation_id, user_id`)
	}
	end()
	projectortest.Same(t, "levels", []string{
		"hall of " + ann + ": all", "later of " + ann + ": none for now", "lunch of " + ann + ": all", "lunch of " + bob + ": all", "never of " + ann + ": none", "tea of " + ann + ": all",
	}, levels())
	if n := projectortest.Count(x.cfg.Metrics.levels); n != 4 {
		t.Errorf("the metric says %d, want 4", n)
	}
	if b := d.Badge(t, ann); b.Total != 3 {
		t.Errorf("total %d, want 3", b.Total)
	}

	before := d.Dump(t)
	end()
	if d.Dump(t) != before {
		t.Error("there was nothing left to end, and the second search has changed tables")
	}
	d.Append(t, mute("8", "lunch", past, ann))
	d.Fold(t)
	end()
	if b := d.Badge(t, ann); b.Total != 3 {
		t.Errorf("after muting until the past again: total %d, want 3", b.Total)
	}
}
