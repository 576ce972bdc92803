package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/badged/badged/tests/bench/contest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A stalled server does not delay the schedule: all messages that are due during the stall count as
// late, so the latencies include the whole stall.
func TestStallDelaysEverythingDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		due := func(i int) time.Duration { return time.Duration(i) * 100 * time.Millisecond }
		arrivals := make([]arrival, 20)
		err := Paced(t.Context(), 20, -1, due, func(_ context.Context, i int) error {
			time.Sleep(time.Until(start.Add(time.Second)))
			arrivals[i] = arrival{due(i), time.Now()}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range arrivals {
			if want := max(0, time.Second-a.due); a.at.Sub(start)-a.due != want {
				t.Errorf("message %d took %s, want %s", i, a.at.Sub(start)-a.due, want)
			}
		}
		// Of the 15 messages after the warm-up, 5 waited for 500, 400, … 100 ms.
		checkLatencies(t, start, arrivals, 500*time.Millisecond, map[string]float64{LatencyMedian: 0, LatencyTail: 500})
	})
}

func checkLatencies(t *testing.T, start time.Time, arrivals []arrival, warmUp time.Duration, want map[string]float64) {
	t.Helper()
	measures, err := latencies(start, len(arrivals), arrivals, warmUp)
	if err != nil {
		t.Error(err)
	}
	for _, m := range measures {
		if v, ok := want[m.Name]; ok && m.Value != v {
			t.Errorf("%s is %v, want %v", m.Name, m.Value, v)
		}
	}
}

// With a limit, a call waits for an earlier one. The first failure ends the schedule.
func TestPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, down := time.Now(), errors.New("connection refused")
		var n atomic.Int64
		err := Paced(t.Context(), 100, 1, func(int) time.Duration { return 0 }, func(context.Context, int) error {
			time.Sleep(time.Second)
			if n.Add(1) == 3 {
				return down
			}
			return nil
		})
		if !errors.Is(err, down) || n.Load() > 4 || time.Since(start) < 3*time.Second {
			t.Errorf("after %d messages and %s: %v", n.Load(), time.Since(start), err)
		}
	})
}

func TestSchedule(t *testing.T) {
	l := Load{
		Clients: 200, Conversations: 10,
		Rate: 500, WarmUp: 5 * time.Second, Measured: 20 * time.Second,
	}
	messages, err := l.Schedule()
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := l.Schedule(); !slices.EqualFunc(messages, again, func(a, b Message) bool {
		return a.Due == b.Due && string(a.event) == string(b.event)
	}) {
		t.Error("two schedules differ")
	}
	if !slices.IsSortedFunc(messages, func(a, b Message) int { return int(a.Due - b.Due) }) {
		t.Error("messages are not in the order in which they are due")
	}
	want := l.Rate * (l.WarmUp + l.Measured).Seconds()
	if n := float64(len(messages)); n < 0.97*want || n > 1.03*want {
		t.Errorf("there are %v messages, want about %v", n, want)
	}
	next, users := map[string]int64{}, map[int]bool{}
	for _, m := range messages {
		if next[m.conversation]++; m.seq != next[m.conversation] {
			t.Fatalf("message %d of %s follows message %d", m.seq, m.conversation, next[m.conversation]-1)
		}
		users[m.Client] = true
	}
	if len(users) != l.Clients || len(next) != l.Clients*l.Conversations {
		t.Errorf("%d users have %d conversations", len(users), len(next))
	}
	const first = `{"specversion":"1.0","id":"conversation-001114/1","source":"bench/latency","type":"message.delivered",` +
		`"data":{"conversation_id":"conversation-001114","user_ids":["user-000111"],"seq":1,"sender_id":"sender"}}`
	if got := string(messages[0].event); got != first {
		t.Errorf("the first event is %s, want %s", got, first)
	}
}

// changes is a frame about one conversation.
func changes(version int, conversation string, unread, last int) string {
	return fmt.Sprintf(`{"t":"changes","version":%d,"total":%d,"conversations":[{"conversation_id":%q,"unread":%d,"last_seq":%d}]}`,
		version, unread, conversation, unread, last)
}

// push is a frame of centrifugo.
func push(conversation string, seq int) string {
	return fmt.Sprintf(`{"push":{"channel":"#u","pub":{"data":{"conversation_id":%q,"seq":%d}}}}`, conversation, seq)
}

func TestClient(t *testing.T) {
	for _, c := range []struct {
		name   string
		frames []string
		told   []int // by each frame; -1 is an error
	}{
		{"one by one", []string{changes(1, "c", 1, 1), changes(2, "c", 2, 2)}, []int{1, 1}},
		{"two in one frame", []string{changes(2, "c", 2, 2), changes(3, "c", 3, 3)}, []int{2, 1}},
		{"one overtakes another", []string{changes(1, "c", 1, 2), changes(2, "c", 2, 2)}, []int{0, 2}},
		{"nothing new", []string{changes(1, "c", 1, 1), changes(2, "c", 1, 1)}, []int{1, 0}},
		{"a ping", []string{`{"t":"ping"}`, changes(1, "c", 1, 1)}, []int{0, 1}},
		{"an old state after a newer one", []string{changes(2, "c", 2, 2), changes(1, "c", 1, 1)}, []int{2, -1}},
		{"the same version twice", []string{changes(1, "c", 1, 1), changes(1, "c", 1, 1)}, []int{1, -1}},
		{"more than was sent", []string{changes(4, "c", 4, 4)}, []int{-1}},
		{"more unread than there are", []string{changes(2, "c", 2, 1)}, []int{-1}},
		{"a conversation of another user", []string{changes(1, "x", 1, 1)}, []int{-1}},
		{"no JSON", []string{`{`}, []int{-1}},
		{"a push", []string{push("c", 1)}, []int{1}},
		{"two pushes in one frame", []string{push("c", 1) + "\n" + push("c", 2) + "\n"}, []int{2}},
		{"a push of a message that was not sent", []string{push("c", 4)}, []int{-1}},
		{"a push to another user", []string{push("x", 1)}, []int{-1}},
		{"a push without JSON", []string{`{"push"`}, []int{-1}},
	} {
		a := newClient(nil)
		if strings.Contains(c.frames[0], "push") {
			a.apply = a.applyPushes
		}
		a.sent["c"] = []time.Duration{10, 20, 30}
		total := 0
		for i, f := range c.frames {
			n, err := a.apply(t.Context(), []byte(f), time.Unix(int64(i), 0))
			if err != nil {
				n = -1
			} else {
				total += n
			}
			if n != c.told[i] {
				t.Errorf("%s: frame %d tells of %d messages (%v), want %d", c.name, i, n, err, c.told[i])
			}
		}
		if len(a.arrivals) != total {
			t.Errorf("%s: %d arrivals of %d messages", c.name, len(a.arrivals), total)
		}
		for i, arrived := range a.arrivals {
			if arrived.due != a.sent["c"][i] {
				t.Errorf("%s: arrival %d is of what was due at %d", c.name, i, arrived.due)
			}
		}
	}
}

func TestLosses(t *testing.T) {
	start := time.Now()
	arrivals := []arrival{{0, start.Add(5 * time.Millisecond)}, {time.Second, start.Add(1007 * time.Millisecond)}}
	if _, err := latencies(start, 3, arrivals, 0); !errors.Is(err, contest.ErrWrong) {
		t.Errorf("one of three did not arrive: %v", err)
	}
	checkLatencies(t, start, arrivals, 0, map[string]float64{LatencyMedian: 5, "latency max": 7})
}
