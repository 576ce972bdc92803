package expiry

import (
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
)

// Memberships expire by the later of the room's last message and the user's join or mark.
// Members without unread messages do not expire.
func TestMembershipsExpire(t *testing.T) {
	d := projectortest.New(t)
	ann, bob, cem, dan := foldtest.User(0, 0), foldtest.User(0, 1), foldtest.User(0, 2), foldtest.User(0, 3)
	joined := func(room string, change func(*events.Data), users ...string) events.Event {
		return foldtest.Event("joined "+room+users[0], events.RoomJoined, room, change, users...)
	}
	posted := func(room string, seq int64, sender string) events.Event {
		return foldtest.Event("posted "+room+sender, events.RoomPosted, room, func(d *events.Data) { d.Seq, d.SenderID = seq, sender })
	}
	d.AppendAgo(t, 2*week,
		joined("stale", nil, ann, bob, cem), posted("stale", 1, ""), posted("stale", 2, bob),
		foldtest.Event("read", events.ConversationRead, "stale", foldtest.UpTo(2), cem),
		joined("own", nil, ann), posted("own", 1, ann),
		joined("young", nil, ann), posted("young", 1, ""),
		joined("likes", nil, ann), foldtest.InCategory("likes", posted("likes", 1, "")),
		foldtest.Deliver("chat", 1, ann))
	d.AppendAgo(t, week/2,
		posted("young", 2, ""),
		joined("stale", foldtest.UpTo(1), dan),
		foldtest.Event("mark", events.ConversationMarkedUnread, "stale", nil, cem))
	d.Fold(t)
	lines := `SELECT format('%s: %s', conversation_id, CASE WHEN marked_unread THEN 'marked' ELSE unread::text END)
FROM badged.unread WHERE unread > 0 OR marked_unread ORDER BY conversation_id, user_id`
	x := newExpiry(t, d, nil)
	sweep(t, d, x)
	projectortest.Same(t, "expired", []string{
		`chat up to 1 for ["` + ann + `"]`,
		`stale up to 2 for ["` + ann + `","` + bob + `"]`,
	}, expired(t, d))
	projectortest.Same(t, "still unread", []string{"likes: 1", "stale: marked", "stale: 1", "young: 2"}, d.Lines(t, lines))

	later := at(foldtest.Noon.Add(week), newExpiry(t, d, func(cfg *Config) { cfg.After["*"] = week }))
	sweep(t, d, later)
	projectortest.Same(t, "unread a week later", []string{}, d.Lines(t, lines))
}
