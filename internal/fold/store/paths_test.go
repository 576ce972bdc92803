package store_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/store/storetest"
)

// A user with many paths has rows of paths until nothing is left, whatever the batches.
func TestManyPaths(t *testing.T) {
	var evs []events.Event
	for i := range badge.MaxInline {
		evs = append(evs, foldtest.InCategory(fmt.Sprintf("acme/%02d", i), foldtest.Deliver(fmt.Sprint("c", i), 1, "ann")))
	}
	single, whole := storetest.NewMemory(), storetest.NewMemory()
	whole.Commit(t, evs...)
	for i, e := range evs {
		single.Commit(t, e)
		// acme has numbers too.
		if rows := single.User("ann").Paths.Rows(); rows > 0 != (i+2 > badge.MaxInline) {
			t.Fatalf("with %d paths there are %d rows", i+2, rows)
		}
	}
	if diff := cmp.Diff(single.Describe("ann"), whole.Describe("ann")); diff != "" || whole.User("ann").Paths.Rows() != badge.MaxInline+1 {
		t.Errorf("%d rows; (-one by one +at once):\n%s", whole.User("ann").Paths.Rows(), diff)
	}
	read := foldtest.Event("all", events.UserReadAll, "", nil, "ann")
	again := foldtest.InCategory("acme/00", foldtest.Deliver("c0", 2, "ann"))
	for _, m := range []*storetest.Memory{single, whole} {
		m.Commit(t, read, again)
		if m.User("ann").Paths.HasRows() {
			t.Error("the paths of a user who has read everything have rows")
		}
		if diff := cmp.Diff((&foldtest.Model{Events: append(evs, read, again)}).Describe("ann"), m.Describe("ann")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
