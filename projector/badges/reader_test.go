package badges_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

func snapshot(t *testing.T, d *projectortest.Database, user string) pubsub.Snapshot {
	t.Helper()
	s, err := d.Reader.Snapshot(t.Context(), user)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pages reads a user's conversations page by page.
func pages(t *testing.T, d *projectortest.Database, user string, unreadOnly bool, limit int) []pubsub.Conversation {
	t.Helper()
	return pagesIn(t, d, user, nil, unreadOnly, limit)
}

// pagesIn is pages of some categories.
func pagesIn(t *testing.T, d *projectortest.Database, user string, categories []string, unreadOnly bool, limit int) []pubsub.Conversation {
	t.Helper()
	all := []pubsub.Conversation{}
	for cursor := ""; ; {
		page, next, err := d.Reader.Conversations(t.Context(), user, badges.Filter{Within: categories, Unread: unreadOnly}, limit, cursor)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page...)
		if next == "" {
			return all
		}
		if len(page) != limit || len(all) > 1000 {
			t.Fatalf("a page of %d has %d and is not the last of %d", limit, len(page), len(all))
		}
		cursor = next
	}
}

// conversationIDs returns the ids of conversations, in order.
func conversationIDs(conversations []pubsub.Conversation) []string {
	var s []string
	for _, c := range conversations {
		s = append(s, c.ConversationID)
	}
	return s
}

// A user that nothing has happened to has all zeros, and an epoch to start from.
func TestReadAStranger(t *testing.T) {
	d := projectortest.New(t)
	want := pubsub.Badge{UserID: "stranger", Epoch: d.Badge(t, "stranger").Epoch, Categories: map[string]pubsub.Numbers{}}
	if want.Epoch == "" {
		t.Error("a stranger has no epoch")
	}
	if diff := cmp.Diff(want, d.Badge(t, "stranger")); diff != "" {
		t.Errorf("badge (-want +got):\n%s", diff)
	}
	nothing := pubsub.Snapshot{Badge: want, Conversations: []pubsub.Conversation{}}
	if diff := cmp.Diff(nothing, d.Changes(t, "stranger", 0)); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	nothing.Whole = true
	if diff := cmp.Diff(nothing, snapshot(t, d, "stranger")); diff != "" {
		t.Errorf("snapshot (-want +got):\n%s", diff)
	}
	if page := pages(t, d, "stranger", false, 10); len(page) > 0 {
		t.Errorf("conversations %v", page)
	}
	if c, err := d.Reader.Conversation(t.Context(), "stranger", "c"); c.Version != 0 || err != nil {
		t.Errorf("conversation %+v, error %v", c, err)
	}
}

// What a conversation adds to the total, and to its category, is decided by
// its level.
func TestReadCategoriesAndLevels(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(0, 0)
	of := func(category string, e events.Event) events.Event {
		e.Data.Category = category
		return e
	}
	mention := func(e events.Event) events.Event {
		e.Data.MentionedUserIDs = e.Data.UserIDs
		return e
	}
	d.Append(
		t,
		foldtest.Deliver("friend", 1, ann), mention(foldtest.Deliver("friend", 2, ann)),
		of("likes", foldtest.Deliver("fans", 1, ann)),
		mention(of("work", foldtest.Deliver("room", 1, ann))), of("work", foldtest.Deliver("room", 2, ann)),
		foldtest.Event("1", events.ConversationLevelSet, "room", foldtest.Level(events.LevelMentions), ann),
		mention(of("ads", foldtest.Deliver("shop", 1, ann))),
		foldtest.Event("2", events.ConversationLevelSet, "shop", foldtest.Level(events.LevelNone), ann),
		foldtest.Event("3", events.ConversationMarkedUnread, "note", nil, ann),
	)
	d.Fold(t)
	want := pubsub.Badge{
		UserID: ann, Epoch: d.Badge(t, ann).Epoch, Version: 9,
		Numbers: pubsub.Numbers{Total: 5, Mentions: 2, UnreadConversations: 4, Unseen: 4, Muted: pubsub.Muted{Total: 2, Conversations: 2}, Marked: 1},
		Categories: map[string]pubsub.Numbers{
			"chat":  {Total: 3, Mentions: 1, UnreadConversations: 2, Unseen: 2, Marked: 1},
			"likes": {Total: 1, UnreadConversations: 1, Unseen: 1},
			"work":  {Total: 1, Mentions: 1, UnreadConversations: 1, Unseen: 1, Muted: pubsub.Muted{Total: 1, Conversations: 1}},
			"ads":   {Muted: pubsub.Muted{Total: 1, Conversations: 1}},
		},
	}
	if diff := cmp.Diff(want, d.Badge(t, ann)); diff != "" {
		t.Errorf("badge (-want +got):\n%s", diff)
	}
	// A conversation is listed for what is unread, also where that adds nothing.
	if diff := cmp.Diff([]string{"note", "shop", "room", "fans", "friend"}, conversationIDs(snapshot(t, d, ann).Conversations)); diff != "" {
		t.Errorf("conversations (-want +got):\n%s", diff)
	}
}

