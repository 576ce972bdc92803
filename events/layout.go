package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/badged/badged/internal/log/eventlog"
)

// Layout says to which partition each user belongs. It is immutable: each split makes a new
// layout.
//
// A log begins with n partitions, numbered from 0. A user belongs to partition h mod n, where h is
// the hash of the user. When a partition is split, it ends, and its users are divided between two
// new partitions: by h mod 2n at the first split, by h mod 4n at the second, and so on. The first n
// numbers are for partitions of the first level, the next 2n for the second level, the next 4n for
// the third, and so on. So the users of a partition follow from its number and n alone, whichever
// other partitions were split.
type Layout struct {
	n      int
	living eventlog.Set
	// numbers is greater than the number of every living partition.
	numbers int
	// split is true if at least one partition was split.
	split bool
}

// Layouts returns the present layout. [Log] implements Layouts. A [Layout] implements it too, and
// returns itself.
type Layouts interface {
	Layout() *Layout
}

// NewLayout returns the layout of a log that began with n partitions and now has the partitions in
// `living`; nil means that no partition was split. If `living` contains a partition and also a
// partition into which it was split, NewLayout ignores the split partition. This happens if one
// database has recorded the split and another one has not.
func NewLayout(n int, living []int) *Layout {
	l := &Layout{n: n}
	if living == nil {
		living = make([]int, n)
		for p := range living {
			living[p] = p
		}
	}
	for _, p := range living {
		l.living.Add(p)
		l.split = l.split || p >= n
		l.numbers = max(l.numbers, p+1)
	}
	var ended eventlog.Set
	for _, p := range living {
		for parent, ok := eventlog.Parent(p, n); ok; parent, ok = eventlog.Parent(parent, n) {
			ended.Add(parent)
		}
	}
	l.living.RemoveAll(&ended)
	l.numbers = max(l.numbers, n)
	return l
}

// Layout returns l, so that a Layout implements [Layouts].
func (l *Layout) Layout() *Layout { return l }

// First returns the number of partitions with which the log began.
func (l *Layout) First() int { return l.n }

// PartitionOf returns the partition of a user.
func (l *Layout) PartitionOf(userID string) int {
	h := eventlog.HashUser(userID)
	if !l.split {
		return h.Partition(l.n)
	}
	for base, modulus := 0, l.n; modulus <= MaxPartitions; base, modulus = base+modulus, 2*modulus {
		if p := base + h.Partition(modulus); l.living.Has(p) {
			return p
		}
	}
	return h.Partition(l.n) // no database has this partition, so appends and reads fail
}

// Lives reports whether a partition has users: whether it exists and was not split.
func (l *Layout) Lives(partition int) bool {
	return partition >= 0 && partition < eventlog.PartitionNumbers && l.living.Has(partition)
}

// Living returns the partitions that have users, in ascending order.
func (l *Layout) Living() []int { return slices.Collect(l.living.All()) }

// Len returns the number of partitions that have users.
func (l *Layout) Len() int { return l.living.Len() }

// Equal reports whether two layouts are the same.
func (l *Layout) Equal(other *Layout) bool { return *l == *other }

// Split returns a sentence, for messages to operators, that names the partitions into which a
// partition was split. It returns "" if the partition has users or never existed.
func (l *Layout) Split(partition int) string {
	a, b, ok := eventlog.Children(partition, l.n)
	if !ok || l.Lives(partition) || !l.began(a) && !l.began(b) {
		return ""
	}
	return fmt.Sprintf("partition %d was split into %d and %d", partition, a, b)
}

// Check returns an error that says why a partition has no users, or nil if it has users.
func (l *Layout) Check(partition int) error {
	if l.Lives(partition) {
		return nil
	}
	if split := l.Split(partition); split != "" {
		return errors.New(split)
	}
	if !l.split {
		return fmt.Errorf("there is no partition %d: they are numbered from 0 to %d", partition, l.n-1)
	}
	return fmt.Errorf("there is no partition %d: no split has made it", partition)
}

// began reports whether the partition has been created: it has users, or was split into partitions
// that have users, directly or by later splits.
func (l *Layout) began(partition int) bool {
	if l.Lives(partition) {
		return true
	}
	a, b, ok := eventlog.Children(partition, l.n)
	return ok && (l.began(a) || l.began(b))
}

func (l *Layout) groups(users []string) [][]string {
	groups := make([][]string, l.numbers)
	for _, u := range users {
		p := l.PartitionOf(u)
		groups[p] = append(groups[p], u)
	}
	return groups
}

// layoutSQL returns the number of partitions with which the log began (first) and the partitions
// that have users (living). living is null if no partition was split. The result is JSON, since
// database/sql cannot scan arrays.
const layoutSQL = `SELECT json_build_object('first', partitions, 'living', badged.living_partitions())::text FROM badged.settings`

// readLayout reads the layout from a database that has the whole log, not from one of several
// databases.
func readLayout(ctx context.Context, queryRow queryRow) (*Layout, error) {
	var text string
	if err := queryRow(ctx, layoutSQL, &text); err != nil {
		return nil, notMigrated(err)
	}
	var stored struct {
		First  int
		Living []int
	}
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return nil, fmt.Errorf("read the layout of the log: %w", err)
	}
	return NewLayout(stored.First, stored.Living), nil
}
