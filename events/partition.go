package events

import (
	"crypto/sha256"

	"github.com/google/uuid"

	"github.com/badged/badged/internal/eventlog"
)

// MaxPartitions is the greatest number of partitions among which users are spread.
const MaxPartitions = eventlog.MaxPartitions

// PartitionOf returns the partition of a user among n that were never split: the first
// four bytes of the SHA-256 of its id, big-endian, modulo n. SHA-256 because Postgres has
// it built in, in every version and on every architecture. Among less than 1 it is 0.
func PartitionOf(userID string, n int) int { return eventlog.PartitionOf(userID, max(n, 1)) }

// Topic returns the watermill topic that is the log of a partition.
func Topic(partition int) string { return eventlog.Topic(partition) }

// Layout says in which partition each user is. It does not change: when a partition is
// split, there is another layout.
//
// A log begins with n partitions, numbered from 0, and a user is in partition h mod n,
// where h is the hash of the user. A partition that is split ends, and two others take
// its users, by h mod 2n: after the n partitions of the first level come numbers for 2n
// of the second, for 4n of the third, and so on. So the number of a partition and n say
// which users belong to it, whatever was split since.
type Layout eventlog.Layout

// NewLayout returns the layout of a log that began with n partitions and has the living
// ones now; nil means that none was split.
func NewLayout(n int, living []int) *Layout { return (*Layout)(eventlog.NewLayout(n, living)) }

// Layouts tells the present layout: a [Log] does, or a Layout that does not change.
type Layouts interface {
	Layout() *Layout
}

func (l *Layout) core() *eventlog.Layout { return (*eventlog.Layout)(l) }

// Layout returns l: it does not change.
func (l *Layout) Layout() *Layout { return l }

// First returns with how many partitions the log began.
func (l *Layout) First() int { return l.core().First() }

// PartitionOf returns the partition of a user.
func (l *Layout) PartitionOf(userID string) int { return l.core().PartitionOf(userID) }

// Lives reports whether a partition has users: it exists and was not split.
func (l *Layout) Lives(partition int) bool { return l.core().Lives(partition) }

// Living returns the partitions that have users, in ascending order.
func (l *Layout) Living() []int { return l.core().Living() }

// Len returns how many partitions have users.
func (l *Layout) Len() int { return l.core().Len() }

// Split says, for people, what became of a partition that has no users: "" if it never
// existed.
func (l *Layout) Split(partition int) string { return l.core().Split(partition) }

// Check returns why a partition does not live, nil if it does.
func (l *Layout) Check(partition int) error { return l.core().Check(partition) }

// Equal reports whether two layouts are the same.
func (l *Layout) Equal(other *Layout) bool { return l.core().Equal(other.core()) }

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
