package scenarios

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// forgetful is a way that sometimes loses an event.
type forgetful struct {
	totals map[string]int64
	lose   int
	seen   map[int64]bool
}

func (f *forgetful) Apply(_ context.Context, events []stream.Event) error {
	for _, e := range events {
		if f.seen[e.N] {
			continue
		}
		f.seen[e.N] = true
		if e.N != int64(f.lose) {
			f.totals[e.UserID()]++
		}
	}
	return nil
}

func (f *forgetful) Settle(context.Context) error { return nil }

func (f *forgetful) Totals(_ context.Context, users []string) (map[string]int64, error) {
	for _, u := range users {
		f.totals[u] += 0
	}
	return f.totals, nil
}

// A way that loses one event is detected.
func TestWaysAreChecked(t *testing.T) {
	cfg := stream.Config{Users: 10, Conversations: 2, Repeats: 0.1, Seed: 1}
	for _, c := range []struct {
		lose  int
		right bool
	}{{-1, true}, {3, false}} {
		w, s := &forgetful{totals: map[string]int64{}, lose: c.lose, seen: map[int64]bool{}}, stream.New(cfg)
		batches := 0
		n, err := driver{workers: 1, batch: 10}.drive(t.Context(), w, s, func() bool { batches++; return batches <= 10 })
		if err != nil || n != 100 {
			t.Fatalf("%d events are driven: %v", n, err)
		}
		if err := checkTotals(t.Context(), w, s); (err == nil) != c.right || !c.right && !errors.Is(err, contest.ErrWrong) {
			t.Errorf("losing event %d: %v", c.lose, err)
		}
	}
}
