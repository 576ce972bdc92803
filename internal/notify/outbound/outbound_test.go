package outbound_test

import (
	"testing"

	"github.com/badged/badged/internal/notify/outbound"
	"github.com/badged/badged/pubsub"
)

func TestNumber(t *testing.T) {
	b := pubsub.Badge{
		Numbers:    pubsub.Numbers{Total: 7, Mentions: 2, UnreadConversations: 4},
		Categories: map[string]pubsub.Numbers{"chat": {Total: 5, UnreadConversations: 3}, "likes": {Total: 2, UnreadConversations: 1}},
	}
	for shows, want := range map[string]int64{
		outbound.ShowsTotal: 7, outbound.ShowsMentions: 2, outbound.ShowsConversations: 4,
		"category:chat": 5, "category:work": 0, "conversations:chat": 3, "conversations:work": 0,
	} {
		if n := outbound.Number(&b, shows); n != want {
			t.Errorf("a device that shows %s has %d, want %d", shows, n, want)
		}
	}
}
