package traffic

import (
	"errors"
	"fmt"
	"io"

	"github.com/badged/badged/events"
)

// maxBatchBytes limits the total length of the lines of a batch. It is half of the API's limit for
// a request. No event that the API accepts is longer than maxBatchBytes.
const maxBatchBytes = 4 << 20

// batch has consecutive events that are published in one call.
type batch struct {
	events []events.Event
	lines  []int // the line of each event
	bytes  int
	// ordered is true if the batch has an event whose order relative to other events affects the
	// numbers of badges.
	ordered bool
}

func (b *batch) add(r Record) {
	b.events = append(b.events, r.Event)
	b.lines = append(b.lines, r.Line)
	b.bytes += r.Size
	b.ordered = b.ordered || !commutes(r.Event.Type)
}

// failed wraps the error with which publishing b failed. The events of b come from `file`. If the
// server's answer names an event, the returned error names the line of this event; otherwise it
// names all lines of b.
func (b *batch) failed(file string, err error) error {
	first, last := b.lines[0], b.lines[len(b.lines)-1]
	err = fmt.Errorf("publish %s, lines %d to %d: %w", file, first, last, err)
	var refused *ServerError
	if !errors.As(err, &refused) {
		return err
	}
	for _, e := range refused.Events {
		if e.Index >= 0 && e.Index < len(b.lines) {
			return fmt.Errorf("%w; %w", err, &LineError{File: file, Line: b.lines[e.Index], Err: e})
		}
	}
	return err
}

// commutes reports whether events of a type lead to the same numbers of badges in any order.
func commutes(t events.Type) bool {
	switch t {
	case events.MessageDelivered, events.ConversationRead, events.ConversationExpired, events.MessageRecalled,
		events.RoomPosted, events.RoomRecalled:
		return true
	}
	return false
}

// batcher divides events into batches.
type batcher struct {
	// read returns the next event, or io.EOF after the last event.
	read func() (Record, error)
	// size is the maximum number of events in a batch.
	size int
	held *Record // an event that did not fit into the last batch
}

// next returns the next batch, or io.EOF after the last batch. If it reads a bad line, it returns
// the error without a batch, so the events between the previous batch and the bad line are not
// published.
func (b *batcher) next() (batch, error) {
	var next batch
	if b.held != nil {
		next.add(*b.held)
		b.held = nil
	}
	for len(next.events) < b.size {
		r, err := b.read()
		if errors.Is(err, io.EOF) && len(next.events) > 0 {
			return next, nil
		}
		if err != nil {
			return batch{}, err
		}
		if len(next.events) > 0 && next.bytes+r.Size > maxBatchBytes {
			b.held = &r
			return next, nil
		}
		next.add(r)
	}
	return next, nil
}
