package replay

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/fold/badge"
)

func TestEffectOf(t *testing.T) {
	ann := foldtest.User(0, 0)
	d := projectortest.New(t)
	d.Append(
		t, foldtest.Deliver("c", 1, ann), foldtest.Deliver("d", 1, ann), foldtest.Deliver("d", 2, ann),
		foldtest.Event("n", events.ConversationLevelSet, "c", foldtest.Level(events.LevelNone), ann),
		foldtest.Deliver("c", 2, ann),
		foldtest.Event("a", events.UserReadAll, "", nil, ann),
		foldtest.Event("r", events.ConversationRead, "d", foldtest.UpTo(2), ann),
	)
	d.Fold(t)
	first := d.Position(t, 0).TransactionID
	d.Append(t, foldtest.Deliver("d", 2, ann)) // again
	d.Fold(t)
	for id, want := range map[string]Effect{
		"d/2":   {Folded: true, Before: 2, After: 3, Conversations: []ConversationEffect{effect("d", 1, 2, 1, 2, events.LevelAll)}},
		"n":     {Folded: true, Before: 3, After: 2, Conversations: []ConversationEffect{effect("c", 1, 1, 1, 0, events.LevelNone)}},
		"c/2":   {Folded: true, Before: 2, After: 2, Conversations: []ConversationEffect{effect("c", 1, 2, 0, 0, events.LevelNone)}},
		"a":     {Folded: true, Before: 2, After: 0, Conversations: []ConversationEffect{effect("c", 2, 0, 0, 0, events.LevelNone), effect("d", 2, 0, 2, 0, events.LevelAll)}},
		"r":     {Folded: true, Conversations: []ConversationEffect{}, Why: badge.WhyAlreadyRead, Detail: "the conversation was read up to 2 before"},
		"again": {Folded: true, Conversations: []ConversationEffect{}, Why: WhyDuplicate, Detail: "the user had an event of the same source and id before, at DUPLICATE"},
		"z":     {Conversations: []ConversationEffect{}},
	} {
		want.UserID = ann
		name := EventName{Source: foldtest.Deliver("c", 1, ann).Source, ID: id, TransactionID: first}
		if id == "again" {
			name.ID, name.TransactionID = "d/2", d.Position(t, 0).TransactionID
		}
		e, err := NewExplainer(d.Pool, d.Log).EffectOf(t.Context(), ann, name)
		if at := strings.LastIndex(e.Detail, " at "); id == "again" && at > 0 {
			e.Detail = e.Detail[:at] + " at DUPLICATE"
		}
		if diff := cmp.Diff(want, e); err != nil || diff != "" {
			t.Errorf("the effect of %s is (-want +got, %v):\n%s", id, err, diff)
		}
	}
}

// effect returns the effect of an event on a conversation: the unread messages and the contribution
// to the total, before and after the event.
func effect(id string, unreadBefore, unreadAfter, addsBefore, addsAfter int64, level events.Level) ConversationEffect {
	return ConversationEffect{
		ConversationID: id, UnreadBefore: unreadBefore, UnreadAfter: unreadAfter,
		AddsBefore: addsBefore, AddsAfter: addsAfter, Level: level,
	}
}
