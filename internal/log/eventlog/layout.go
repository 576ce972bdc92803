package eventlog

// Belongs reports whether a user belongs to a partition. n is the initial number of partitions
// of the log.
func Belongs(userID string, partition, n int) bool { return HashUser(userID).In(partition, n) }

// In reports whether the user belongs to a partition. n is the initial number of partitions of
// the log.
func (h UserHash) In(partition, n int) bool {
	base, modulus := level(partition, n)
	return base+h.Partition(modulus) == partition
}

// Children returns the numbers of the two partitions into which a partition can be split. n is the
// initial number of partitions of the log. The children belong to the next level (see level); ok is
// false if that level would have more than MaxPartitions partitions.
func Children(partition, n int) (a, b int, ok bool) {
	base, modulus := level(partition, n)
	if partition < 0 || 2*modulus > MaxPartitions {
		return 0, 0, false
	}
	a = base + modulus + partition - base
	return a, a + modulus, true
}

// Parent returns the partition whose split created a partition. n is the initial number of
// partitions of the log. ok is false for an initial partition.
func Parent(partition, n int) (parent int, ok bool) {
	base, modulus := level(partition, n)
	if base == 0 {
		return 0, false
	}
	half := modulus / 2
	return base - half + (partition-base)%half, true
}

// Ancestor returns the initial partition from which a partition came by one or more splits.
// For an initial partition, it returns the partition itself. n is the initial number of
// partitions of the log.
func Ancestor(partition, n int) int {
	base, _ := level(partition, n)
	return (partition - base) % n
}

// level returns the lowest partition number in the level of a partition (base), and the number
// of partitions in this level (modulus). The n initial partitions are the first level. The
// children of all partitions of a level are the next level, which has twice as many
// partitions.
func level(partition, n int) (base, modulus int) {
	for modulus = n; partition >= base+modulus; modulus *= 2 {
		base += modulus
	}
	return base, modulus
}
