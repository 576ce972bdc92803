package store

import (
	"testing"
	"time"

	"github.com/badged/badged/events"
)

// The fold time of an event is that of its record, or else its append time,
// and never goes back.
func TestFoldTimes(t *testing.T) {
	at := func(n int) time.Time { return time.Date(2026, 1, 1, 0, 0, n, 0, time.UTC) }
	place := func(n int) events.Position { return events.Position{TransactionID: int64(n)} }
	f := FoldTimes{records: []lateRecord{{to: place(2)}, {to: place(4), foldedAt: at(40)}, {to: place(6)}}}
	for i, want := range []int{1, 2, 40, 40, 40, 40, 47, 47} {
		appended := []int{1, 2, 3, 4, 5, 6, 47, 8}[i]
		if got := f.FoldedAt(&events.Record{Place: events.Place{Position: place(i + 1)}, AppendedAt: at(appended)}); got != at(want) {
			t.Errorf("event %d was folded at %v, want %v", i+1, got, at(want))
		}
	}
}