// A conversation that counts in another way than others is listed for that, also
// where nothing of it is unread, until it is left or counts like others again.
func TestReadMutedConversations(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(0, 0)
	listed := func(e events.Event, want ...string) {
		t.Helper()
		d.Append(t, e)
		d.Fold(t)
		if diff := cmp.Diff(want, conversationIDs(snapshot(t, d, ann).Conversations)); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", e.Type, diff)
		}
	}
	listed(foldtest.Deliver("room", 1, ann), "room")
	listed(foldtest.Event("1", events.ConversationLevelSet, "room", foldtest.Level(events.LevelNone), ann), "room")
	listed(foldtest.Event("2", events.ConversationRead, "room", foldtest.UpTo(1), ann), "room")
	listed(foldtest.Event("3", events.ConversationLevelSet, "never seen", foldtest.Level(events.LevelMentions), ann), "never seen", "room")
	listed(foldtest.Event("4", events.ConversationLeft, "room", nil, ann), "never seen")
	listed(foldtest.Event("5", events.ConversationLevelSet, "never seen", foldtest.Level(events.LevelDefault), ann))
	if page := pages(t, d, ann, true, 10); len(page) > 0 {
		t.Errorf("unread are %v", page)
	}
}

// One query answers for many users of a partition, each by what is held of it.
func TestReadManyStates(t *testing.T) {
	d := projectortest.New(t)
	ann, bob, cid := foldtest.User(0, 0), foldtest.User(0, 1), foldtest.User(0, 2)
	d.Append(t, foldtest.Deliver("a1", 1, ann), foldtest.Deliver("a2", 1, ann), foldtest.Deliver("b1", 1, bob), foldtest.Deliver("c1", 1, cid))
	d.Fold(t)
	epoch := d.Badge(t, ann).Epoch
	states, err := d.Reader.States(t.Context(), 0, []pubsub.Held{
		{UserID: bob, Epoch: epoch, Version: 1},
		{UserID: ann, Epoch: epoch, Version: 1},
		{UserID: ann},
		{UserID: "stranger"},
		{UserID: cid, Epoch: "another", Version: 1},
		{UserID: ann, Epoch: epoch, Version: 3},
	})
	if err != nil {
		t.Fatal(err)
	}
	type answer struct {
		User          string
		Version       int64
		Whole         bool
		Conversations []string
	}
	var got []answer
	for _, s := range states {
		got = append(got, answer{s.UserID, s.Version, s.Whole, conversationIDs(s.Conversations)})
	}
	want := []answer{
		{bob, 1, false, nil},
		{ann, 2, false, []string{"a2"}},
		{ann, 2, true, []string{"a2", "a1"}},
		{"stranger", 0, true, nil},
		{cid, 1, true, []string{"c1"}},
		{ann, 2, true, []string{"a2", "a1"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	if states[0].Categories == nil || states[1].Total != 2 {
		t.Errorf("badges are %+v", states[:2])
	}
}

// Many users are answered for in the order in which they were asked about,
// whatever their partitions, the unknown and the repeated included.
func TestReadManyUsers(t *testing.T) {
	d := projectortest.New(t)
	var asked []string
	for p := range foldtest.Partitions {
		for n := range 2 {
			user := foldtest.User(p, n)
			asked = append([]string{user, fmt.Sprintf("stranger of %s", user)}, asked...)
			d.Append(t, foldtest.Deliver("c", 1, user))
			if n == 1 {
				d.Append(t, foldtest.Deliver("c", 2, user))
			}
		}
	}
	asked = append(asked, asked[0])
	d.Fold(t)
	var badges, versions []pubsub.Badge
	for _, user := range asked {
		b := d.Badge(t, user)
		badges = append(badges, b)
		b.Categories, b.Levels = nil, nil // which the versions leave out
		versions = append(versions, b)
	}
	got, err := d.Reader.Badges(t.Context(), asked)
	if diff := cmp.Diff(badges, got); diff != "" || err != nil {
		t.Errorf("error %v, badges (-one by one +got):\n%s", err, diff)
	}
	got, err = d.Reader.ShownBadges(t.Context(), asked)
	if diff := cmp.Diff(badges, got); diff != "" || err != nil {
		t.Errorf("error %v, badges as shown (-one by one +got):\n%s", err, diff)
	}
	got, err = d.Reader.Versions(t.Context(), asked)
	if diff := cmp.Diff(versions, got); diff != "" || err != nil {
		t.Errorf("error %v, versions (-one by one +got):\n%s", err, diff)
	}
	for _, read := range []func() ([]pubsub.Badge, error){
		func() ([]pubsub.Badge, error) { return d.Reader.Badges(t.Context(), nil) },
		func() ([]pubsub.Badge, error) { return d.Reader.Versions(t.Context(), nil) },
	} {
		if got, err := read(); len(got) > 0 || err != nil {
			t.Errorf("of no user: %v, error %v", got, err)
		}
	}
}

// Badges as clients get them have the first categories by name, those of rooms included.
func TestShownBadges(t *testing.T) {
	d := projectortest.New(t)
	ann, ben := foldtest.User(0, 0), foldtest.User(0, 1)
	var evs []events.Event
	for i := range pubsub.MaxCategories {
		evs = append(evs, foldtest.InCategory(fmt.Sprintf("project-%03d", i), foldtest.Deliver(fmt.Sprint("c", i), 1, ann, ben)))
	}
	d.Append(t, append(evs, foldtest.Event("1", events.RoomJoined, "hall", nil, ben), foldtest.InCategory("a hall", foldtest.Event("2", events.RoomPosted, "hall", foldtest.Seq(1))))...)
	d.Fold(t)
	got, err := d.Reader.ShownBadges(t.Context(), []string{ann, ben})
	if err != nil {
		t.Fatal(err)
	}
	for i, more := range []bool{false, true} {
		b := d.Badge(t, got[i].UserID)
		if diff := cmp.Diff(b.Shown(), got[i]); diff != "" || got[i].MoreCategories != more {
			t.Errorf("more: %v, the badge is (-read alone, as shown, +got):\n%s", got[i].MoreCategories, diff)
		}
	}
}

// A snapshot has the 500 conversations that changed last, and says whether
// there are others.
func TestSnapshotIsLimited(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(0, 0)
	var want []string
	for i := range badges.MaxSnapshot {
		id := fmt.Sprintf("c%03d", i)
		d.Append(t, foldtest.Deliver(id, 1, ann))
		want = append([]string{id}, want...)
	}
	d.Fold(t)
	for _, s := range []pubsub.Snapshot{snapshot(t, d, ann), d.Changes(t, ann, 0)} {
		if diff := cmp.Diff(want, conversationIDs(s.Conversations)); diff != "" || s.More || s.Total != badges.MaxSnapshot {
			t.Errorf("more %v, total %d, conversations (-want +got):\n%s", s.More, s.Total, diff)
		}
	}
	d.Append(t, foldtest.Deliver("one more", 1, ann))
	d.Fold(t)
	want = append([]string{"one more"}, want[:badges.MaxSnapshot-1]...)
	for _, s := range []pubsub.Snapshot{snapshot(t, d, ann), d.Changes(t, ann, 0)} {
		if diff := cmp.Diff(want, conversationIDs(s.Conversations)); diff != "" || !s.More || s.Total != badges.MaxSnapshot+1 {
			t.Errorf("more %v, total %d, conversations (-want +got):\n%s", s.More, s.Total, diff)
		}
	}
	if s := d.Changes(t, ann, 1); s.More || len(s.Conversations) != badges.MaxSnapshot {
		t.Errorf("since version 1, %d conversations changed, more %v", len(s.Conversations), s.More)
	}
}

// Changes tell of conversations that have nothing to show any more, which a
// snapshot leaves out.
func TestChangesTellOfWhatIsRead(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(0, 0)
	d.Append(t, foldtest.Deliver("read", 1, ann), foldtest.Deliver("unread", 1, ann), foldtest.Deliver("left", 1, ann), foldtest.Deliver("gone", 1, ann))
	d.Fold(t)
	since := d.Badge(t, ann).Version
	d.Append(
		t,
		foldtest.Event("1", events.ConversationRead, "read", foldtest.UpTo(1), ann),
		foldtest.Event("2", events.ConversationLeft, "left", nil, ann),
		foldtest.Event("3", events.MessageRecalled, "gone", func(d *events.Data) { d.Seq = 1 }, ann),
	)
	d.Fold(t)

	s := d.Changes(t, ann, since)
	if diff := cmp.Diff([]string{"gone", "left", "read"}, conversationIDs(s.Conversations)); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	for _, c := range s.Conversations {
		if c.Unread != 0 || c.FirstUnreadSeq != 0 || c.Version <= since {
			t.Errorf("%+v", c)
		}
	}
	if s.Version != since+3 || s.Total != 1 {
		t.Errorf("version %d, total %d, want %d and 1", s.Version, s.Total, since+3)
	}
	if diff := cmp.Diff([]string{"unread"}, conversationIDs(snapshot(t, d, ann).Conversations)); diff != "" {
		t.Errorf("snapshot (-want +got):\n%s", diff)
	}
	if s := d.Changes(t, ann, s.Version); len(s.Conversations) > 0 || s.Total != 1 {
		t.Errorf("nothing changed, but %+v", s)
	}
}

// A conversation that was left is in no list, until a later message.
func TestLeftConversationsAreInNoList(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(0, 0)
	listed := func() [3][]string {
		return [3][]string{
			conversationIDs(snapshot(t, d, ann).Conversations), conversationIDs(pages(t, d, ann, false, 10)), conversationIDs(pages(t, d, ann, true, 10)),
		}
	}
	d.Append(t, foldtest.Deliver("c", 1, ann), foldtest.Event("1", events.ConversationLeft, "c", nil, ann))
	d.Append(t, foldtest.Event("2", events.ConversationMarkedUnread, "c", nil, ann), foldtest.Event("3", events.ConversationLeft, "never seen", nil, ann))
	d.Fold(t)
	if diff := cmp.Diff([3][]string{}, listed()); diff != "" {
		t.Errorf("after leaving (-want +got):\n%s", diff)
	}
	d.Append(t, foldtest.Deliver("c", 2, ann))
	d.Fold(t)
	if diff := cmp.Diff([3][]string{{"c"}, {"c"}, {"c"}}, listed()); diff != "" {
		t.Errorf("after another message (-want +got):\n%s", diff)
	}
}

// Pages follow one another where many conversations have one version, and
// where some change in between.
func TestConversationsByPages(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(0, 0)
	for _, id := range []string{"e", "b", "d", "a", "c"} {
		d.Append(t, foldtest.Deliver(id, 1, ann))
	}
	d.Append(t, foldtest.Event("1", events.UserReadAll, "", nil, ann), foldtest.Deliver("c", 2, ann))
	d.Fold(t)
	for limit := 1; limit <= 6; limit++ {
		if diff := cmp.Diff([]string{"c", "a", "b", "d", "e"}, conversationIDs(pages(t, d, ann, false, limit))); diff != "" {
			t.Errorf("by pages of %d (-want +got):\n%s", limit, diff)
		}
	}

	page, cursor, err := d.Reader.Conversations(t.Context(), ann, badges.Filter{}, 2, "")
	if diff := cmp.Diff([]string{"c", "a"}, conversationIDs(page)); diff != "" || err != nil {
		t.Fatalf("error %v, first page (-want +got):\n%s", err, diff)
	}
	d.Append(t, foldtest.Deliver("d", 2, ann)) // moves to the front
	d.Fold(t)
	page, cursor, err = d.Reader.Conversations(t.Context(), ann, badges.Filter{}, 2, cursor)
	if diff := cmp.Diff([]string{"b", "e"}, conversationIDs(page)); diff != "" || err != nil || cursor != "" {
		t.Errorf("error %v, cursor %q, second page (-want +got):\n%s", err, cursor, diff)
	}
}

func TestConversationsByABadCursor(t *testing.T) {
	d := projectortest.New(t)
	encode := base64.RawURLEncoding.EncodeToString
	for _, cursor := range []string{
		"?", "x", "AAAA=", encode([]byte("7")), encode([]byte(":c")), encode([]byte("x:c")),
		encode([]byte("7:")), encode([]byte("7:a\x00")), encode([]byte("7:\xff")), encode([]byte("9223372036854775808:c")),
	} {
		if page, _, err := d.Reader.Conversations(t.Context(), "ann", badges.Filter{}, 10, cursor); !errors.Is(err, badges.ErrBadCursor) {
			t.Errorf("cursor %q: page %v, error %v", cursor, page, err)
		}
	}
	if page, _, err := d.Reader.Conversations(t.Context(), "ann", badges.Filter{}, 10, encode([]byte("7:a:b"))); len(page) > 0 || err != nil {
		t.Errorf("a cursor at a conversation named a:b: page %v, error %v", page, err)
	}
}

// A conversation is asked for by itself, also one that is out of every list.
func TestReadConversation(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(0, 0)
	d.Append(t, foldtest.Deliver("c", 9, ann), foldtest.Deliver("c", 7, ann), foldtest.Deliver("left", 3, ann),
		foldtest.Event("1", events.ConversationLeft, "left", nil, ann), foldtest.Event("2", events.ConversationLeft, "never seen", nil, ann))
	d.Fold(t)
	for conversation, want := range map[string]pubsub.Conversation{
		"c": {
			ConversationID: "c", Unread: 2, FirstUnreadSeq: 7, LastSeq: 9, Level: "default", Category: "chat", Version: 2,
		},
		"left":       {ConversationID: "left", ReadSeq: 3, LastSeq: 3, Level: "default", Category: "chat", Left: true, Version: 4},
		"never seen": {ConversationID: "never seen", Level: "default", Category: "chat"},
		"unknown":    {}, "a\x00b": {}, "\xff": {}, "": {},
	} {
		got, err := d.Reader.Conversation(t.Context(), ann, conversation)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("conversation %q (-want +got):\n%s\nerror %v", conversation, diff, err)
		}
	}
}

// A publisher can ask whether its events are folded, for their users only.
func TestFolded(t *testing.T) {
	d := projectortest.New(t)
	ann, anns, bob := foldtest.User(0, 0), foldtest.User(0, 1), foldtest.User(1, 0)
	folded := func(receipt events.Receipt, users ...string) bool {
		t.Helper()
		ok, err := d.Reader.Folded(t.Context(), users, receipt.TransactionID)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if !folded(events.Receipt{TransactionID: 1}, ann, bob) {
		t.Error("an empty log is not folded")
	}
	head, err := d.Reader.Head(t.Context(), "ada")
	if err != nil || !folded(events.Receipt{TransactionID: head}, ann, bob) {
		t.Errorf("the head of an empty log, %d, is not folded: %v", head, err)
	}
	for name, lost := range map[string]eventlog.Token{
		"a transaction that Postgres has not begun": eventlog.NewToken(1, 1<<40),
		"the same of an unknown timeline":           eventlog.NewToken(0, 1<<40),
		"a timeline that has not begun":             eventlog.NewToken(9, 1),
	} {
		if ok, err := d.Reader.Folded(t.Context(), []string{ann}, int64(lost)); ok || !errors.Is(err, badges.ErrLost) {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
	first := d.Append(t, foldtest.Deliver("c", 1, ann, bob))
	again := d.Append(t, foldtest.Deliver("c", 1, ann, bob))
	last := d.Append(t, foldtest.Deliver("c", 2, ann))
	before := events.Receipt{TransactionID: first.TransactionID - 1}
	type question struct {
		name  string
		of    events.Receipt
		users []string
		want  bool
	}
	ask := func(when string, questions ...question) {
		t.Helper()
		for _, q := range questions {
			if got := folded(q.of, q.users...); got != q.want {
				t.Errorf("%s, %s of %v is folded: %v, want %v", when, q.name, q.users, got, q.want)
			}
		}
	}
	ask(
		"at first",
		question{"what came before", before, []string{ann, bob}, true},
		question{"the first", first, []string{ann}, false},
		question{"the first", first, []string{bob}, false},
		question{"the last", last, []string{ann, anns, bob}, false},
	)
	d.SetPosition(t, 1, d.Records(t, 1)[1].Position)
	ask(
		"after partition 1",
		question{"the first", first, []string{bob}, true},
		question{"the last", last, []string{bob}, true},
		question{"the first", first, []string{ann}, false},
		question{"the first", first, []string{bob, ann}, false},
	)
	for i, done := range []events.Receipt{first, again, last} {
		d.SetPosition(t, 0, d.Records(t, 0)[i].Position)
		ask(
			fmt.Sprintf("after transaction %d", done.TransactionID),
			question{"it", done, []string{ann, anns, bob}, true},
			question{"the first", first, []string{ann}, true},
			question{"the last", last, []string{ann}, done.TransactionID == last.TransactionID},
		)
	}
}
