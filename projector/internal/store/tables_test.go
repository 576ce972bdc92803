package store

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/pgwire"
	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/pubsub"
)

// There is no update for a user without subscribers, or without a visible
// change.
func TestUpdatesNeedSubscribers(t *testing.T) {
	users := map[string]*badge.User{"ann": badge.NewUser("ann"), "ben": badge.NewUser("ben"), "eve": badge.NewUser("eve")}
	e := foldtest.Deliver("c", 1, "ann", "ben")
	(&badge.State{Users: users}).Fold(&e)
	updates := ClientUpdates(Sorted(users), nil, 3, 3, "epoch", func(u pubsub.Address) bool {
		return u == pubsub.Address{ID: "ben", Partition: 3} || u.ID == "eve"
	}).Users
	if len(updates) != 1 || updates[0].UserID != "ben" || updates[0].Total != 1 {
		t.Errorf("the updates are %+v, want one of ben", updates)
	}
}

// An update has the categories that changed, not those that the user has.
func TestUpdatesHaveWhatChanged(t *testing.T) {
	users := map[string]*badge.User{"ann": badge.NewUser("ann")}
	const many = 1000
	for i := range many {
		e := foldtest.InCategory(fmt.Sprintf("project-%04d/news", i), foldtest.Deliver(fmt.Sprint("c", i), 1, "ann"))
		(&badge.State{Users: users}).Fold(&e)
		if i < many-1 {
			users["ann"].Settle()
		}
	}
	update := ClientUpdates(Sorted(users), nil, 3, 3, "epoch", func(pubsub.Address) bool { return true }).Users[0]
	one := pubsub.Numbers{Total: 1, UnreadConversations: 1, Unseen: 1}
	want := map[string]pubsub.Numbers{"project-0999": one, "project-0999/news": one}
	if diff := cmp.Diff(want, update.Categories); diff != "" || update.Total != many {
		t.Errorf("the update has total %d, and categories (-want +got):\n%s", update.Total, diff)
	}
}

// The arrays of a statement fit into the size that is estimated for them, and fill
// most of it, whatever the rows.
func TestArraysFitTheirRoom(t *testing.T) {
	types := pgtype.NewMap()
	pgwire.RegisterArrays(types)
	oid := func(value any) uint32 {
		switch value.(type) {
		case []int64:
			return pgtype.Int8ArrayOID
		case []bool:
			return pgtype.BoolArrayOID
		case pgwire.Bytes:
			return pgtype.ByteaArrayOID
		}
		return pgtype.TextArrayOID
	}
	users := map[string]*badge.User{}
	for i := range 2000 {
		u := badge.NewUser(fmt.Sprint("user ", i))
		users[u.ID] = u
		if i%2 == 0 { // there are rows of it
			u.Stored, u.HasRow = 1, true
			u.Conversation("c").Stored = true
		}
		for _, e := range []events.Event{
			foldtest.Deliver("c", 1, u.ID), foldtest.Deliver("c", 3, u.ID), foldtest.Deliver("other", 1, u.ID),
			foldtest.Event("1", events.MessageRecalled, "c", func(d *events.Data) { d.Seq = 3 }, u.ID),
			foldtest.Event("2", events.ConversationLevelSet, "c", foldtest.Level(events.LevelMentions), u.ID),
			foldtest.Event("3", events.ConversationLeft, "other", nil, u.ID),
		} {
			e.Data.MentionedUserIDs = e.Data.UserIDs
			(&badge.State{Users: users}).Fold(&e)
		}
	}
	var batch pgx.Batch
	all := NewTables(0).QueueWrites(&batch, Sorted(users), nil)
	sum := 0
	for _, q := range batch.QueuedQueries {
		bytes := 0
		for _, value := range q.Arguments {
			b, err := types.Encode(oid(value), pgtype.BinaryFormatCode, value, nil)
			if err != nil {
				t.Fatal(err)
			}
			bytes += len(b)
		}
		if room := q.Arguments[0].(pgwire.Leading).Bytes; room < bytes || room > bytes+arraysBytes*2 {
			t.Errorf("there is room for %d bytes, of %d, in %.60s", room, bytes, q.SQL)
		}
		sum += bytes
	}
	if len(batch.QueuedQueries) != 4 || all < sum {
		t.Errorf("%d statements take %d bytes, not %d", len(batch.QueuedQueries), sum, all)
	}
}
