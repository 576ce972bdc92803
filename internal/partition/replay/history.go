package replay

import (
	"cmp"

	"github.com/badged/badged/events"
)

// maxSteps is the maximum number of steps in a history.
const maxSteps = 2000

// History is the total of a user over time, as a list of steps. Between two steps the total is
// constant.
type History struct {
	Before int64 `json:"before" minimum:"0" doc:"The total before the first listed event: 0, or the total at the end of the archived part of the log."`
	// Steps are the events that changed the total, in the order of the log, at most maxSteps.
	// If there are more events, they are divided into runs of equal length. Then Steps has the
	// first and the last event, and the events with the least and the greatest total of each
	// run.
	Steps   []Step `json:"steps" doc:"The events that changed the total, in the order of the log. If there are more than 2,000, they are divided into runs of equal length, and only the events with the lowest and highest total of each run are listed, and the first and last event."`
	LeftOut int64  `json:"left_out" minimum:"0" doc:"The number of events that changed the total and are not listed."`
}

// Step is an event that changed the total.
type Step struct {
	Total          int64  `json:"total" minimum:"0" doc:"The total after the event."`
	Change         int64  `json:"change" doc:"By how much the event changed the total; negative if the total became smaller."`
	ConversationID string `json:"conversation_id,omitempty" doc:"The conversation of the event, if it has one."`
	Seq            int64  `json:"seq,omitempty" minimum:"1" doc:"The seq or up_to_seq of the event, if it has one."`
	LeftOut        int64  `json:"left_out,omitempty" minimum:"0" doc:"The number of events between the previous listed event and this event that are not listed."`
	LoggedEvent
}

// historySketch stores a history in bounded memory. It divides the steps into buckets of equal
// size, and stores for each bucket the steps with the least and the greatest total. If there are
// historyBuckets full buckets, it merges them in pairs, which doubles the size of a bucket.
type historySketch struct {
	before      int64
	count       int64
	first, last numberedStep
	// size is the number of steps in a full bucket.
	size    int64
	buckets []stepBucket
}

// numberedStep is a step with its number: the number of steps before it.
type numberedStep struct {
	number int64
	Step
}

// stepBucket describes consecutive steps by the step with the least total (low) and the step with
// the greatest total (high). If several steps have the least total, low is the first of them; if
// several have the greatest, high is the last. So a bucket of two steps stores both steps.
type stepBucket struct {
	steps     int64
	low, high numberedStep
}

// historyBuckets is the maximum number of buckets. With this number, a history has at most maxSteps
// steps: two steps of each bucket, and the first and last step of the history.
const historyBuckets = maxSteps/2 - 1

// newHistorySketch returns an empty history. total is the user's total before the first event.
func newHistorySketch(total int64) *historySketch { return &historySketch{before: total, size: 2} }

// add adds a folded event as a step. before and after are the user's totals before and after the
// event. It does nothing if these totals are equal, or if h is nil.
func (h *historySketch) add(e *events.Event, logged LoggedEvent, before, after int64) {
	if h == nil || before == after {
		return
	}
	s := numberedStep{h.count, Step{
		Total: after, Change: after - before, ConversationID: e.Data.ConversationID,
		Seq: cmp.Or(e.Data.UpToSeq, e.Data.Seq), LoggedEvent: logged,
	}}
	if h.count == 0 {
		h.first = s
	}
	h.last = s
	h.count++
	if n := len(h.buckets); n > 0 && h.buckets[n-1].steps < h.size {
		h.buckets[n-1] = h.buckets[n-1].with(stepBucket{1, s, s})
		return
	}
	if len(h.buckets) == historyBuckets {
		merged := h.buckets[:0]
		for i := 0; i < len(h.buckets); i += 2 {
			b := h.buckets[i]
			if i+1 < len(h.buckets) {
				b = b.with(h.buckets[i+1])
			}
			merged = append(merged, b)
		}
		h.buckets, h.size = merged, 2*h.size
		if n := len(merged); merged[n-1].steps < h.size {
			merged[n-1] = merged[n-1].with(stepBucket{1, s, s})
			return
		}
	}
	h.buckets = append(h.buckets, stepBucket{1, s, s})
}

// with returns a bucket with the steps of b and of the bucket `later`, which follows b.
func (b stepBucket) with(later stepBucket) stepBucket {
	b.steps += later.steps
	if later.low.Total < b.low.Total {
		b.low = later.low
	}
	if later.high.Total >= b.high.Total {
		b.high = later.high
	}
	return b
}

// result returns the history; nil if h is nil.
func (h *historySketch) result() *History {
	if h == nil {
		return nil
	}
	x := &History{Before: h.before, Steps: []Step{}, LeftOut: h.count}
	last := int64(-1)
	put := func(s numberedStep) {
		if s.number <= last {
			return
		}
		s.LeftOut = s.number - last - 1
		last = s.number
		x.LeftOut--
		x.Steps = append(x.Steps, s.Step)
	}
	if h.count == 0 {
		return x
	}
	put(h.first)
	for _, b := range h.buckets {
		if b.low.number > b.high.number {
			b.low, b.high = b.high, b.low
		}
		put(b.low)
		put(b.high)
	}
	put(h.last)
	return x
}
