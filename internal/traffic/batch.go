package traffic

import (
	"errors"
	"fmt"
	"io"

	"github.com/badged/badged/events"
)

// maxBatchBytes bounds the lines of a batch: half of the API's limit, which no
// event exceeds.
const maxBatchBytes = 4 << 20

// batch is a run of events that is published in one call.
type batch struct {
	events []events.Event
	lines  []int // the line of each event
	bytes  int
	// ordered is set if an event in it must neither overtake earlier events
	// nor be overtaken by later ones.
	ordered bool
}

func (b *batch) add(r Record) {
	b.events = append(b.events, r.Event)
	b.lines = append(b.lines, r.Line)
	b.bytes += r.Size
	b.ordered = b.ordered || !commutes(r.Event.Type)
}

// failed wraps an error of publishing b, which was read from file, with the
// lines concerned: the line at fault if the server names it.
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

// commutes reports whether events of type t give the same counts in any order
// among themselves.
func commutes(t events.Type) bool {
	switch t {
	case events.MessageDelivered, events.ConversationRead, events.ConversationExpired, events.MessageRecalled,
		events.RoomPosted, events.RoomRecalled:
		return true
	}
	return false
}

// batcher groups events.
type batcher struct {
	// read returns the next event, or io.EOF after the last one.
	read func() (Record, error)
	// size is the most events in a batch.
	size int
	held *Record // read, but did not fit into the last batch
}

// next returns the next batch, or io.EOF after the last one. Events just
// before a bad line are not returned: nothing from there on is published.
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
