// Package foldtest has what tests of the fold share: short constructors of
// events, a simple model of what a log means, and random histories. It touches
// no database: package projectortest does.
package foldtest

import (
	"fmt"
	"time"

	"github.com/badged/badged/events"
)

// Partitions is the number of partitions of databases in tests.
const Partitions = 4

// Noon is the present of tests that set times, in the middle of an hour.
var Noon = time.Date(2026, 3, 10, 12, 30, 0, 0, time.UTC)

// User returns the nth user of a partition.
func User(partition, n int) string {
	for i := 0; ; i++ {
		user := fmt.Sprintf("user-%d", i)
		if events.PartitionOf(user, Partitions) != partition {
			continue
		}
		if n == 0 {
			return user
		}
		n--
	}
}

// Deliver returns message seq of a conversation for users. Its id is unique
// unless the conversation has the same seq twice.
func Deliver(conversation string, seq int64, users ...string) events.Event {
	return events.Event{
		ID: fmt.Sprintf("%s/%d", conversation, seq), Source: "test", Type: events.MessageDelivered,
		Data: events.Data{ConversationID: conversation, UserIDs: users, Seq: seq},
	}
}

// Event returns an event of any type about a conversation; change may be nil.
func Event(id string, typ events.Type, conversation string, change func(*events.Data), users ...string) events.Event {
	e := events.Event{
		ID: id, Source: "test", Type: typ,
		Data: events.Data{ConversationID: conversation, UserIDs: users},
	}
	if change != nil {
		change(&e.Data)
	}
	e.Data.AllCategories = (typ == events.UserReadAll || typ == events.UserSeenAll) && e.Data.Category == ""
	return e
}

// UpTo sets up_to_seq.
func UpTo(seq int64) func(*events.Data) { return func(d *events.Data) { d.UpToSeq = seq } }

// From sets from_seq.
func From(seq int64) func(*events.Data) { return func(d *events.Data) { d.FromSeq = seq } }

// ByApp sets up_to_seq of a read by an app.
func ByApp(seq int64) func(*events.Data) {
	return func(d *events.Data) { d.UpToSeq, d.ByApp = seq, true }
}

// Level sets the level.
func Level(l events.Level) func(*events.Data) { return func(d *events.Data) { d.Level = l } }

// Seq sets the seq.
func Seq(seq int64) func(*events.Data) { return func(d *events.Data) { d.Seq = seq } }

// Seqs sets the messages to mark.
func Seqs(seqs ...int64) func(*events.Data) { return func(d *events.Data) { d.Seqs = seqs } }

// InCategory returns e in a category.
func InCategory(category string, e events.Event) events.Event {
	e.Data.Category, e.Data.AllCategories = category, false
	return e
}

// Mentioning returns e with all its users mentioned.
func Mentioning(e events.Event) events.Event {
	e.Data.MentionedUserIDs = e.Data.UserIDs
	return e
}

// Named returns e with another id.
func Named(id string, e events.Event) events.Event {
	e.ID = id
	return e
}

// InLog returns the JSON of an event that other software wrote, with the rest
// of its members.
func InLog(rest string) string { return `{"specversion":"1.0","id":"bad","source":"sql",` + rest + `}` }

// Nested returns the delivery of a message in each of 20 categories of a workspace, which is
// more than the row of a user holds.
func Nested(users ...string) (evs []events.Event) {
	for i := range 20 {
		name := fmt.Sprintf("acme/channel-%d", i)
		evs = append(evs, InCategory(name, Deliver(name, 1, users...)))
	}
	return evs
}

// Traffic returns n events for n/10 users in ten conversations, every tenth of
// them a read. The events of each round are new.
func Traffic(n, round int) []events.Event {
	evs := make([]events.Event, n)
	for i := range evs {
		user := fmt.Sprintf("user-%d", i*7919%(n/10+1))
		conversation := fmt.Sprintf("conversation-%d", i%10)
		seq := int64(round*n + i + 1)
		if i%10 == 9 {
			evs[i] = Event(fmt.Sprint("read ", seq), events.ConversationRead, conversation, UpTo(seq), user)
			continue
		}
		evs[i] = Deliver(conversation, seq, user)
	}
	return evs
}
