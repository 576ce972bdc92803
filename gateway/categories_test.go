package gateway

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/internal/base/category"
	"github.com/badged/badged/pubsub"
)

// set commits a conversation of ann and publishes it.
func (w *world) set(c pubsub.Conversation) {
	w.t.Helper()
	w.tables.mu.Lock()
	s := w.tables.user("ann")
	base := s.Version
	s.Version++
	c.Version = s.Version
	if c.Level == "" {
		c.Level = "default"
	}
	s.Conversations = append([]pubsub.Conversation{c}, slices.DeleteFunc(s.Conversations, func(o pubsub.Conversation) bool { return o.ConversationID == c.ConversationID })...)
	changed := map[string]pubsub.Numbers{}
	for path := range s.Categories {
		changed[path] = pubsub.Numbers{} // those that have nothing any more
	}
	s.Badge = pubsub.Badge{UserID: "ann", Epoch: s.Epoch, Version: s.Version, Categories: map[string]pubsub.Numbers{}}
	for _, c := range s.Conversations {
		if n := category.CountOf(c.Unread, c.Mentions, c.Unread, c.Mentions, false).At(c.Level); !c.Left && n != (pubsub.Numbers{}) {
			s.Add(n)
			category.AddTo(s.Categories, c.Category, n)
		}
	}
	maps.Copy(changed, s.Categories)
	u := pubsub.Update{Badge: s.Badge, Partition: 3, BaseVersion: base, Conversations: []pubsub.Conversation{c}}
	u.Categories = changed
	w.tables.mu.Unlock()
	if err := w.bus.Publish(context.Background(), []pubsub.Update{u}, nil); err != nil {
		w.t.Fatal(err)
	}
}

// settled waits until a client of ann accepts updates: an update that arrives while its snapshot
// is read causes another read.
func (w *world) settled() {
	eventually(func() bool { return !w.gateway.hub.sessionsOf("ann")[0].mailbox.Mark().Syncing })
}

// hears reads a frame, and compares it with want. In the compared text, the frame has all
// categories of the client.
func (c *client) hears(want string) frame {
	c.t.Helper()
	f := c.hear()
	if f.T == "snapshot" || f.AllCategories {
		c.categories = nil
	}
	if c.categories == nil {
		c.categories = map[string]pubsub.Numbers{}
	}
	maps.Copy(c.categories, f.Categories)
	totals, conversations := map[string]int64{}, map[string]int64{}
	for path, n := range c.categories {
		if n.Total != 0 {
			totals[path], conversations[path] = n.Total, n.UnreadConversations
		}
	}
	var list []string
	for _, c := range f.Conversations {
		text := fmt.Sprintf("%s/%s %d", c.ConversationID, c.Category, c.Unread)
		if c.Left {
			text += " left"
		}
		list = append(list, text)
	}
	got := fmt.Sprintf("%s v%d %d@%d %v %d %v [%s]", f.T, f.Version, f.Total, f.Mentions, totals, f.UnreadConversations, conversations, strings.Join(list, ", "))
	if got != want {
		c.t.Errorf("heard %s\nwant  %s", got, want)
	}
	return f
}

