package encode

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/pubsub"
)

// The encoder of frames writes what encoding/json reads back, and the same fields in
// the same order as encoding/json writes.
func TestStateFramesAsJSON(t *testing.T) {
	full := protocol.StateFrame{
		T: "changes", Epoch: "e", Version: 1, Numbers: pubsub.Numbers{Total: 2, Mentions: 3, UnreadConversations: 4, Unseen: 1, Muted: pubsub.Muted{Total: 5, Conversations: 6}, Marked: 7},
		Categories: map[string]pubsub.Numbers{"b": {Total: 1}, "a/x": {Unseen: 2, Muted: pubsub.Muted{Total: 1}}, "c": {Mentions: 3, Marked: 1}},
		Levels:     map[string]string{"a": "none", "b": "mentions"},
		Conversations: []pubsub.Conversation{
			{ConversationID: "c", Unread: 1, Mentions: 2, FirstUnreadSeq: 3, Seen: 7, SeenMentions: 8, ReadSeq: 4, SeenSeq: 9, LastSeq: 5, Level: "all", LevelUntil: time.Date(2026, 3, 1, 8, 0, 0, 120000, time.UTC), Category: "chat", MarkedUnread: true, Left: true, Version: 6},
			{},
		},
	}
	one := full
	one.Categories, one.Levels = map[string]pubsub.Numbers{"chat": {Total: 7}}, map[string]string{}
	many := full
	many.MoreCategories, many.AllCategories = true, true
	for _, f := range []protocol.StateFrame{full, one, many, {}, {Categories: map[string]pubsub.Numbers{}, Conversations: []pubsub.Conversation{}}} {
		want, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(appendState(nil, &f)); got != string(want) {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.Make[protocol.StateFrame]().Draw(t, "frame")
		var got, want protocol.StateFrame
		b, err := json.Marshal(f)
		if err == nil {
			err = json.Unmarshal(b, &want)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(appendState(nil, &f), &got); err != nil {
			t.Fatalf("%s: %v", appendState(nil, &f), err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
	})
}
