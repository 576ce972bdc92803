// Package ingest reads events from brokers and appends them to the log. The position in
// the broker moves in the transaction that appends, so every message counts exactly
// once, whatever is killed.
//
// It does not know the fold. ADR 77 says why positions are in Postgres.
package ingest

import (
	"context"
	"fmt"
	"time"
)

// Broker is a connection to where messages come from. It is safe for concurrent use.
type Broker interface {
	// Partitions returns what there is to read, always in the same order. Its error says
	// what to do if a stream does not exist.
	Partitions(ctx context.Context) ([]Partition, error)
	// Open returns a reader of a partition that begins behind a position, or at the
	// first message if that is "".
	Open(ctx context.Context, p Partition, behind string) (Reader, error)
	// Close ends the connection. No reader is used any more.
	Close()
}

// Reader reads one partition. It is not safe for concurrent use.
type Reader interface {
	// Next waits until there are messages, but not for much longer than a second. A
	// batch without messages says how the partition is. After an error the reader is
	// closed and another is opened.
	Next(ctx context.Context) (Batch, error)
	Close()
}

// Partition is a part of a stream whose messages have an order.
type Partition struct {
	// Stream is what the broker calls it: the topic, stream or key.
	Stream string
	Number int
	// Numbered is whether the stream has partitions.
	Numbered bool
	// Incarnation differs between streams that had the same name one after the other. It
	// is "" if the broker cannot tell them apart.
	Incarnation string
}

// String returns the partition as people read it.
func (p Partition) String() string {
	if p.Numbered {
		return fmt.Sprintf("%s/%d", p.Stream, p.Number)
	}
	return p.Stream
}

// Batch is what was read at once, in order.
type Batch struct {
	Messages []Message
	// Position is behind the last message, and behind what the broker passes over
	// there. It is "" if nothing has changed.
	Position string
	// Backlog is about how many messages of the broker are not read, those of the batch
	// aside; below 0 if it is not known.
	Backlog int64
	// Lost is how many messages, at most, the broker deleted before they were read; they
	// came before those of the batch.
	Lost int64
	// Note is something unusual that happened, for the log; mostly "".
	Note string
}

// Message is one message of a broker.
type Message struct {
	// Position is behind the message.
	Position string
	// Place is the message in its partition, such as an offset.
	Place string
	// Time is when the broker, or its publisher, says it came.
	Time time.Time
	// Attributes are those of a CloudEvent in binary mode, without their prefix; nil in
	// structured mode.
	Attributes map[string]string
	// ContentType is that of Body; "" if none was given.
	ContentType string
	// Body is the event in structured mode, and its data in binary mode.
	Body []byte
}

// Limits of one batch: as much as one transaction appends well.
const (
	maxMessages = 2000
	maxBytes    = 4 << 20
)

// patience is how long a reader waits for messages.
const patience = 500 * time.Millisecond
