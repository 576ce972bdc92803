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
		T: "changes", Epoch: "e", Version: 1, Total: 2, Mentions: 3, Categories: map[string]int64{"b": 1, "a": 2, "c": 3},
		UnreadConversations: 4, CategoryConversations: map[string]int64{"c": 1, "b": 1, "a": 2},
		Conversations: []pubsub.Conversation{
			{ConversationID: "c", Unread: 1, Mentions: 2, FirstUnreadSeq: 3, ReadSeq: 4, LastSeq: 5, Level: "all", LevelUntil: time.Date(2026, 3, 1, 8, 0, 0, 120000, time.UTC), Category: "chat", MarkedUnread: true, Left: true, Version: 6},
			{},
		},
	}
	one := full
	one.Categories, one.CategoryConversations = map[string]int64{"chat": 7}, map[string]int64{"chat": 4}
	many := full
	many.MoreCategories = true
	none := map[string]int64{}
	for _, f := range []protocol.StateFrame{full, one, many, {CategoryConversations: none}, {Categories: none, CategoryConversations: none, Conversations: []pubsub.Conversation{}}} {
		want, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(appendState(nil, &f)); got != string(want) {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
	implied := one
	implied.CategoryConversations = nil
	if got, want := string(appendState(nil, &implied)), string(appendState(nil, &one)); got != want {
		t.Errorf("with conversations that follow from others\n%s\nwant\n%s", got, want)
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
