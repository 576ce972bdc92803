package events

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"math/bits"

	"github.com/google/uuid"
)

// MaxPartitions is the greatest number of partitions among which users are spread.
const MaxPartitions = 1024

// PartitionNumbers bounds the numbers of partitions: they are below it. Splitting a
// partition makes two with new numbers, see [Layout].
const PartitionNumbers = 2 * MaxPartitions

// PartitionOf returns the partition of a user among n that were never split: the first
// four bytes of the SHA-256 of its id, big-endian, modulo n. SHA-256 because Postgres has
// it built in, in every version and on every architecture.
func PartitionOf(userID string, n int) int { return HashUser(userID).Partition(n) }

// UserHash is the SHA-256 of a user's id.
type UserHash [sha256.Size]byte

// HashUser returns the hash of a user.
func HashUser(userID string) UserHash { return sha256.Sum256([]byte(userID)) }

// Partition returns the partition of the user among n that were never split.
func (h UserHash) Partition(n int) int {
	return int(uint64(binary.BigEndian.Uint32(h[:4])) % uint64(n)) //nolint:gosec // n is positive, and the result below it
}

// partitionSet is a set of partitions.
type partitionSet [PartitionNumbers / 64]uint64

func (s *partitionSet) add(partition int)      { s[partition/64] |= 1 << (partition % 64) }
func (s *partitionSet) has(partition int) bool { return s[partition/64]>>(partition%64)&1 != 0 }

func (s *partitionSet) addAll(other *partitionSet) {
	for i := range s {
		s[i] |= other[i]
	}
}

func (s *partitionSet) removeAll(other *partitionSet) {
	for i := range s {
		s[i] &^= other[i]
	}
}

func (s *partitionSet) overlaps(other *partitionSet) bool {
	for i := range s {
		if s[i]&other[i] != 0 {
			return true
		}
	}
	return false
}

func (s *partitionSet) len() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// all returns the partitions in ascending order.
func (s *partitionSet) all() iter.Seq[int] {
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

// Topic returns the watermill topic that is the log of a partition.
func Topic(partition int) string { return fmt.Sprintf("events_p%02d", partition) }

// keyNamespace keeps event keys apart from UUIDs that others derive from the
// same strings.
var keyNamespace = uuid.MustParse("6c1d7a34-5b0f-5d5e-9f0c-0c5f1b7b9ad1")

// Key returns the idempotency key of an event: a UUID of its (source, id), by
// which the projector recognizes a repeated event, and its message UUID in the
// log. It is a version 8 UUID of the SHA-256 of both, as in RFC 9562, appendix
// B.2: Postgres has no SHA-1 for a version 5 built in.
func (e *Event) Key() uuid.UUID {
	// Validate keeps control characters out of both, so that no other pair
	// gives the same bytes.
	var b [len(keyNamespace) + 2*MaxNameBytes + 1]byte
	name := append(b[:0], keyNamespace[:]...)
	name = append(name, e.Source...)
	name = append(name, 0)
	name = append(name, e.ID...)
	sum := sha256.Sum256(name)
	key := uuid.UUID(sum[:16])
	key[6] = key[6]&0x0f | 0x80 // the version
	key[8] = key[8]&0x3f | 0x80 // the variant
	return key
}
