package store_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/store/storetest"
)

// at returns an event appended a time after foldtest.Noon.
func at(after time.Duration, e events.Event) events.Event {
	e.AppendedAt = foldtest.Noon.Add(after)
	return e
}

// A read by an app counts for one minute, and no longer, even if it is
// repeated.
func TestReadsAheadOfTheLog(t *testing.T) {
	n := 0
	reads := func(upTo int64) events.Event {
		n++
		return foldtest.Event(fmt.Sprint("read ", n), events.ConversationRead, "c", foldtest.ByApp(upTo), "ann")
	}
	message := func(seq int64) events.Event { return foldtest.Deliver("c", seq, "ann") }
	const sec = time.Second
	for _, tc := range []struct {
		name   string
		story  []events.Event
		unread string // of c, with the read position
	}{
		{"the first message of a user", []events.Event{at(0, reads(1)), at(sec, message(1))}, "{} above 1"},
		{"the next message", []events.Event{at(0, message(1)), at(sec, reads(2)), at(2*sec, message(2))}, "{} above 2"},
		{"a message in the last instant", []events.Event{at(0, reads(9)), at(60*sec, message(9))}, "{} above 9"},
		{"a message after it", []events.Event{at(0, reads(9)), at(60*sec+time.Microsecond, message(9))}, "{[9,10)} above 0"},
		{"a message beyond", []events.Event{at(0, reads(2)), at(sec, message(3))}, "{[3,4)} above 2"},
		{"messages out of order", []events.Event{at(0, reads(3)), at(sec, message(3)), at(2*sec, message(1)), at(3*sec, message(4))}, "{[4,5)} above 3"},
		{"a forged read", []events.Event{at(0, message(1)), at(sec, reads(math.MaxInt64)), at(2*sec, message(2)), at(62*sec, message(3))}, "{[3,4)} above 2"},
		{"a forged read, and an honest one later", []events.Event{
			at(0, reads(math.MaxInt64)), at(50*sec, reads(1)), at(70*sec, message(2)), at(71*sec, message(1)),
		}, "{[2,3)} above 1"},
		{"a large read, and a small one at once", []events.Event{at(0, reads(5)), at(sec, reads(2)), at(2*sec, message(4))}, "{} above 4"},
		{"a small read, and a large one later", []events.Event{at(0, reads(2)), at(50*sec, reads(5)), at(100*sec, message(4))}, "{} above 4"},
		{"the same forged read again and again", []events.Event{
			at(0, reads(math.MaxInt64)), at(30*sec, reads(math.MaxInt64)), at(91*sec, message(1)),
		}, "{[1,2)} above 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := storetest.NewMemory()
			for i := range tc.story {
				m.Commit(t, tc.story[i])
			}
			c := m.Users["ann"].Conversations["c"]
			if got := fmt.Sprintf("%s above %d", c.Unread.String(), c.ReadSeq); got != tc.unread {
				t.Errorf("after\n%sunread is %s, want %s", foldtest.Story(tc.story), got, tc.unread)
			}
		})
	}
}

// Reads of invented conversations leave no rows, and only the latest of them
// are kept.
func TestClaimsAreBounded(t *testing.T) {
	m := storetest.NewMemory()
	for i := range 10 * badge.MaxReadsAhead {
		m.Commit(t, at(0, foldtest.Event(fmt.Sprint(i), events.ConversationRead, fmt.Sprint("made up ", i), foldtest.ByApp(1), "ann")))
	}
	ann := m.Users["ann"]
	if len(ann.ReadsAhead) != badge.MaxReadsAhead || ann.ReadsAhead[0].Conversation != fmt.Sprint("made up ", 9*badge.MaxReadsAhead) {
		t.Errorf("%d claims, the first %+v", len(ann.ReadsAhead), ann.ReadsAhead[0])
	}
	if ann.Version != 0 {
		t.Errorf("the version is %d", ann.Version)
	}
	for _, c := range ann.Conversations {
		if c.Touched {
			t.Errorf("%s has a row", c.ID)
		}
	}
	// A minute later they have lapsed.
	m.Commit(t, at(2*time.Minute, foldtest.Deliver("c", 1, "ann")))
	if u := m.Users["ann"]; len(u.ReadsAhead) != 0 || u.Total != 1 {
		t.Errorf("claims %v, total %d", u.ReadsAhead, u.Total)
	}
}
