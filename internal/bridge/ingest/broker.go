// Package ingest reads events from message brokers and appends them to the log. The transaction
// that appends events also stores the position up to which the broker has been read. So every
// message counts exactly once, even if processes are killed.
//
// It does not know the fold. ADR 77 says why positions are in Postgres.
package ingest

import (
	"context"
	"fmt"
	"time"
)

// Broker is a connection to a message broker. It is safe for concurrent use.
type Broker interface {
	// Partitions returns the partitions to read, always in the same order. If a stream does
	// not exist, the error says what to do.
	Partitions(ctx context.Context) ([]Partition, error)
	// Open returns a reader that begins after the position `after`; "" means at the first message.
	Open(ctx context.Context, p Partition, after string) (Reader, error)
	// Close closes the connection. All readers must be closed before.
	Close()
}

// Reader reads one partition. It is not safe for concurrent use.
type Reader interface {
	// Next waits about a second at most for messages, and may return a batch without messages. Such
	// a batch still has the backlog, and the position if the position has changed. After an error
	// the caller closes the reader and opens a new one.
	Next(ctx context.Context) (Batch, error)
	Close()
}

// Partition is a part of a stream whose messages are ordered.
type Partition struct {
	// Stream is the name of the topic, stream or key.
	Stream string
	Number int
	// Numbered reports whether the stream has numbered partitions.
	Numbered bool
	// Incarnation is an identifier by which a stream differs from a deleted stream of the same
	// name. It is "" if the broker has no such identifier.
	Incarnation string
}

// String names the partition in messages for operators.
func (p Partition) String() string {
	if p.Numbered {
		return fmt.Sprintf("%s/%d", p.Stream, p.Number)
	}
	return p.Stream
}

// Batch has the messages of one read, in order.
type Batch struct {
	Messages []Message
	// Position is the position after the last message and any entries that directly follow it but
	// are no messages, such as Kafka's transaction markers. It is "" if the position has not
	// changed.
	Position string
	// Backlog is the approximate number of unread messages after the batch; negative if unknown.
	Backlog int64
	// Lost is an upper bound of the number of messages between the previous batch and this batch
	// that the broker deleted before they were read.
	Lost int64
	// Note describes an unusual condition, which the caller logs; usually "".
	Note string
}

// Message is one message of a broker.
type Message struct {
	// Position is the position after the message.
	Position string
	// Place identifies the message in its partition, for example an offset.
	Place string
	// Time is the timestamp set by the broker or the publisher.
	Time time.Time
	// Attributes has the attributes of an event in the binary mode of CloudEvents. The keys are
	// header names without the prefix. In structured mode Attributes is ignored: Body has the
	// attributes.
	Attributes map[string]string
	// ContentType is the content type of Body, "" if the message does not have one.
	ContentType string
	// Body is the whole event in structured mode, and only its data in binary mode.
	Body []byte
}

// These constants limit one batch. Appending a batch of this size in one transaction is efficient.
const (
	maxMessages = 2000
	maxBytes    = 4 << 20
)

// patience is how long one call to the broker waits for messages.
const patience = 500 * time.Millisecond
