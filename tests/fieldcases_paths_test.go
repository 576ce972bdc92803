package tests

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/badged/badged/pubsub"
)

// in returns an event that delivers message seq of a conversation in a category to ann.
func in(category, conversation string, seq int, more string) string {
	return event(fmt.Sprintf("%s/%d", conversation, seq), "message.delivered",
		fmt.Sprintf(`{"conversation_id":%q,"seq":%d,"user_ids":["ann"],"category":%q%s}`, conversation, seq, category, more))
}

const mentioned = `,"mentioned_user_ids":["ann"]`

// levelOf sets the level of a category of ann.
func levelOf(category, level string) string {
	return event(category+" "+level, "category.level_set", fmt.Sprintf(`{"user_ids":["ann"],"category":%q,"level":%q}`, category, level))
}

// badgeAt returns ann's badge once it includes a position.
func badgeAt(t *testing.T, p *process, position string) (b pubsub.Badge) {
	t.Helper()
	get(t, p.url+"/v1/users/ann/badge?timeout=30s&at_least="+position, &b)
	return b
}

// list returns the ids of ann's conversations for a query string, in the order of the answer.
func (p *process) list(query string) (ids []string) {
	p.t.Helper()
	var page struct {
		Conversations []struct {
			ConversationID string `json:"conversation_id"`
		}
	}
	get(p.t, p.url+"/v1/users/ann/conversations?"+query, &page)
	for _, c := range page.Conversations {
		ids = append(ids, c.ConversationID)
	}
	return ids
}

// wantNumbers compares numbers of a badge, or of one of its categories.
func wantNumbers(t *testing.T, what string, got, want pubsub.Numbers) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// A badge has two numbers: the total that the levels count, and the muted total that they exclude.
func mutedInTheNumber(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database)
	ann := connect(t, p.url, "ann")
	ann.awaitTotal(0)
	position := p.mustPost(levelOf("games", "none"), levelOf("games/loud", "all"),
		in("games/lfg", "lfg", 1, ""), in("games/lfg", "lfg", 2, ""), in("games/loud", "loud", 1, ""), in("work", "work", 1, ""))
	ann.awaitTotal(2)
	b := badgeAt(t, p, position)
	muted := pubsub.Muted{Total: 2, Conversations: 1}
	wantNumbers(t, "the badge", b.Numbers, pubsub.Numbers{Total: 2, UnreadConversations: 2, Unseen: 2, Muted: muted})
	wantNumbers(t, "the server", b.Categories["games"], pubsub.Numbers{Total: 1, UnreadConversations: 1, Unseen: 1, Muted: muted})
	wantNumbers(t, "the muted channel", b.Categories["games/lfg"], pubsub.Numbers{Muted: muted})
	if red, grey := p.list("category=games&unread=true&muted=false"), p.list("category=games&unread=true&muted=true"); !slices.Equal(red, []string{"loud"}) || !slices.Equal(grey, []string{"lfg"}) {
		t.Errorf("the red number leads to %v, the grey one to %v", red, grey)
	}
	explained := must(t, "user", "explain", "ann", "--database-url="+database)
	if !strings.Contains(explained, `level none of category games applies, set by category.level_set games none`) {
		t.Errorf("the explanation does not say what the level came from:\n%s", explained)
	}
	// Once the level of the category is reset, all its conversations count again. It takes
	// one event, however many conversations there are.
	b = badgeAt(t, p, p.mustPost(levelOf("games", "default")))
	wantNumbers(t, "the badge of a server that is not muted", b.Numbers, pubsub.Numbers{Total: 4, UnreadConversations: 3, Unseen: 4})
	ann.awaitTotal(4)
	must(t, "verify", "--database-url="+database)
}

