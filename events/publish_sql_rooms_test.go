package events_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// inRoom draws an event of a room among few rooms and users, or a read.
var inRoom = rapid.Custom(func(t *rapid.T) events.Event {
	user := rapid.Custom(func(t *rapid.T) string {
		return userIn(rapid.IntRange(0, partitions-1).Draw(t, "partition"), rapid.IntRange(0, 1).Draw(t, "user"))
	})
	e := events.Event{
		ID: fmt.Sprint(rapid.IntRange(1, 1000).Draw(t, "id")), Source: "/chat", Time: time.Unix(1, 0).UTC(),
		Type: rapid.SampledFrom([]events.Type{
			events.RoomJoined, events.RoomJoined, events.RoomPosted, events.RoomPosted, events.RoomRecalled, events.RoomLeft, events.ConversationRead,
		}).Draw(t, "type"),
		Data: events.Data{ConversationID: rapid.SampledFrom([]string{"new", "old", `"room"`}).Draw(t, "room")},
	}
	d := &e.Data
	switch e.Type {
	case events.RoomPosted:
		d.MentionedUserIDs = rapid.SliceOfN(user, 0, 4).Draw(t, "mentioned")
		d.MentionsAll = rapid.Bool().Draw(t, "mentions all")
		d.Seq = rapid.Int64Range(1, 50).Draw(t, "seq")
	case events.RoomRecalled:
		d.Seq = rapid.Int64Range(1, 50).Draw(t, "seq")
	case events.RoomJoined:
		d.UpToSeq = rapid.SampledFrom([]int64{0, 0, 7}).Draw(t, "up to")
		d.UserIDs = rapid.SliceOfN(user, 1, 3).Draw(t, "users")
	case events.ConversationRead:
		d.UpToSeq = 1
		d.UserIDs = rapid.SliceOfN(user, 1, 3).Draw(t, "users")
	default:
		d.UserIDs = rapid.SliceOfN(user, 1, 3).Draw(t, "users")
	}
	if rapid.Bool().Draw(t, "traced") {
		e.TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	}
	return e
})

// SQL writes rows of rooms with the same events as Go.
func TestPublishSQLRoutesRoomsLikeGo(t *testing.T) {
	server := pgtest.NewServer(t)
	pool := newPool(t, server.NewDB(t, migrated))
	goPool := newPool(t, server.NewDB(t, migrated))
	log, err := events.Open(t.Context(), goPool)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		for range rapid.IntRange(1, 4).Draw(t, "calls") {
			evs := rapid.SliceOfN(inRoom, 1, 5).Draw(t, "events")
			var position int64
			var err error
			if len(evs) == 1 {
				position, err = call(t.Context(), pool, publishSQL, encode(t, evs[0]))
			} else {
				position, err = call(t.Context(), pool, publishBatchSQL, encode(t, evs))
			}
			if err != nil {
				t.Fatal(err)
			}
			receipt, err := log.Append(t.Context(), evs...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := rowsDiffer(t, rowsOf(t, goPool, receipt.TransactionID), rowsOf(t, pool, position)); diff != "" {
				t.Fatalf("rows (-Go +SQL):\n%s", diff)
			}
		}
	})
}
