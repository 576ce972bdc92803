package events

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

// level returns the first number of the level of a partition, and how many it has.
func level(partition, n int) (base, modulus int) {
	for modulus = n; partition >= base+modulus; modulus *= 2 {
		base += modulus
	}
	return base, modulus
}
