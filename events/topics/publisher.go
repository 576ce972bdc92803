// Package topics gives watermill access to the log of events. It has a publisher and a subscriber
// whose messages are single events, and a schema with which the publishers and subscribers of
// watermill-sql can use the tables. The log of a partition is a topic, named by [events.Topic].
//
// The package does not know what events mean or how they are folded. ADR 1 has the reasons.
package topics

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/badged/badged/events"
)

// Publisher is a watermill [message.Publisher] of events. It is safe for
// concurrent use.
type Publisher struct {
	log    *events.Log
	closed atomic.Bool
}

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher returns a publisher that appends to `log`. It need not be closed.
func NewPublisher(log *events.Log) *Publisher { return &Publisher{log: log} }

// Publish appends all messages in one transaction. If Publish fails, it has appended no message,
// except if the connection broke during the commit: then all or none are appended. The payload of
// each message is an event as CloudEvents JSON. The UUID and metadata of a message are not used: an
// event is identified by its source and id, and carries its own trace context. Publish uses the
// context of the first message.
//
// Each event is appended to the partitions of its users, and topic must be the topic of one of
// these partitions. If an event has users of several partitions, publish it once, to the topic of
// any of these partitions: the subscribers of each partition get the event with the users of that
// partition. An event without users is appended to every partition, whichever topic is given.
//
// The error wraps a [*events.BatchError] with the indexes of messages if an event is invalid, has a
// type or attribute that only badged may write, or has no user of the topic's partition. After any
// other error the events may be durable: publish them again, since repeated events count once.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	if p.closed.Load() {
		return fmt.Errorf("publish to topic %s: the publisher is closed", topic)
	}
	partition, err := p.log.PartitionOfTopic(topic)
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	if len(messages) == 0 {
		return nil
	}
	evs := make([]events.Event, len(messages))
	var bad events.BatchError
	for i, msg := range messages {
		var invalid *events.InvalidError
		if evs[i], err = p.decode(msg.Payload, partition); errors.As(err, &invalid) {
			bad.Events = append(bad.Events, events.IndexedError{Index: i, Err: invalid})
		}
	}
	if len(bad.Events) > 0 {
		return fmt.Errorf("publish to topic %s: %w", topic, &bad)
	}
	if _, err := p.log.Append(messages[0].Context(), evs...); err != nil {
		return fmt.Errorf("publish to topic %s: %w", topic, err)
	}
	return nil
}

// decode decodes an event and checks that it may be published to a partition. The error is an
// [*events.InvalidError].
func (p *Publisher) decode(payload []byte, partition int) (events.Event, error) {
	e, err := events.Decode(payload)
	if err != nil {
		return events.Event{}, err
	}
	if err := e.CheckReserved(); err != nil {
		return events.Event{}, err
	}
	users := e.Data.UserIDs
	if len(users) > 0 && !slices.ContainsFunc(users, func(user string) bool { return p.log.PartitionOf(user) == partition }) {
		return events.Event{}, &events.InvalidError{Fields: []events.FieldError{{
			Field:   "data.user_ids",
			Message: fmt.Sprintf("has no user of topic %s; publish the event to %s, the topic of its first user", events.Topic(partition), events.Topic(p.log.PartitionOf(users[0]))),
		}}}
	}
	return e, nil
}

// Close makes later calls of Publish fail. It does not wait for calls in progress. Every Publish
// that returned nil has committed.
func (p *Publisher) Close() error {
	p.closed.Store(true)
	return nil
}