// A client whose token is limited to categories sees only these categories, with their own
// numbers.
func TestViewOfCategories(t *testing.T) {
	w := newWorld(t, nil)
	w.set(pubsub.Conversation{ConversationID: "a", Unread: 2, Mentions: 1, Category: "chat"})
	w.set(pubsub.Conversation{ConversationID: "secret", Unread: 5, Mentions: 5, Category: "hr"})
	w.set(pubsub.Conversation{ConversationID: "b", Unread: 3, Mentions: 2, Category: "likes"})
	c := w.greet("ann//chat,likes")
	f := c.hears("snapshot v3 5@3 map[chat:2 likes:3] 2 map[chat:1 likes:1] [b/likes 3, a/chat 2]")
	epoch := f.Epoch
	if epoch == "e1" {
		t.Error("the epoch is that of clients which see everything: a resumed state would lack the rest")
	}

	w.settled()
	// The version is the user's version. Nothing else shows that another category changed.
	w.set(pubsub.Conversation{ConversationID: "secret", Unread: 6, Mentions: 6, Category: "hr"})
	if f := c.hears("changes v4 5@3 map[chat:2 likes:3] 2 map[chat:1 likes:1] []"); strings.Contains(f.raw, "secret") || strings.Contains(f.raw, "hr") {
		t.Errorf("%s", f.raw)
	}
	w.set(pubsub.Conversation{ConversationID: "a", Unread: 1, Mentions: 0, Category: "chat"})
	c.hears("changes v5 4@2 map[chat:1 likes:3] 2 map[chat:1 likes:1] [a/chat 1]")
	w.set(pubsub.Conversation{ConversationID: "b", Unread: 3, Mentions: 2, Category: "likes", Level: "none"})
	c.hears("changes v6 1@0 map[chat:1] 1 map[chat:1] [b/likes 3]")
	w.set(pubsub.Conversation{ConversationID: "b", Unread: 3, Mentions: 2, Category: "likes"})
	c.hears("changes v7 4@2 map[chat:1 likes:3] 2 map[chat:1 likes:1] [b/likes 3]")

	// A conversation goes to another category, and comes back.
	w.set(pubsub.Conversation{ConversationID: "b", Unread: 4, Mentions: 2, LastSeq: 9, Category: "hr"})
	c.hears("changes v8 1@0 map[chat:1] 1 map[chat:1] [b/likes 0 left]")
	w.set(pubsub.Conversation{ConversationID: "b", Unread: 5, Mentions: 2, Category: "hr"})
	c.hears("changes v9 1@0 map[chat:1] 1 map[chat:1] []")
	w.set(pubsub.Conversation{ConversationID: "b", Unread: 6, Mentions: 1, Category: "likes"})
	c.hears("changes v10 7@1 map[chat:1 likes:6] 2 map[chat:1 likes:1] [b/likes 6]")
	w.set(pubsub.Conversation{ConversationID: "b", Category: "likes", Left: true})
	c.hears("changes v11 1@0 map[chat:1] 1 map[chat:1] [b/likes 0 left]")
	w.set(pubsub.Conversation{ConversationID: "b", Category: "hr", Unread: 1})
	c.hears("changes v12 1@0 map[chat:1] 1 map[chat:1] []")

	// A lost update.
	w.bus.setLose(true)
	w.set(pubsub.Conversation{ConversationID: "c", Unread: 2, Mentions: 1, Category: "likes"})
	w.bus.setLose(false)
	w.set(pubsub.Conversation{ConversationID: "secret", Unread: 7, Mentions: 7, Category: "hr"})
	c.hears("snapshot v14 3@1 map[chat:1 likes:2] 2 map[chat:1 likes:1] [c/likes 2, a/chat 1]")

	// A client that reconnects gets the whole state: changes are not enough for a view.
	back := w.dial(http.Header{"Authorization": {"Bearer ann//chat,likes"}}, protocol.Subprotocol)
	back.say(fmt.Sprintf(`{"t":"hello","epoch":%q,"version":14}`, epoch))
	back.hears("snapshot v14 3@1 map[chat:1 likes:2] 2 map[chat:1 likes:1] [c/likes 2, a/chat 1]")
	all := w.dial(http.Header{"Authorization": {"Bearer ann"}}, protocol.Subprotocol)
	all.say(fmt.Sprintf(`{"t":"hello","epoch":%q,"version":14}`, epoch))
	if f := all.hear(); f.T != "snapshot" || f.Total != 11 || len(f.Conversations) != 4 {
		t.Errorf("a client that held a view, with a token for everything, is told %s", f.raw)
	}
}

