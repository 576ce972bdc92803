package events

import (
	"crypto/sha256"

	"github.com/google/uuid"

	"github.com/badged/badged/internal/log/eventlog"
)

// MaxPartitions is the greatest number of partitions that users are distributed among.
const MaxPartitions = eventlog.MaxPartitions

// PartitionOf returns the partition of a user among n partitions that were never split: the
// first four bytes of the SHA-256 of the id, big-endian, modulo n. If n < 1, it is 0. SHA-256
// is used since it is built into every version of Postgres, on every architecture.
func PartitionOf(userID string, n int) int { return eventlog.PartitionOf(userID, max(n, 1)) }

// Topic returns the watermill topic that is the log of a partition.
func Topic(partition int) string { return eventlog.Topic(partition) }

// keyNamespace makes event keys differ from UUIDs that other programs derive from the same
// strings.
var keyNamespace = uuid.MustParse("6c1d7a34-5b0f-5d5e-9f0c-0c5f1b7b9ad1")

// Key returns the key of an event: a UUID of its source and id, by which the projector
// recognizes a repeated event. It is also the UUID of the message in the log. It is a version
// 8 UUID of the SHA-256 of both, as in RFC 9562, appendix B.2. It is not a version 5 UUID,
// since Postgres has no built-in SHA-1.
func (e *Event) Key() uuid.UUID {
	// Validate rejects control characters in both, so no other pair has the same bytes.
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
