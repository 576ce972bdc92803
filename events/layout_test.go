package events_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/log/eventlog"
)

// However partitions are split, each user is in one living partition, the one to which the
// number says that the user belongs, and users whose partition was not split stay.
func TestLayouts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "first")
		var users []string
		for i := range 60 {
			users = append(users, fmt.Sprint("user-", i))
		}
		layout := events.NewLayout(n, nil)
		for range rapid.IntRange(0, 12).Draw(t, "splits") {
			living := layout.Living()
			p := rapid.SampledFrom(living).Draw(t, "partition")
			a, b, ok := eventlog.Children(p, n)
			if !ok {
				continue
			}
			for _, child := range []int{a, b} {
				if parent, ok := eventlog.Parent(child, n); !ok || parent != p {
					t.Fatalf("the parent of %d is %d, %v, want %d", child, parent, ok, p)
				}
				if eventlog.Ancestor(child, n) != eventlog.Ancestor(p, n) {
					t.Fatalf("the ancestor of %d is %d, that of %d is %d", child, eventlog.Ancestor(child, n), p, eventlog.Ancestor(p, n))
				}
			}
			next := events.NewLayout(n, append(slices.DeleteFunc(slices.Clone(living), func(other int) bool { return other == p }), a, b))
			for _, u := range users {
				was, is := layout.PartitionOf(u), next.PartitionOf(u)
				if was != is && (was != p || is != a && is != b) {
					t.Fatalf("%s was in %d and is in %d after splitting %d into %d and %d", u, was, is, p, a, b)
				}
				var belongs []int
				for _, q := range next.Living() {
					if eventlog.Belongs(u, q, n) {
						belongs = append(belongs, q)
					}
				}
				if !slices.Equal(belongs, []int{is}) {
					t.Fatalf("%s belongs to %v, and the layout says %d", u, belongs, is)
				}
				if eventlog.Ancestor(is, n) != events.PartitionOf(u, n) {
					t.Fatalf("%s began in %d, and %d came from %d", u, events.PartitionOf(u, n), is, eventlog.Ancestor(is, n))
				}
			}
			if next.Lives(p) || next.Check(p) == nil || next.Split(p) != fmt.Sprintf("partition %d was split into %d and %d", p, a, b) {
				t.Fatalf("of partition %d the layout says %v, %q", p, next.Check(p), next.Split(p))
			}
			layout = next
		}
		for _, p := range []int{-1, eventlog.PartitionNumbers} {
			if layout.Check(p) == nil || layout.Split(p) != "" {
				t.Fatalf("of partition %d the layout says %v, %q", p, layout.Check(p), layout.Split(p))
			}
		}
	})
}

// There are at most 1,024 partitions of a level.
func TestPartitionsAreSplitUpToALimit(t *testing.T) {
	t.Parallel()
	p, levels := 0, 0
	for {
		_, b, ok := eventlog.Children(p, 4)
		if !ok {
			break
		}
		p, levels = b, levels+1
	}
	if levels != 8 || p >= eventlog.PartitionNumbers {
		t.Errorf("partition 0 of 4 was split %d times, the last is %d", levels, p)
	}
	if _, _, ok := eventlog.Children(0, 600); ok {
		t.Error("600 partitions can be split into 1,200")
	}
}

// A partition with a living descendant has ended, also for a shard that has not heard of the
// split.
func TestAPartitionWithADescendantHasEnded(t *testing.T) {
	t.Parallel()
	layout := events.NewLayout(2, []int{0, 1, 8}) // 0 was split into 2 and 4, and 4 into 8 and 12
	if got := layout.Living(); !slices.Equal(got, []int{1, 8}) {
		t.Errorf("living are %v, want 1 and 8", got)
	}
	if split := layout.Split(0); split != "partition 0 was split into 2 and 4" {
		t.Errorf("of partition 0 it says %q", split)
	}
	if err := layout.Check(5); err == nil || err.Error() != "there is no partition 5: no split has made it" {
		t.Errorf("of a partition between those that there are it says %v", err)
	}
}