// A thread has the category of its channel. So the channel's level applies to the thread, and
// leaving the channel also leaves its threads.
func threadsOfAChannel(t *testing.T) {
	p := serve(t, newDatabase(t))
	position := p.mustPost(in("acme/dev", "dev", 1, ""), in("acme/dev", "dev:thread", 1, mentioned), in("acme/ops", "ops:thread", 1, ""), in("acme2/dev", "other", 1, ""))
	if b := badgeAt(t, p, position); b.Categories["acme/dev"].Total != 2 || b.Categories["acme"].Total != 3 {
		t.Errorf("with threads: %+v", b.Categories)
	}
	b := badgeAt(t, p, p.mustPost(levelOf("acme/dev", "none")))
	wantNumbers(t, "the workspace of a muted channel", b.Categories["acme"],
		pubsub.Numbers{Total: 1, UnreadConversations: 1, Unseen: 1, Muted: pubsub.Muted{Total: 2, Conversations: 2}})

	// An unread thread stops counting as soon as the user stops following it.
	p.mustPost(levelOf("acme/dev", "default"))
	if b := badgeAt(t, p, p.mustPost(left("unfollow", "dev:thread", `"ann"`))); b.Categories["acme/dev"].Total != 1 || b.Mentions != 0 {
		t.Errorf("without the thread that is not followed: %+v", b)
	}
	p.mustPost(in("acme/dev", "dev:thread", 2, ""))
	leave := event("leave", "user.left_all", `{"user_ids":["ann"],"category":"acme/dev"}`)
	b = badgeAt(t, p, p.mustPost(leave))
	if names := slices.Sorted(maps.Keys(b.Categories)); !slices.Equal(names, []string{"acme", "acme/ops", "acme2", "acme2/dev"}) {
		t.Errorf("after the channel was left: %v", names)
	}
	// Events for messages of a left channel change nothing.
	b = badgeAt(t, p, p.mustPost(event("edit", "message.recalled", `{"conversation_id":"dev:thread","seq":2,"user_ids":["ann"]}`)))
	if b.Total != 2 {
		t.Errorf("after the late event the total is %d, want 2", b.Total)
	}
}

// Some products count a mention in a muted channel, others do not. There is a level for each.
func mentionWhereMuted(t *testing.T) {
	p := serve(t, newDatabase(t))
	position := p.mustPost(levelOf("acme/counted", "mentions"), levelOf("acme/silent", "none"),
		in("acme/counted", "a", 1, ""), in("acme/counted", "a", 2, mentioned), in("acme/silent", "b", 1, ""), in("acme/silent", "b", 2, mentioned))
	b := badgeAt(t, p, position)
	wantNumbers(t, "where mentions count", b.Categories["acme/counted"],
		pubsub.Numbers{Total: 1, Mentions: 1, UnreadConversations: 1, Unseen: 1, Muted: pubsub.Muted{Total: 1, Conversations: 1}})
	wantNumbers(t, "where nothing counts", b.Categories["acme/silent"], pubsub.Numbers{Muted: pubsub.Muted{Total: 2, Conversations: 1}})
	wantNumbers(t, "the badge", b.Numbers, pubsub.Numbers{Total: 1, Mentions: 1, UnreadConversations: 1, Unseen: 1, Muted: pubsub.Muted{Total: 3, Conversations: 2}})
}

// From the number of a channel an app finds the thread that causes it, even an old thread beyond
// the first page of the list.
func replyInAnOldThread(t *testing.T) {
	p := serve(t, newDatabase(t))
	events := []string{in("acme/dev", "an old thread", 1, "")}
	for i := range 300 {
		events = append(events, in("acme/dev", fmt.Sprintf("thread %d", i), 1, ""))
	}
	p.mustPost(events...)
	p.mustPost(event("read all", "user.read_all", `{"user_ids":["ann"],"category":"acme/dev"}`))
	p.mustPost(in("acme/dev", "an old thread", 2, ""))
	events = nil
	for i := range 300 { // newer conversations, all read
		events = append(events, in("acme/dev", fmt.Sprintf("thread %d", i), 2, ""), read(fmt.Sprint("read ", i), fmt.Sprintf("thread %d", i), 2, `"ann"`))
	}
	b := badgeAt(t, p, p.mustPost(events...))
	if n := b.Categories["acme/dev"]; n.Total != 1 || n.UnreadConversations != 1 {
		t.Errorf("the channel says %+v", n)
	}
	if ids := p.list("limit=50&unread=true&category=" + url.QueryEscape("acme/dev")); !slices.Equal(ids, []string{"an old thread"}) {
		t.Errorf("the number leads to %v", ids)
	}
}

