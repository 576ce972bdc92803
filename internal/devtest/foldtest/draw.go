package foldtest

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/badged/badged/events"
)

// CommutingTypes are the types whose events may come in any order. Deliveries
// are drawn twice as often as the others.
func CommutingTypes() []events.Type {
	return []events.Type{events.MessageDelivered, events.MessageDelivered, events.ConversationRead, events.MessageRecalled}
}

// EveryType returns all types.
func EveryType() []events.Type { return append(PublishedTypes(), events.ConversationExpired) }

// PublishedTypes are the types that publishers may write.
func PublishedTypes() []events.Type {
	return append(CommutingTypes(), events.ConversationMarkedUnread, events.ConversationLevelSet, events.ConversationLeft, events.UserReadAll)
}

// DrawHistory draws a history among few users, conversations and messages, so
// that events interact often. Some events come again: under the same name with
// the same or other content, or under another name.
func DrawHistory(t *rapid.T, types []events.Type, users []string) []events.Event {
	n := rapid.IntRange(1, 40).Draw(t, "number of events")
	history := make([]events.Event, 0, n)
	for i := range n {
		if i > 0 && rapid.IntRange(0, 9).Draw(t, "again") == 0 {
			e := history[rapid.IntRange(0, i-1).Draw(t, "which")]
			how := []string{"the same", "for others", "another name"}
			if len(types) == len(EveryType()) { // of two events of one name the first counts
				how = append(how, "another event")
			}
			switch rapid.SampledFrom(how).Draw(t, "how") {
			case "for others":
				// The first attempt has all mentions: a later one may have lost a
				// mention with its user.
				e = history[slices.IndexFunc(history, func(first events.Event) bool { return first.ID == e.ID })]
				e.Data.UserIDs = drawUsers(t, users)
				e.Data.MentionedUserIDs = slices.DeleteFunc(slices.Clone(e.Data.MentionedUserIDs), func(u string) bool {
					return !slices.Contains(e.Data.UserIDs, u)
				})
			case "another event":
				e = DrawEvent(t, e.ID, rapid.SampledFrom(types).Draw(t, "type"), users)
			case "another name":
				e.ID = fmt.Sprintf("e%d", i)
			}
			history = append(history, e)
			continue
		}
		history = append(history, DrawEvent(t, fmt.Sprintf("e%d", i), rapid.SampledFrom(types).Draw(t, "type"), users))
	}
	return history
}

// DrawNamed draws a history of every type whose events have names of their own
// in a database with histories of other numbers.
func DrawNamed(t *rapid.T, number int, users []string) []events.Event {
	history := DrawHistory(t, EveryType(), users)
	for i := range history {
		history[i].Source = fmt.Sprint("history ", number)
	}
	return history
}

// DrawTimes draws when each event of a history was appended, not always in
// order.
func DrawTimes(t *rapid.T, history []events.Event) []events.Event {
	at := Noon
	for i := range history {
		at = at.Add(rapid.SampledFrom([]time.Duration{0, time.Microsecond, 20 * time.Second, time.Minute, -30 * time.Second}).Draw(t, "after"))
		history[i].AppendedAt = at
	}
	return history
}

// DrawEvent draws an event of a type for some of the users.
func DrawEvent(t *rapid.T, id string, typ events.Type, users []string) events.Event {
	e := events.Event{ID: id, Source: "test", Type: typ}
	d := &e.Data
	d.UserIDs = drawUsers(t, users)
	conversations := rapid.SampledFrom([]string{"c1", "c2"})
	seqs := rapid.Int64Range(1, 8)
	if typ != events.UserReadAll {
		d.ConversationID = conversations.Draw(t, "conversation")
	}
	switch typ {
	case events.MessageDelivered:
		d.Seq = seqs.Draw(t, "seq")
		d.SenderID = rapid.SampledFrom(append([]string{""}, users...)).Draw(t, "sender")
		d.Category = rapid.SampledFrom([]string{"", "", "likes", "system"}).Draw(t, "category")
		d.MentionedUserIDs = rapid.SliceOfNDistinct(rapid.SampledFrom(d.UserIDs), 0, len(d.UserIDs), rapid.ID).Draw(t, "mentioned")
	case events.MessageRecalled:
		d.Seq = seqs.Draw(t, "seq")
	case events.ConversationRead:
		d.UpToSeq = seqs.Draw(t, "up to")
		d.ByApp = rapid.Bool().Draw(t, "by an app")
	case events.ConversationExpired:
		d.UpToSeq = seqs.Draw(t, "up to")
	case events.ConversationLeft:
		if rapid.Bool().Draw(t, "ahead") {
			d.UpToSeq = seqs.Draw(t, "up to")
		}
	case events.ConversationLevelSet:
		d.Level = rapid.SampledFrom([]events.Level{events.LevelAll, events.LevelMentions, events.LevelNone}).Draw(t, "level")
	case events.UserReadAll:
		d.Category = rapid.SampledFrom([]string{"", "chat", "likes"}).Draw(t, "category")
	}
	if err := e.Validate(); err != nil {
		t.Fatalf("drew an event that is invalid: %v", err)
	}
	return e
}

func drawUsers(t *rapid.T, users []string) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(users), 1, len(users), rapid.ID).Draw(t, "users")
}
