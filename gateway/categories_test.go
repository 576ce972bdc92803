package gateway

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/gateway/protocol"
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
		c.Level = "all"
	}
	s.Conversations = append([]pubsub.Conversation{c}, slices.DeleteFunc(s.Conversations, func(o pubsub.Conversation) bool { return o.ConversationID == c.ConversationID })...)
	s.Badge = pubsub.Badge{UserID: "ann", Epoch: s.Epoch, Version: s.Version, Categories: map[string]int64{}, CategoryConversations: map[string]int64{}}
	for _, c := range s.Conversations {
		if c.Level == "none" {
			continue
		}
		s.Mentions += c.Mentions
		if c.Unread > 0 {
			s.Total += c.Unread
			s.Categories[c.Category] += c.Unread
			s.CategoryConversations[c.Category]++
			s.UnreadConversations++
		}
	}
	u := pubsub.Update{Badge: s.Shown(), Partition: 3, BaseVersion: base, Conversations: []pubsub.Conversation{c}}
	w.tables.mu.Unlock()
	if err := w.bus.Publish(context.Background(), []pubsub.Update{u}); err != nil {
		w.t.Fatal(err)
	}
}

// settled waits until a client of ann takes updates: one that comes during the read of
// its snapshot makes it read again.
func (w *world) settled() {
	eventually(func() bool { return !w.gateway.hub.sessionsOf("ann")[0].mailbox.Mark().Syncing })
}

// seen is what a frame says, on a line.
func (f frame) seen() string {
	var list []string
	for _, c := range f.Conversations {
		text := fmt.Sprintf("%s/%s %d", c.ConversationID, c.Category, c.Unread)
		if c.Left {
			text += " left"
		}
		list = append(list, text)
	}
	return fmt.Sprintf("%s v%d %d@%d %v %d %v [%s]", f.T, f.Version, f.Total, f.Mentions, f.Categories, f.UnreadConversations, f.CategoryConversations, strings.Join(list, ", "))
}

func (c *client) hears(want string) frame {
	c.t.Helper()
	f := c.hear()
	if got := f.seen(); got != want {
		c.t.Errorf("heard %s\nwant  %s", got, want)
	}
	return f
}

// A client with a token of some categories sees these alone, in numbers of their own.
func TestViewOfCategories(t *testing.T) {
	w := newWorld(t, nil)
	w.set(pubsub.Conversation{ConversationID: "a", Unread: 2, Mentions: 1, Category: "chat"})
	w.set(pubsub.Conversation{ConversationID: "secret", Unread: 5, Mentions: 5, Category: "hr"})
	w.set(pubsub.Conversation{ConversationID: "b", Unread: 3, Mentions: 2, Category: "likes"})
	c := w.dial(http.Header{"Authorization": {"Bearer ann//chat,likes"}}, protocol.Subprotocol)
	c.say(`{"t":"hello"}`)
	f := c.hears("snapshot v3 5@3 map[chat:2 likes:3] 2 map[chat:1 likes:1] [b/likes 3, a/chat 2]")
	epoch := f.Epoch
	if epoch == "e1" {
		t.Error("the epoch is that of clients which see everything: a resumed state would lack the rest")
	}

	w.settled()
	// Versions are those of the user; nothing else shows that something else changed.
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

	// A client that comes back gets the whole state: of a view, changes do not tell all.
	back := w.dial(http.Header{"Authorization": {"Bearer ann//chat,likes"}}, protocol.Subprotocol)
	back.say(fmt.Sprintf(`{"t":"hello","epoch":%q,"version":14}`, epoch))
	back.hears("snapshot v14 3@1 map[chat:1 likes:2] 2 map[chat:1 likes:1] [c/likes 2, a/chat 1]")
	all := w.dial(http.Header{"Authorization": {"Bearer ann"}}, protocol.Subprotocol)
	all.say(fmt.Sprintf(`{"t":"hello","epoch":%q,"version":14}`, epoch))
	if f := all.hear(); f.T != "snapshot" || f.Total != 11 || len(f.Conversations) != 4 {
		t.Errorf("a client that held a view, with a token for everything, is told %s", f.raw)
	}
}

