package store

import (
	"fmt"
	"testing"

	"github.com/badged/badged/internal/devtest/foldtest"
)

// Users who have had an event are removed from the item, but not from other
// copies of the list.
func TestWithoutUsers(t *testing.T) {
	item := func(users ...string) Item {
		item, err := ItemOf(foldtest.Deliver("c", 1, users...), 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		return item
	}
	all := []string{"ann", "bob", "cem", "bob"}
	for _, tc := range []struct {
		had  []string
		left string
	}{
		{nil, "[ann bob cem bob]"},
		{[]string{"ann"}, "[bob cem bob]"},
		{[]string{"dan", "bob"}, "[ann cem]"},
		{[]string{"ann", "bob", "cem", "bob"}, "[]"},
		{[]string{"cem", "bob", "ann", "dan"}, "[]"},
	} {
		it := item(all...)
		any := it.RemoveUsers(item(tc.had...).Users)
		if got := fmt.Sprint(it.Event.Data.UserIDs); got != tc.left || any != (tc.left != "[]") || len(it.Users) != UserBytes*len(it.Event.Data.UserIDs) {
			t.Errorf("after %v %s are left (%v), want %s", tc.had, got, any, tc.left)
		}
		if got := fmt.Sprint(all); got != "[ann bob cem bob]" {
			t.Fatalf("after %v the list that others share is %s", tc.had, got)
		}
	}
}
