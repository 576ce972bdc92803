package projector

import (
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/store"
)

// TracedBatch is a committed batch with traced events.
type TracedBatch struct {
	Partition int
	// Size is the number of decoded events in the batch.
	Size int
	// Began and Ended are when folding began and ended.
	Began, Ended time.Time
	// Events has the events that have a trace context, in the order of the log.
	Events []*events.Event
}

// trace calls Config.Trace for a committed batch. Each update gets the trace context of the
// last event that caused it. trace must be called before the updates are published.
func (p *partition) trace(b *store.Batch, r store.Result, began time.Time) {
	if p.projector.cfg.Trace == nil {
		return
	}
	traced := TracedBatch{Partition: p.id, Size: len(b.Items), Began: began, Ended: time.Now()}
	for i := range b.Items {
		if e := &b.Items[i].Event; e.TraceParent != "" {
			traced.Events = append(traced.Events, e)
		}
	}
	if len(traced.Events) == 0 {
		return
	}
	users, rooms := map[string]string{}, map[string]string{}
	for i, context := range p.projector.cfg.Trace(traced) {
		d := &traced.Events[i].Data
		for _, user := range d.UserIDs {
			users[user] = context
		}
		for _, user := range d.MentionedUserIDs {
			users[user] = context
		}
		users[d.SenderID] = context // a message to a room also changes the membership of its sender
		rooms[d.ConversationID] = context
	}
	for i := range r.Updates.Users {
		r.Updates.Users[i].TraceParent = users[r.Updates.Users[i].UserID]
	}
	for i := range r.Updates.Rooms {
		r.Updates.Rooms[i].TraceParent = rooms[r.Updates.Rooms[i].ConversationID]
	}
}
