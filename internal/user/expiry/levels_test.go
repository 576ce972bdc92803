package expiry

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
)

// Among many levels that end later or never, a sweep finds the levels to end by index.
func TestLevelsToEndAreFoundByIndex(t *testing.T) {
	d := projectortest.New(t)
	conn := d.Connect(t)
	d.Exec(t, `INSERT INTO badged.conversations_p00 (partition_id, version, read_seq, last_seq, unread, mentions, level, level_until, level_after, marked_unread,
    user_id, conversation_id, category, delivered_hour)
SELECT 0, 1, 1, 1, 0, 0, 'none', CASE WHEN n % 3 > 0 THEN (extract(epoch FROM now()) * 1000000)::bigint + CASE WHEN n <= 10 THEN -n ELSE 3600000000 + n END END,
    CASE WHEN n % 3 > 0 THEN 'all'::badged.level END, false, 'user-' || n % 1000, 'conversation-' || n, 'chat', 0
FROM generate_series(1, 60000) AS n`)
	for _, statistics := range []string{"no", "ANALYZE badged.conversations_p00"} {
		if statistics != "no" {
			d.Exec(t, statistics)
		}
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			t.Run(statistics+" statistics/"+mode, func(t *testing.T) {
				for _, sql := range []string{
					`DEALLOCATE ALL`, `SET plan_cache_mode = ` + mode,
					`PREPARE levels (bigint, text, text, bigint) AS ` + statements.Of(0, "find levels to end"),
				} {
					pgtest.Exec(t, conn, sql, pgx.QueryExecModeSimpleProtocol)
				}
				plan := explain(t, conn, `EXECUTE levels (0, '', '', 10000)`)
				for want, there := range map[string]bool{
					"conversations_p00_level_until_conversation_id_user_id_idx on conversations_p00 (actual rows=7": true, "Seq Scan": false, "Sort": false, "Rows Removed": false,
				} {
					if strings.Contains(plan, want) != there {
						t.Errorf("that the plan has %q is %v:\n%s", want, !there, plan)
					}
				}
			})
		}
	}
}

// Levels whose time has come end, of conversations and rooms, on any number of pages; others stay.
// A level that is set again with an end in the past ends again.
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
