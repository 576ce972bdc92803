package store

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/fold/badge"
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
