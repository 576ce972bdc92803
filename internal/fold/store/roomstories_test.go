package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/fold/store/storetest"
)

// Rules of rooms that are easy to get wrong, as ann sees them, who is a member.
func TestRoomStories(t *testing.T) {
	event := func(id string, typ events.Type, change func(*events.Data)) events.Event {
		return foldtest.Event(id, typ, "hall", change, "ann")
	}
	post := func(seq int64, by string, mentioned ...string) events.Event {
		return foldtest.Event("post", events.RoomPosted, "hall", func(d *events.Data) { d.Seq, d.SenderID, d.MentionedUserIDs = seq, by, mentioned })
	}
	room := func(id string, last, read int64) events.Event {
		return foldtest.Event(id, events.RoomReset, "hall", func(d *events.Data) { d.Seq, d.UpToSeq = last, read })
	}
	toAll := func(seq int64, by string, mentioned ...string) events.Event {
		e := post(seq, by, mentioned...)
		e.Data.MentionsAll = true
		return e
	}
	change := func(seq, revision int64, by string, mentioned ...string) events.Event {
		return foldtest.Event("change", events.RoomChanged, "hall", func(d *events.Data) {
			d.Seq, d.Revision, d.SenderID, d.MentionedUserIDs = seq, revision, by, mentioned
		})
	}
	upTo, from := foldtest.UpTo, foldtest.From

	for _, tc := range []struct {
		name            string
		events          []events.Event
		total, mentions int64
	}{
		{"a read to the position ends a mark", []events.Event{
			post(1, ""), post(2, ""), event("r", events.ConversationRead, upTo(2)), event("m", events.ConversationMarkedUnread, from(1)), event("r2", events.ConversationRead, upTo(2)), post(3, ""),
		}, 1, 0},
		{"a reset makes all messages above a lower position count, without the member's own", []events.Event{
			post(1, ""), post(2, "ann"), post(3, "", "ann"), post(4, ""), event("r", events.ConversationRead, upTo(1e15)), post(5, ""), event("reset", events.ConversationReset, upTo(1)),
		}, 3, 1},
		{"a reset to a higher position reads", []events.Event{
			post(1, ""), post(2, "ann"), post(3, "", "ann"), event("reset", events.ConversationReset, upTo(3)), post(4, ""),
		}, 1, 0},
		{"a reset ends a mark from a message", []events.Event{
			post(1, ""), post(2, ""), event("r", events.ConversationRead, upTo(2)), event("m", events.ConversationMarkedUnread, from(1)), event("reset", events.ConversationReset, upTo(1)), event("r2", events.ConversationRead, upTo(1)),
		}, 1, 0},
		{"a reset ends a mark where it begins, too", []events.Event{
			post(1, ""), post(2, ""), event("r", events.ConversationRead, upTo(2)), event("m", events.ConversationMarkedUnread, from(2)), event("reset", events.ConversationReset, upTo(1)), event("r2", events.ConversationRead, upTo(1)),
		}, 1, 0},
		{"a reset keeps a mark of the room", []events.Event{event("m", events.ConversationMarkedUnread, nil), event("reset", events.ConversationReset, nil)}, 1, 0},
		{"messages before the joining count after a reset", []events.Event{
			post(1, ""), event("q", events.RoomLeft, nil), event("j", events.RoomJoined, nil), event("reset", events.ConversationReset, nil),
		}, 1, 0},
		{"after a reset to before the joining, the member's own are known again", []events.Event{
			event("q", events.RoomLeft, nil), event("j", events.RoomJoined, upTo(1e15)), event("reset", events.ConversationReset, nil),
			post(1, "ann"), post(2, "", "ann"), event("r", events.ConversationRead, upTo(2)), event("m", events.ConversationMarkedUnread, from(1)),
		}, 1, 1},
		{"a truncated room has nothing unread, and its seqs start again", []events.Event{
			post(1, ""), post(2, "ann"), post(3, "", "ann"), foldtest.Event("x", events.RoomRecalled, "hall", foldtest.Seq(4)), room("end", 0, 0), post(1, ""), post(4, ""), post(2, "ann"),
		}, 2, 0},
		{"a room of which all is deleted goes on behind", []events.Event{post(1, ""), post(2, ""), room("end", 2, 2), post(3, ""), post(1, "")}, 1, 0},
		{"a room that ends before its last messages keeps the others", []events.Event{
			post(1, ""), post(2, "", "ann"), post(3, "ann"), post(1e15, ""), room("end", 3, 0), post(4, ""),
		}, 3, 1},
		{"a member who has read a message far ahead has read up to the end of the room", []events.Event{
			post(1, ""), post(2, ""), post(1e15, ""), event("r", events.ConversationRead, upTo(1e15)), room("end", 2, 0), post(3, ""),
			event("all", events.ConversationRead, foldtest.ByApp(3)), post(4, ""),
		}, 1, 0},
		{"a room that ends within a mark ends the rest of the mark", []events.Event{
			post(1, ""), post(2, ""), post(3, ""), event("r", events.ConversationRead, upTo(3)), event("m", events.ConversationMarkedUnread, from(2)), room("end", 2, 0),
		}, 1, 0},
		{"a room that is read up to within a mark keeps the rest of the mark", []events.Event{
			post(1, ""), post(2, ""), post(3, ""), event("r", events.ConversationRead, upTo(3)), event("m", events.ConversationMarkedUnread, from(2)), room("end", 3, 2), event("r2", events.ConversationRead, upTo(2)),
		}, 1, 0},
		{"a reset of a room that comes again changes nothing", []events.Event{post(1, ""), room("end", 0, 0), post(1, ""), room("end", 0, 0)}, 1, 0},
		{"a reset of a room keeps a mark of it", []events.Event{post(1, ""), event("m", events.ConversationMarkedUnread, nil), room("end", 0, 0)}, 1, 0},
		{"at direct_mentions a message that mentions all does not count, unless it names the member", []events.Event{
			event("l", events.ConversationLevelSet, foldtest.Level(events.LevelDirectMentions)), toAll(1, ""), toAll(2, "", "ann"), post(3, "", "ann"), post(4, ""), toAll(5, "ann", "ann"),
		}, 2, 2},
		{"the level may be set later", []events.Event{
			toAll(1, ""), toAll(2, "", "ann"), post(3, "", "ann"), event("l", events.ConversationLevelSet, foldtest.Level(events.LevelDirectMentions)),
		}, 2, 2},
		{"and be left again", []events.Event{
			event("l", events.ConversationLevelSet, foldtest.Level(events.LevelDirectMentions)), toAll(1, ""), toAll(2, "", "ann"), event("l2", events.ConversationLevelSet, foldtest.Level(events.LevelMentions)),
		}, 2, 2},
		{"a mention by name stays one when the message mentions all, too, and goes with it", []events.Event{
			event("l", events.ConversationLevelSet, foldtest.Level(events.LevelDirectMentions)), post(1, "", "ann"), toAll(1, ""), post(2, "", "ann"), toAll(2, ""),
			foldtest.Event("recall", events.RoomRecalled, "hall", func(d *events.Data) { d.Seq = 1 }),
		}, 1, 1},
		{"a room that ends takes mentions by name along, also those of messages that mention all", []events.Event{
			event("l", events.ConversationLevelSet, foldtest.Level(events.LevelDirectMentions)), toAll(1, "", "ann"), toAll(2, "", "ann"), room("end", 1, 0),
		}, 1, 1},
		{"a message that mentions all is marked unread with the mention by name", []events.Event{
			event("l", events.ConversationLevelSet, foldtest.Level(events.LevelDirectMentions)), toAll(1, "", "ann"), toAll(2, ""), event("r", events.ConversationRead, upTo(2)), event("m", events.ConversationMarkedUnread, from(1)),
		}, 1, 1},
		{"a restored message counts again, but not for its sender", []events.Event{
			post(1, "ann"), post(2, ""), foldtest.Event("x1", events.RoomRecalled, "hall", foldtest.Seq(1)), foldtest.Event("x2", events.RoomRecalled, "hall", foldtest.Seq(2)), change(1, 0, "ann"), change(2, 0, ""),
		}, 1, 0},
		{"mentions follow the last edit, whatever comes late", []events.Event{
			post(1, "", "ann"), change(1, 2, ""), change(1, 1, "", "ann"), post(1, "", "ann"), post(2, ""), change(2, 5, "", "ann"),
		}, 2, 1},
		{"a message that no longer mentions everybody still mentions the users that it names", []events.Event{
			foldtest.Event("all", events.RoomPosted, "hall", func(d *events.Data) { d.Seq, d.MentionsAll, d.MentionedUserIDs = 1, true, []string{"ann"} }),
			foldtest.Event("all2", events.RoomPosted, "hall", func(d *events.Data) { d.Seq, d.MentionsAll = 2, true }), change(1, 0, "", "ann"), change(2, 0, ""),
		}, 2, 1},
		{"an old recall comes late", []events.Event{
			change(1, 2, ""), foldtest.Event("x", events.RoomRecalled, "hall", func(d *events.Data) { d.Seq, d.Revision = 1, 1 }),
		}, 1, 0},
		{"joining again sets the position", []events.Event{
			event("r", events.ConversationRead, upTo(1e15)), event("q", events.RoomLeft, nil), event("j", events.RoomJoined, nil), post(1, ""),
		}, 1, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, story := storetest.NewMemory(), append([]events.Event{event("join", events.RoomJoined, nil)}, tc.events...)
			for _, e := range story {
				if err := e.Validate(); err != nil {
					t.Fatal(err)
				}
				m.Commit(t, e)
			}
			if got := m.User("ann").Sums(m.Rooms); got.Total != tc.total || got.Mentions != tc.mentions {
				t.Errorf("after\n%sthe total is %d and %d mention the user, want %d and %d", foldtest.Story(story), got.Total, got.Mentions, tc.total, tc.mentions)
			}
			truth := foldtest.Model{Events: story}
			if diff := cmp.Diff(truth.Describe("ann"), m.Describe("ann")); diff != "" {
				t.Errorf("the model says otherwise (-model +fold):\n%s", diff)
			}
		})
	}
}