// A token of a path is one of all below it.
func TestViewOfAPath(t *testing.T) {
	w := newWorld(t, nil)
	w.set(pubsub.Conversation{ConversationID: "a", Unread: 2, Mentions: 1, Category: "acme/general"})
	w.set(pubsub.Conversation{ConversationID: "secret", Unread: 5, Category: "acme2"})
	w.set(pubsub.Conversation{ConversationID: "b", Unread: 3, Category: "acme"})
	all := w.greet("ann//acme,acme/general")
	all.hears("snapshot v3 5@1 map[acme:5 acme/general:2] 2 map[acme:2 acme/general:1] [b/acme 3, a/acme/general 2]")
	below := w.greet("ann//acme/general")
	below.hears("snapshot v3 2@1 map[acme/general:2] 1 map[acme/general:1] [a/acme/general 2]")
	w.settled()
	w.set(pubsub.Conversation{ConversationID: "a", Unread: 4, Mentions: 1, Category: "acme/general"})
	all.hears("changes v4 7@1 map[acme:7 acme/general:4] 2 map[acme:2 acme/general:1] [a/acme/general 4]")
	ask := func(command string) frame { // changes may come before the answer
		below.say(command)
		f := below.hear()
		for f.T != "ok" && f.T != "error" {
			f = below.hear()
		}
		return f
	}
	if f := ask(`{"t":"seen_all","id":1,"category":"acme"}`); f.T != "error" {
		t.Errorf("what is above its paths is answered with %s", f.raw)
	}
	ask(`{"t":"level","id":2,"category":"acme/general/threads","level":"none"}`)
	ask(`{"t":"seen_all","id":3}`)
	if f := ask(`{"t":"level","id":4,"level":"none"}`); f.T != "error" || !strings.Contains(f.Message, "level needs the field category") {
		t.Errorf("a level of no path is answered with %s", f.raw)
	}
	if diff := cmp.Diff([]string{`ann sets "acme/general/threads" to none`, `ann sees all of "acme/general"`}, w.log.recorded()); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

// A fresh token may have other categories. The client then gets another snapshot.
func TestFreshTokenOfOtherCategories(t *testing.T) {
	w := newWorld(t, nil)
	w.set(pubsub.Conversation{ConversationID: "a", Unread: 2, Category: "chat"})
	w.set(pubsub.Conversation{ConversationID: "b", Unread: 3, Category: "likes"})
	c := w.greet("ann")
	c.hears("snapshot v2 5@0 map[chat:2 likes:3] 2 map[chat:1 likes:1] [b/likes 3, a/chat 2]")
	for i, step := range []struct{ token, want string }{
		{"ann//chat", "snapshot v2 2@0 map[chat:2] 1 map[chat:1] [a/chat 2]"},
		{"ann//likes", "snapshot v2 3@0 map[likes:3] 1 map[likes:1] [b/likes 3]"},
		{"ann", "snapshot v2 5@0 map[chat:2 likes:3] 2 map[chat:1 likes:1] [b/likes 3, a/chat 2]"},
	} {
		c.say(fmt.Sprintf(`{"t":"auth","id":%d,"token":%q}`, i, step.token))
		if f := c.hear(); f.T != "ok" {
			t.Fatalf("auth is answered with %s", f.raw)
		}
		c.hears(step.want)
		w.settled()
	}
	w.set(pubsub.Conversation{ConversationID: "a", Unread: 1, Category: "chat"})
	c.hears("changes v3 4@0 map[chat:1 likes:3] 2 map[chat:1 likes:1] [a/chat 1]")
	c.say(`{"t":"auth","id":9,"token":"ann/2h"}`) // of all, like the one before: no snapshot
	c.hear()
	c.say(`{"t":"ping"}`)
	if f := c.hear(); f.T != "pong" {
		t.Errorf("after a token of the same categories comes %s", f.raw)
	}
}

// A read of the tables began with the categories of the old token: the client gets the categories
// of the fresh token.
func TestFreshTokenDuringARead(t *testing.T) {
	w := newWorld(t, nil)
	w.set(pubsub.Conversation{ConversationID: "a", Unread: 2, Category: "chat"})
	w.set(pubsub.Conversation{ConversationID: "b", Unread: 3, Category: "likes"})
	w.tables.mu.Lock()
	w.tables.beforeReturn = func() {
		s := w.gateway.hub.sessionsOf("ann")[0]
		if refusal := s.authenticate(t.Context(), "ann//likes"); refusal != nil {
			t.Error(refusal)
		}
	}
	w.tables.mu.Unlock()
	c := w.greet("ann//chat")
	c.hears("snapshot v2 2@0 map[chat:2] 1 map[chat:1] [a/chat 2]")
	c.hears("snapshot v2 3@0 map[likes:3] 1 map[likes:1] [b/likes 3]")
}

// Commands affect only the view, and do not reveal other conversations.
func TestCommandsInCategories(t *testing.T) {
	w := newWorld(t, nil)
	w.set(pubsub.Conversation{ConversationID: "a", Unread: 2, LastSeq: 2, Category: "chat"})
	w.set(pubsub.Conversation{ConversationID: "secret", Unread: 5, LastSeq: 5, Category: "hr"})
	w.set(pubsub.Conversation{ConversationID: "gone", LastSeq: 5, Category: "chat", Left: true})
	c := w.greet("ann//chat,likes")
	c.hear()
	const none = "not_found you have no such conversation in the categories of your token"
	id := "0b9df1d8-96b5-4a9b-9a6e-2c2a4d3e5f60"
	for _, step := range []struct{ command, want string }{
		{`{"t":"read","id":1,"conversation_id":"a","up_to_seq":1}`, ""},
		{`{"t":"read","id":2,"conversation_id":"secret","up_to_seq":1}`, none},
		{`{"t":"read","id":3,"conversation_id":"unknown","up_to_seq":1}`, none},
		{`{"t":"read","id":4,"conversation_id":"gone","up_to_seq":1}`, none},
		{`{"t":"mark_unread","id":5,"conversation_id":"a"}`, ""},
		{`{"t":"mark_unread","id":6,"conversation_id":"secret"}`, none},
		{`{"t":"mark_unread","id":7,"conversation_id":"secret","seqs":[1]}`, none},
		{`{"t":"read_all","id":8,"category":"likes"}`, ""},
		{`{"t":"read_all","id":9,"category":"hr"}`, "invalid your token does not include the category"},
		{`{"t":"read_all","id":11,"category":""}`, "invalid category must not be empty: leave it out to name everything"},
		{`{"t":"read_all","id":10}`, ""},
		{`{"t":"read_all","id":"` + id + `"}`, ""},
	} {
		c.say(step.command)
		f := c.hear()
		got := ""
		if f.T == "error" {
			got = fmt.Sprint(f.Code, " ", f.Message)
		}
		if got != step.want {
			t.Errorf("%s is answered with %s, want %q", step.command, f.raw, step.want)
		}
	}
	want := []string{
		"ann reads a up to 1", "ann marks a", `ann reads all of "likes"`, `ann reads all of "chat"`, `ann reads all of "likes"`,
		`ann reads all of "chat" as ` + keyFor(id, "chat"), `ann reads all of "likes" as ` + keyFor(id, "likes"),
	}
	if diff := cmp.Diff(want, w.log.recorded()); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
	if keyFor(id, "chat") == keyFor(id, "likes") {
		t.Error("the parts of a command have the same key")
	}
}

// A read right after the first message waits for the tables, as a mark does.
func TestReadOfAConversationNotYetFolded(t *testing.T) {
	w := newWorld(t, nil)
	w.tables.behind = 2
	w.tables.catchUp = func(s *pubsub.Snapshot) {
		s.Conversations = append(s.Conversations, pubsub.Conversation{ConversationID: "a", Unread: 1, LastSeq: 1, Level: "default", Category: "chat", Version: 1})
	}
	c := w.greet("ann//chat")
	c.hear()
	c.say(`{"t":"read","id":1,"conversation_id":"a","up_to_seq":1}`)
	if f := c.hear(); f.T != "ok" {
		t.Errorf("the read is answered with %s", f.raw)
	}
}
