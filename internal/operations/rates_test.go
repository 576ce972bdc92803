package operations

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// at returns a time some seconds after a full minute.
func at(seconds float64) time.Time {
	return time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

func ptr[T any](v T) *T { return &v }

// Two gateways and a projector, one of which restarts in the middle: the reset
// of its counters loses nothing and makes no rate negative.
func TestRates(t *testing.T) {
	bounds := []float64{0.1, 0.2, 0.4}
	first, again := run{"db1/1", at(0)}, run{"db1/1", at(12)}
	other := run{"db1/2", at(0)}
	r := ratings{last: map[run]sample{}}
	for _, s := range []sample{
		{first, at(1), counted{Logged: 100, Folded: 90, Connections: ptr(int64(5)), EventStreams: 2, Frames: 10, Delays: &histogram{bounds, []uint64{0, 0, 0}, 0}}},
		{other, at(2), counted{Logged: 98, Folded: 90, Connections: ptr(int64(1)), Frames: 1000}}, // sampled the log earlier
		{first, at(6), counted{Logged: 150, Folded: 150, Connections: ptr(int64(7)), EventStreams: 3, Frames: 60, Repairs: 5, Delays: &histogram{bounds, []uint64{8, 0, 2}, 0}}},
		{other, at(7), counted{Logged: 160, Folded: 160, Connections: ptr(int64(1)), Frames: 1000}},
		{again, at(13), counted{Logged: 220, Folded: 220, Connections: ptr(int64(0)), Delays: &histogram{bounds, []uint64{1, 0, 0}, 0}}},
		// The time in between is unknown.
		{again, at(61), counted{Logged: 700, Folded: 460, Connections: ptr(int64(4)), Delays: &histogram{bounds, []uint64{1, 0, 0}, 4}}},
	} {
		r.add(s)
	}
	var got []Rate
	for _, b := range r.buckets {
		got = append(got, b.rate())
	}
	want := []Rate{
		{
			At: at(10), Appended: ptr(10.0), Folded: ptr(70.0 / 6), DelayP50: ptr(0.0625), DelayP99: ptr(0.2 + 0.2*1.9/2),
			WebSockets: ptr(int64(5)), EventStreams: ptr(int64(3)), Frames: ptr(10.0), Repairs: ptr(1.0),
		},
		{At: at(20), Appended: ptr(10.0), Folded: ptr(10.0), WebSockets: ptr(int64(0)), EventStreams: ptr(int64(0))},
		{
			At: at(70), Appended: ptr(10.0), Folded: ptr(5.0), DelayP50: ptr(0.4), DelayP99: ptr(0.4),
			WebSockets: ptr(int64(4)), EventStreams: ptr(int64(0)), Frames: ptr(0.0), Repairs: ptr(0.0),
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("the points (-want +got):\n%s", diff)
	}
}

func TestQuantilesOfNothing(t *testing.T) {
	h := histogram{}
	h.add(nil, nil)
	h.add(&histogram{Bounds: []float64{1}, Counts: []uint64{5}}, nil)
	h.add(&histogram{Bounds: []float64{1}, Counts: []uint64{5}}, &histogram{Bounds: []float64{2}, Counts: []uint64{1}})
	if q := h.quantile(0.5); q != nil {
		t.Errorf("it is %v", *q)
	}
}
