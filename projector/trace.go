package projector

import (
	"time"

	"github.com/badged/badged/events"
)

// TracedBatch is a batch that was committed and holds events with a trace
// context.
type TracedBatch struct {
	Partition int
	// Size is how many events it holds.
	Size int
	// Began and Ended are when it was folded.
	Began, Ended time.Time
	// Events are those with a trace context, in the order of the log.
	Events []*events.Event
}

// trace tells Config.Trace of a committed batch, and puts into the updates the
// contexts of the events that caused them: of several the last. It comes before
// the updates are handed on.
func (p *partition) trace(b *batch, r result, began time.Time) {
	if p.projector.cfg.Trace == nil {
		return
	}
	traced := TracedBatch{Partition: p.id, Size: len(b.items), Began: began, Ended: time.Now()}
	for i := range b.items {
		if e := &b.items[i].event; e.TraceParent != "" {
			traced.Events = append(traced.Events, e)
		}
	}
	if len(traced.Events) == 0 {
		return
	}
	last := map[string]string{} // by user
	for i, context := range p.projector.cfg.Trace(traced) {
		for _, user := range traced.Events[i].Data.UserIDs {
			last[user] = context
		}
	}
	for i := range r.updates {
		r.updates[i].TraceParent = last[r.updates[i].UserID]
	}
}
