// Package logview reads the log for people.
package logview

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/internal/logread"
)

// Filter says which events a View has. The zero Filter lets all in.
type Filter struct {
	// Partitions are those to read; nil means all.
	Partitions []int
	// User, if not empty, is one of the users of each event, and Conversation is
	// its conversation. Events that cannot be decoded have neither.
	User, Conversation string
	// Since and Until, if not zero, are the first and the last time of appending.
	Since, Until time.Time
}

// wants reports whether the filter lets an event in.
func (f *Filter) wants(r *events.Record) bool {
	if r.AppendedAt.Before(f.Since) || !f.Until.IsZero() && r.AppendedAt.After(f.Until) {
		return false
	}
	if f.User == "" && f.Conversation == "" {
		return true
	}
	e, err := events.Decode(r.Payload)
	return err == nil && (f.User == "" || slices.Contains(e.Data.UserIDs, f.User)) &&
		(f.Conversation == "" || e.Data.ConversationID == f.Conversation)
}

// View reads what is folded, each event once, in the order of folding. Events
// that are not folded yet have no final place. It is not safe for concurrent use.
type View struct {
	q      events.Querier
	filter Filter
	at     map[int]events.Position
}

// New returns a view of a log from its start. It is what q can read of it.
func New(q events.Querier, log *events.Log, f Filter) *View {
	if f.Partitions == nil {
		for p := range log.Partitions() {
			f.Partitions = append(f.Partitions, p)
		}
	}
	return &View{q: q, filter: f, at: map[int]events.Position{}}
}

// What is read at once.
const (
	pageEvents = 5000
	pageBytes  = 8 << 20
)

// Next calls visit with each event that was folded since the last call, one
// partition after the other. visit must not keep the record.
func (v *View) Next(ctx context.Context, visit func(partition int, r *events.Record) error) error {
	for _, p := range v.filter.Partitions {
		end, err := logread.Load(ctx, v.q, p, "")
		if err != nil {
			return err
		}
		size := logread.Size{Events: pageEvents, Bytes: pageBytes}
		for v.at[p].Before(end.Position) {
			records, err := logread.Folded(ctx, v.q, p, v.at[p], end, &size)
			if err != nil {
				return err
			}
			for i := range records {
				if !v.filter.wants(&records[i]) {
					continue
				}
				if err := visit(p, &records[i]); err != nil {
					return fmt.Errorf("show %s of partition %d: %w", records[i].Place, p, err)
				}
			}
			v.at[p] = end.Position
			if len(records) > 0 {
				v.at[p] = records[len(records)-1].Position
			}
		}
	}
	return nil
}
