package eventlog

import (
	"errors"
	"fmt"
	"slices"
)

// Layout says in which partition each user is. It does not change: when a partition is
// split, there is another layout.
//
// A log begins with n partitions, numbered from 0, and a user is in partition h mod n,
// where h is the hash of the user. A partition that is split ends, and two others take
// its users, by h mod 2n: after the n partitions of the first level come numbers for 2n
// of the second, for 4n of the third, and so on. So the number of a partition and n say
// which users belong to it, whatever was split since.
type Layout struct {
	n      int
	living Set
	// numbers is above the number of each living partition.
	numbers int
	// split is set once any partition was split.
	split bool
}

// NewLayout returns the layout of a log that began with n partitions and has the living
// ones now; nil means that none was split. A partition with one that came from it is not
// living: a shard that got the latter need not have heard of the split.
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
	var ended Set
	for _, p := range living {
		for parent, ok := Parent(p, n); ok; parent, ok = Parent(parent, n) {
			ended.Add(parent)
		}
	}
	l.living.RemoveAll(&ended)
	l.numbers = max(l.numbers, n)
	return l
}

// First returns with how many partitions the log began.
func (l *Layout) First() int { return l.n }

// PartitionOf returns the partition of a user.
func (l *Layout) PartitionOf(userID string) int { return l.OfHash(HashUser(userID)) }

// OfHash returns the partition of a user with a hash.
func (l *Layout) OfHash(h UserHash) int {
	if !l.split {
		return h.Partition(l.n)
	}
	for base, modulus := 0, l.n; modulus <= MaxPartitions; base, modulus = base+modulus, 2*modulus {
		if p := base + h.Partition(modulus); l.living.Has(p) {
			return p
		}
	}
	return h.Partition(l.n) // no database holds it, which whatever uses it is told
}

// Lives reports whether a partition has users: it exists and was not split.
func (l *Layout) Lives(partition int) bool {
	return partition >= 0 && partition < PartitionNumbers && l.living.Has(partition)
}

// Living returns the partitions that have users, in ascending order.
func (l *Layout) Living() []int { return slices.Collect(l.living.All()) }

// Len returns how many partitions have users.
func (l *Layout) Len() int { return l.living.Len() }

// Equal reports whether two layouts are the same.
func (l *Layout) Equal(other *Layout) bool { return *l == *other }

// Split says, for people, what became of a partition that has no users: "" if it never
// existed.
func (l *Layout) Split(partition int) string {
	a, b, ok := Children(partition, l.n)
	if !ok || l.Lives(partition) || !l.began(a) && !l.began(b) {
		return ""
	}
	return fmt.Sprintf("partition %d was split into %d and %d", partition, a, b)
}

// Check returns why a partition does not live, nil if it does.
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

// began reports whether a partition lives, or any that came from it.
func (l *Layout) began(partition int) bool {
	if l.Lives(partition) {
		return true
	}
	a, b, ok := Children(partition, l.n)
	return ok && (l.began(a) || l.began(b))
}

// Belongs reports whether a user belongs to a partition of a log that began with n.
func Belongs(userID string, partition, n int) bool { return HashUser(userID).In(partition, n) }

// In reports whether the user belongs to a partition of a log that began with n.
func (h UserHash) In(partition, n int) bool {
	base, modulus := level(partition, n)
	return base+h.Partition(modulus) == partition
}

// Children returns the partitions into which one is split, in a log that began with n. It
// returns false if there would be too many.
func Children(partition, n int) (a, b int, ok bool) {
	base, modulus := level(partition, n)
	if partition < 0 || 2*modulus > MaxPartitions {
		return 0, 0, false
	}
	a = base + modulus + partition - base
	return a, a + modulus, true
}

// Parent returns the partition that was split into one, in a log that began with n. It
// returns false for a partition of the first level.
func Parent(partition, n int) (parent int, ok bool) {
	base, modulus := level(partition, n)
	if base == 0 {
		return 0, false
	}
	half := modulus / 2
	return base - half + (partition-base)%half, true
}

// Ancestor returns the partition of the first level from which one came by splitting, or
// itself, in a log that began with n.
func Ancestor(partition, n int) int {
	base, _ := level(partition, n)
	return (partition - base) % n
}

// level returns the first number of the level of a partition, and how many it has.
func level(partition, n int) (base, modulus int) {
	for modulus = n; partition >= base+modulus; modulus *= 2 {
		base += modulus
	}
	return base, modulus
}

// Groups groups users by partition.
func (l *Layout) Groups(users []string) [][]string {
	groups := make([][]string, l.numbers)
	for _, u := range users {
		p := l.PartitionOf(u)
		groups[p] = append(groups[p], u)
	}
	return groups
}

// Set returns the partitions that have users.
func (l *Layout) Set() Set { return l.living }

// Numbers returns a number above that of each partition that has users.
func (l *Layout) Numbers() int { return l.numbers }
