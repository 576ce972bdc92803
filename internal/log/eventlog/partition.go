// Package eventlog has the parts of the log that badged's own packages share, and that the public
// package events does not export: how partitions are numbered and split, and the values that the
// context of an append carries.
//
// It does not know events, or how they are folded. ADR 151 explains why the log is divided
// into ranges. ADR 85 explains positions.
package eventlog

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"math/bits"
)

// MaxPartitions is the maximum number of partitions into which the users of a log are
// divided.
const MaxPartitions = 1024

// PartitionNumbers is the exclusive upper bound of partition numbers. It is greater than
// MaxPartitions, since a split creates two partitions with new numbers; see [Children].
const PartitionNumbers = 2 * MaxPartitions

// PartitionOf returns the partition of a user among n partitions that were never split: the
// first four bytes of the SHA-256 of the user id, big-endian, modulo n. SHA-256 is used because
// SQL can compute it in every version of Postgres and on every architecture.
func PartitionOf(userID string, n int) int { return HashUser(userID).Partition(n) }

// UserHash is the SHA-256 of a user's id.
type UserHash [sha256.Size]byte

// HashUser returns the hash of a user.
func HashUser(userID string) UserHash { return sha256.Sum256([]byte(userID)) }

// Partition returns the partition of the user among n partitions that were never split.
func (h UserHash) Partition(n int) int {
	return int(uint64(binary.BigEndian.Uint32(h[:4])) % uint64(n)) //nolint:gosec // n is positive, and the result below it
}

// Topic returns the watermill topic that has the log of a partition.
func Topic(partition int) string { return fmt.Sprintf("events_p%02d", partition) }

// Set is a set of partitions.
type Set [PartitionNumbers / 64]uint64

// Add adds a partition.
func (s *Set) Add(partition int) { s[partition/64] |= 1 << (partition % 64) }

// Has reports whether s has a partition.
func (s *Set) Has(partition int) bool { return s[partition/64]>>(partition%64)&1 != 0 }

// AddAll adds the partitions of another set.
func (s *Set) AddAll(other *Set) {
	for i := range s {
		s[i] |= other[i]
	}
}

// RemoveAll removes the partitions of another set.
func (s *Set) RemoveAll(other *Set) {
	for i := range s {
		s[i] &^= other[i]
	}
}

// Overlaps reports whether the sets share a partition.
func (s *Set) Overlaps(other *Set) bool {
	for i := range s {
		if s[i]&other[i] != 0 {
			return true
		}
	}
	return false
}

// Len returns the number of partitions in s.
func (s *Set) Len() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// All returns the partitions in ascending order.
func (s *Set) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, word := range s {
			for ; word != 0; word &= word - 1 {
				if !yield(64*i + bits.TrailingZeros64(word)) {
					return
				}
			}
		}
	}
}