// A notification bell shows the unseen number. Opening the bell marks everything as seen, but reads
// nothing; reading also marks as seen.
func bellAfterReadAll(t *testing.T) {
	p := serve(t, newDatabase(t))
	phone, laptop := connect(t, p.url, "ann"), connect(t, p.url, "ann")
	p.mustPost(in("bell/comments", "comments", 1, ""), in("bell/likes", "likes", 1, ""))
	phone.awaitTotal(2)
	p.mustCommand("ann", `{"t":"seen_all","category":"bell"}`)
	position := p.mustPost(in("bell/likes", "likes", 2, ""))
	b := badgeAt(t, p, position)
	wantNumbers(t, "the bell that was opened before one item", b.Categories["bell"], pubsub.Numbers{Total: 3, UnreadConversations: 2, Unseen: 1})
	laptop.awaitTotal(3)
	laptop.say(`{"t":"read_all","id":1,"category":"bell"}`)
	phone.awaitTotal(0)
	b = badgeAt(t, p, position)
	wantNumbers(t, "the bell of which all was read", b.Numbers, pubsub.Numbers{})
	if len(b.Categories) != 0 {
		t.Errorf("after all was read there are %v", b.Categories)
	}
}

// read_all also reads conversations beyond the first page of the list.
func readAllOfThousands(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database)
	ann := connect(t, p.url, "ann")
	var events []string
	for i := range 2_000 {
		events = append(events, in(fmt.Sprintf("acme/%d", i%1_200), fmt.Sprint("c", i), 1, ""))
	}
	before := badgeAt(t, p, p.mustPost(append(events, in("home", "home", 1, ""))...)).Version
	ann.awaitTotal(2_001)
	p.mustCommand("ann", `{"t":"read_all","category":"acme"}`)
	ann.awaitTotal(1)
	b := badgeAt(t, p, p.mustPost(in("acme/7", "c7", 2, "")))
	wantNumbers(t, "the badge", b.Numbers, pubsub.Numbers{Total: 2, UnreadConversations: 2, Unseen: 2})
	if names := slices.Sorted(maps.Keys(b.Categories)); !slices.Equal(names, []string{"acme", "acme/7", "home"}) || b.Version != before+2 {
		t.Errorf("after all was read, and a message, there are %v at version %d, want two after %d", names, b.Version, before)
	}
	must(t, "verify", "--database-url="+database)
}

// A conversation marked unread counts as one. The badge says how much of the total comes from
// marks, for apps that show a dot instead.
func marksAreNoMessages(t *testing.T) {
	p := serve(t, newDatabase(t))
	p.mustPost(in("acme/dev", "read", 1, ""), read("r", "read", 1, `"ann"`), in("acme/dev", "unread", 1, ""))
	p.mustCommand("ann", `{"t":"mark_unread","conversation_id":"read"}`)
	p.mustCommand("ann", `{"t":"mark_unread","conversation_id":"unread"}`) // already counts, since it has an unread message
	b := badgeAt(t, p, p.mustPost(in("acme/ops", "third", 1, "")))
	want := pubsub.Numbers{Total: 2, UnreadConversations: 2, Unseen: 1, Marked: 1}
	wantNumbers(t, "the channel", b.Categories["acme/dev"], want)
	want.Total, want.UnreadConversations, want.Unseen = 3, 3, 2
	wantNumbers(t, "the badge", b.Numbers, want)
}
