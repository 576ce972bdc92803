package replay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/fold/badge"
)

// tellHistory tells a history and messages in lines, without times and positions.
func tellHistory(e Explanation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d", e.History.Before)
	for _, s := range e.History.Steps {
		fmt.Fprintf(&b, ", %d by %s", s.Total, s.ID)
	}
	for _, m := range e.Delivered.Messages {
		fmt.Fprintf(&b, "\n%s %d %s", m.ConversationID, m.Seq, m.Fate)
		if m.By != nil {
			fmt.Fprintf(&b, " by %s", m.By.ID)
		}
	}
	return b.String()
}

func TestExplainedHistory(t *testing.T) {
	ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
	again := foldtest.Deliver("c", 2, ann)
	again.ID = "again"
	d := projectortest.New(t)
	d.Append(
		t, foldtest.Deliver("c", 1, ann, bob), foldtest.Deliver("c", 2, ann), again, foldtest.Deliver("d", 5, ann), foldtest.Deliver("d", 6, bob),
		foldtest.Event("r", events.ConversationRead, "c", foldtest.UpTo(1), ann),
		foldtest.Event("x", events.MessageRecalled, "d", func(d *events.Data) { d.Seq = 5 }, ann),
		foldtest.Event("n", events.ConversationLevelSet, "c", foldtest.Level(events.LevelNone), ann),
		foldtest.Deliver("c", 3, ann),
		foldtest.Event("own", events.MessageDelivered, "c", func(d *events.Data) { d.Seq, d.SenderID = 4, ann }, ann),
		foldtest.Event("a", events.UserReadAll, "", nil, ann),
		foldtest.Event("late", events.MessageDelivered, "d", func(d *events.Data) { d.Seq = 4 }, ann),
		foldtest.Deliver("e", 1, ann),
	)
	d.Fold(t)
	e := explain(t, d, ann, Question{History: true, Delivered: 10})
	want := `0, 1 by c/1, 2 by c/2, 3 by d/5, 2 by r, 1 by x, 0 by n, 1 by e/1
e 1 unread
d 4 read_before by a
c 4 own_message
c 3 read by a
d 5 recalled by x
c 2 read by a
c 1 read by r`
	if diff := cmp.Diff(want, tellHistory(e)); diff != "" {
		t.Errorf("the history is (-want +got):\n%s", diff)
	}
	changes := int64(0)
	for _, s := range e.History.Steps {
		changes += s.Change
	}
	if changes != e.Total || e.Delivered.More != 0 {
		t.Errorf("the changes add up to %d, the total is %d; %d messages more", changes, e.Total, e.Delivered.More)
	}

	// A page at a time, of one conversation.
	page := explain(t, d, ann, Question{Delivered: 2, Conversation: "c"})
	if m := page.Delivered; len(m.Messages) != 2 || m.Messages[0].Seq != 4 || m.Messages[1].Seq != 3 || m.More != 2 {
		t.Errorf("the first page is %+v", m)
	}
	before, err := events.ParsePlace(page.Delivered.Messages[1].Position)
	if err != nil {
		t.Fatal(err)
	}
	page = explain(t, d, ann, Question{Delivered: 2, Conversation: "c", Before: before})
	if m := page.Delivered; len(m.Messages) != 2 || m.Messages[0].Seq != 2 || m.Messages[1].Seq != 1 || m.More != 0 {
		t.Errorf("the second page is %+v", m)
	}
	if c := page.Conversations; len(c) != 1 || c[0].ConversationID != "c" || c[0].LastRead == nil || page.Total != 1 {
		t.Errorf("the conversation without unread messages is %+v, of a total of %d", c, page.Total)
	}
	if e := explain(t, d, ann, Question{At: e.History.Steps[0].FoldedAt, History: true, Delivered: 1}); e.History.Steps[len(e.History.Steps)-1].Total != e.Total {
		t.Errorf("in the past the history is %+v, of a total of %d", e.History, e.Total)
	}
}

// The sketch of a history of any length is bounded and has the extremes. It has all steps if they
// fit.
func TestHistorySketch(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := newHistorySketch(7)
		before, least, greatest := int64(7), int64(1<<62), int64(-1)
		n := rapid.IntRange(0, 20*maxSteps).Draw(rt, "steps")
		seed := rapid.IntRange(1, 1000).Draw(rt, "seed")
		var last int64
		for i := range n {
			after := int64((i*i*seed + i) % 997)
			if after == before {
				after++
			}
			h.add(&events.Event{}, LoggedEvent{}, before, after)
			before, last = after, after
			least, greatest = min(least, after), max(greatest, after)
		}
		x := h.result()
		if len(x.Steps) > maxSteps || int64(len(x.Steps))+x.LeftOut != int64(n) || x.Before != 7 {
			rt.Fatalf("of %d steps %d are kept, %d left out", n, len(x.Steps), x.LeftOut)
		}
		if n <= maxSteps-2 && x.LeftOut != 0 {
			rt.Fatalf("of %d steps, which fit, %d are left out", n, x.LeftOut)
		}
		if n == 0 {
			return
		}
		leftOut := int64(0)
		for _, s := range x.Steps {
			least, greatest, leftOut = min(least, s.Total), max(greatest, s.Total), leftOut+s.LeftOut
		}
		has := func(total int64) bool {
			for _, s := range x.Steps {
				if s.Total == total {
					return true
				}
			}
			return false
		}
		if !has(least) || !has(greatest) || x.Steps[len(x.Steps)-1].Total != last || leftOut != x.LeftOut {
			rt.Fatalf("of %d steps from %d to %d the sketch lacks an extreme, or counts %d left out of %d", n, least, greatest, leftOut, x.LeftOut)
		}
	})
}

// A flood of one kind leaves the events of other kinds, and is counted.
func TestFloodLeavesRareUncountedEvents(t *testing.T) {
	var u uncountedEvents
	u.add(UncountedEvent{LoggedEvent: LoggedEvent{ID: "late", Type: events.MessageDelivered}, Why: badge.WhyAlreadyRead})
	for i := range 50 * maxUncounted {
		u.add(UncountedEvent{LoggedEvent: LoggedEvent{ID: fmt.Sprint(i), Type: events.MessageDelivered}, Why: WhyDuplicate})
	}
	list, more, kinds := u.newest()
	if n := len(list); n != maxUncounted || list[n-1].ID != "late" || list[0].ID != fmt.Sprint(50*maxUncounted-1) || list[n-2].ID != fmt.Sprint(49*maxUncounted+1) {
		t.Errorf("%d events from %s to %s", n, list[0].ID, list[n-1].ID)
	}
	if want := []UncountedKind{{Type: events.MessageDelivered, Why: WhyDuplicate, Events: 50 * maxUncounted}, {Type: events.MessageDelivered, Why: badge.WhyAlreadyRead, Events: 1}}; more != 49*maxUncounted+1 || cmp.Diff(want, kinds) != "" {
		t.Errorf("%d more, of the kinds %v", more, kinds)
	}
}
