// Package foldtest has code that tests of the fold share: short constructors of events, a simple
// model of the fold, and random histories. It does not use a database; for that see package
// projectortest.
package foldtest

import (
	"fmt"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/log/eventbatch"
)

// Partitions is the number of partitions of databases in tests.
const Partitions = 4

// Noon is the current time in tests that set times. It is in the middle of an hour.
var Noon = time.Date(2026, 3, 10, 12, 30, 0, 0, time.UTC)

// User returns the user with index n, from 0, among the users of a partition.
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

// Deliver returns an event that delivers message seq of a conversation to users. The event id
// consists of the conversation and seq.
func Deliver(conversation string, seq int64, users ...string) events.Event {
	return events.Event{
		ID: fmt.Sprintf("%s/%d", conversation, seq), Source: "test", Type: events.MessageDelivered,
		Data: events.Data{ConversationID: conversation, UserIDs: users, Seq: seq},
	}
}

// Event returns an event of any type about a conversation. change may set further fields; it may be
// nil.
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

// UpTo returns a change for Event that sets up_to_seq.
func UpTo(seq int64) func(*events.Data) { return func(d *events.Data) { d.UpToSeq = seq } }

// From returns a change for Event that sets from_seq.
func From(seq int64) func(*events.Data) { return func(d *events.Data) { d.FromSeq = seq } }

// ByApp returns a change for Event that sets up_to_seq, and says that an app made the read.
func ByApp(seq int64) func(*events.Data) {
	return func(d *events.Data) { d.UpToSeq, d.ByApp = seq, true }
}

// Level returns a change for Event that sets the level.
func Level(l events.Level) func(*events.Data) { return func(d *events.Data) { d.Level = l } }

// Seq returns a change for Event that sets the seq.
func Seq(seq int64) func(*events.Data) { return func(d *events.Data) { d.Seq = seq } }

// Seqs returns a change for Event that sets the seqs of messages.
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

// InLog returns the JSON of an event as other software might write it into the log. rest has the
// members after source.
func InLog(rest string) string { return `{"specversion":"1.0","id":"bad","source":"sql",` + rest + `}` }

// Row returns a row of the log with several events. It panics if they do not fit into a row.
func Row(events ...string) []byte {
	row, err := eventbatch.Pack(events)
	if err != nil {
		panic(err)
	}
	return row
}

// Nested returns events that deliver a message in each of 20 categories of a workspace. These are
// more categories than the row of a user can store.
func Nested(users ...string) (evs []events.Event) {
	for i := range 20 {
		name := fmt.Sprintf("acme/channel-%d", i)
		evs = append(evs, InCategory(name, Deliver(name, 1, users...)))
	}
	return evs
}

// Traffic returns n events for n/10 users in ten conversations. Every tenth event is a read.
// Different rounds have different events.
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
