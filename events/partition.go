package events

import (
	"crypto/sha256"

	"github.com/google/uuid"

	"github.com/badged/badged/internal/log/eventlog"
)

// MaxPartitions is the maximum number of partitions that users are distributed among.
const MaxPartitions = eventlog.MaxPartitions

// PartitionOf returns the partition of a user among n partitions that were never split: the first
// four bytes of the SHA-256 of the id, big-endian, modulo n. If n < 1, it returns 0. It uses
// SHA-256, since Postgres can compute the same value without extensions, on every architecture.
func PartitionOf(userID string, n int) int { return eventlog.PartitionOf(userID, max(n, 1)) }

// Topic returns the watermill topic that is the log of a partition.
func Topic(partition int) string { return eventlog.Topic(partition) }

// keyNamespace is hashed into each event key, so that event keys differ from UUIDs that other
// programs derive from the same strings.
var keyNamespace = uuid.MustParse("6c1d7a34-5b0f-5d5e-9f0c-0c5f1b7b9ad1")

// Key returns the key of an event, by which the projector recognizes a repeated event. The key
// is a version 8 UUID made of the SHA-256 of source and id, as in RFC 9562, appendix B.2.
// Version 5 would need SHA-1, which Postgres does not have built in. A row of the log with one
// event has this key as its message UUID.
func (e *Event) Key() uuid.UUID {
	// Separate source and id by a zero byte. Validate rejects control characters in both, so two
	// different pairs never give the same bytes.
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