// An update of a user with many categories has the first by name. A client with a token
// of another is told from the tables, and any other from the update.
func TestViewBesideTheCategoriesOfUpdates(t *testing.T) {
	w := newWorld(t, nil)
	for i := range pubsub.MaxCategories + 1 {
		category := fmt.Sprintf("project-%03d", i)
		w.set(pubsub.Conversation{ConversationID: "c" + category, Unread: 1, Category: category})
	}
	w.set(pubsub.Conversation{ConversationID: "a", Unread: 2, Mentions: 1, Category: "support"})
	greeted := func(token, want string) *client {
		c := w.dial(http.Header{"Authorization": {"Bearer ann//" + token}}, protocol.Subprotocol)
		c.say(`{"t":"hello"}`)
		c.hears(want)
		return c
	}
	first := greeted("project-007", "snapshot v502 1@0 map[project-007:1] 1 map[project-007:1] [cproject-007/project-007 1]")
	late := greeted("project-007,support", "snapshot v502 3@1 map[project-007:1 support:2] 2 map[project-007:1 support:1] [a/support 2, cproject-007/project-007 1]")
	eventually(func() bool {
		return !slices.ContainsFunc(w.gateway.hub.sessionsOf("ann"), func(s *session) bool { return s.mailbox.Mark().Syncing })
	})
	w.set(pubsub.Conversation{ConversationID: "a", Unread: 5, Category: "support"})
	first.hears("changes v503 1@0 map[project-007:1] 1 map[project-007:1] []")
	late.hears("snapshot v503 6@0 map[project-007:1 support:5] 2 map[project-007:1 support:1] [a/support 5, cproject-007/project-007 1]")

	// A message that was forged on the bus.
	forged := pubsub.Update{Badge: pubsub.Badge{UserID: "ann", Epoch: "e1", Version: 504, MoreCategories: true}, Partition: 3, BaseVersion: 503}
	if err := w.bus.Publish(t.Context(), []pubsub.Update{forged}); err != nil {
		t.Fatal(err)
	}
	w.set(pubsub.Conversation{ConversationID: "a", Unread: 6, Category: "support"})
	for f := late.hear(); f.Categories["support"] != 6; f = late.hear() {
	}
}

// A fresh token may be of other categories. The client then gets another snapshot.
func TestFreshTokenOfOtherCategories(t *testing.T) {
	w := newWorld(t, nil)
	w.set(pubsub.Conversation{ConversationID: "a", Unread: 2, Category: "chat"})
	w.set(pubsub.Conversation{ConversationID: "b", Unread: 3, Category: "likes"})
	c := w.dial(http.Header{"Authorization": {"Bearer ann"}}, protocol.Subprotocol)
	c.say(`{"t":"hello"}`)
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

// A read of the tables began with the categories of a token that is not valid any more:
// the client is sent those of the fresh one.
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
	c := w.dial(http.Header{"Authorization": {"Bearer ann//chat"}}, protocol.Subprotocol)
	c.say(`{"t":"hello"}`)
	c.hears("snapshot v2 2@0 map[chat:2] 1 map[chat:1] [a/chat 2]")
	c.hears("snapshot v2 3@0 map[likes:3] 1 map[likes:1] [b/likes 3]")
}

// Commands reach no further than the view, and do not tell what else there is.
func TestCommandsInCategories(t *testing.T) {
	w := newWorld(t, nil)
	w.set(pubsub.Conversation{ConversationID: "a", Unread: 2, LastSeq: 2, Category: "chat"})
	w.set(pubsub.Conversation{ConversationID: "secret", Unread: 5, LastSeq: 5, Category: "hr"})
	w.set(pubsub.Conversation{ConversationID: "gone", LastSeq: 5, Category: "chat", Left: true})
	c := w.dial(http.Header{"Authorization": {"Bearer ann//chat,likes"}}, protocol.Subprotocol)
	c.say(`{"t":"hello"}`)
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
		{`{"t":"read_all","id":9,"category":"hr"}`, "invalid category is none of your token's"},
		{`{"t":"read_all","id":11,"category":""}`, "invalid category must not be empty: leave it out to read everything"},
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
		s.Conversations = append(s.Conversations, pubsub.Conversation{ConversationID: "a", Unread: 1, LastSeq: 1, Level: "all", Category: "chat", Version: 1})
	}
	c := w.dial(http.Header{"Authorization": {"Bearer ann//chat"}}, protocol.Subprotocol)
	c.say(`{"t":"hello"}`)
	c.hear()
	c.say(`{"t":"read","id":1,"conversation_id":"a","up_to_seq":1}`)
	if f := c.hear(); f.T != "ok" {
		t.Errorf("the read is answered with %s", f.raw)
	}
}
