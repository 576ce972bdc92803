package badges_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// Users with many paths have rows of them, which later batches load and change.
func TestReadManyPaths(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(0, 0)
	const servers, channels = 30, 20
	var evs []events.Event
	for i := range servers * channels {
		path := fmt.Sprintf("server-%02d/channel-%02d", i/channels, i%channels)
		evs = append(evs, foldtest.InCategory(path, foldtest.Deliver(fmt.Sprint("c", i), 1, ann)))
	}
	d.Append(t, evs...)
	d.Fold(t)
	d.Append(t,
		foldtest.InCategory("server-07/channel-03", foldtest.Deliver("c143", 2, ann)),
		foldtest.InCategory("server-07", foldtest.Event("muted", events.CategoryLevelSet, "", foldtest.Level(events.LevelNone), ann)),
		foldtest.InCategory("server-07/channel-04", foldtest.Event("loud", events.CategoryLevelSet, "", foldtest.Level(events.LevelAll), ann)),
		foldtest.InCategory("server-08", foldtest.Event("seen", events.UserSeenAll, "", nil, ann)),
		foldtest.InCategory("server-09", foldtest.Event("left", events.UserLeftAll, "", nil, ann)),
		foldtest.InCategory("new/one", foldtest.Deliver("c1", 2, ann)),
	)
	d.Fold(t)
	numbers := func(total, unread, unseen, muted, mutedConversations int64) pubsub.Numbers {
		return pubsub.Numbers{Total: total, UnreadConversations: unread, Unseen: unseen, Muted: pubsub.Muted{Total: muted, Conversations: mutedConversations}}
	}
	page := func(of string, limit int) (list []badges.Category) {
		t.Helper()
		for cursor := ""; ; {
			found, next, err := d.Reader.Categories(t.Context(), ann, nil, of, limit, cursor)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, found...)
			if cursor = next; next == "" {
				return list
			}
		}
	}
	got := map[string]badges.Category{}
	for _, c := range page("", 7) {
		got[c.Category] = c
	}
	for _, want := range []badges.Category{
		{Category: "server-07", Numbers: numbers(1, 1, 1, channels, channels-1), Level: "none"},
		{Category: "server-07/channel-03", Numbers: numbers(0, 0, 0, 2, 1)},
		{Category: "server-07/channel-04", Numbers: numbers(1, 1, 1, 0, 0), Level: "all"},
		{Category: "server-08", Numbers: numbers(channels, channels, 0, 0, 0)},
		{Category: "new", Numbers: numbers(2, 1, 2, 0, 0)},
		{Category: "server-00", Numbers: numbers(channels-1, channels-1, channels-1, 0, 0)},
		{},
	} {
		if diff := cmp.Diff(want, got[want.Category]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if _, left := got["server-09"]; left || len(got) != servers*channels+servers-channels-1-1+2 {
		t.Errorf("%d categories, server-09: %v", len(got), left)
	}
	if children := page("server-08", 100); len(children) != channels+1 {
		t.Errorf("%d categories in and directly below server-08", len(children))
	}
	b := d.Badge(t, ann)
	if shown := b.Shown(); len(shown.Categories) != pubsub.MaxCategories || !shown.MoreCategories || len(b.Levels) != 2 {
		t.Errorf("%d categories, more: %v, levels %v", len(shown.Categories), shown.MoreCategories, b.Levels)
	}
	if total := int64(servers*channels + 1 - channels - channels + 1); b.Total != total {
		t.Errorf("the total is %d, want %d", b.Total, total)
	}
	muted := true
	list, _, err := d.Reader.Conversations(t.Context(), ann, badges.Filter{Category: "server-07", Muted: &muted}, 100, "")
	if err != nil || len(list) != channels-1 || list[0].ConversationID != "c143" {
		t.Errorf("%d muted conversations, %v", len(list), err)
	}
}
