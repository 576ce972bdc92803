package contest

import (
	"context"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Sides take turns. A failed round counts for no side and does not stop the next round. Aims are
// judged round by round.
func TestScenario(t *testing.T) {
	var turns []string
	values := map[string][]float64{"a": {10, 20, 60}, "b": {5, 4, 20}}
	of := func(name string) Side {
		round := 0
		return Side{Name: name, Run: func(*Run) []Measure {
			turns = append(turns, name)
			round++
			if name == "b" && round == 2 {
				Check(ErrWrong)
			}
			return []Measure{Of("rate", "events/s", values[name][round-1])}
		}}
	}
	closed := false
	s := Scenario{
		Name: "story", Says: "a against b", Main: "rate",
		Aims: []Aim{
			{Measure: "rate", Of: "a", Over: "b", AtLeast: 2.5},
			{Measure: "rate", Of: "a", Over: "b", AtLeast: 5},
			{Measure: "rate", Of: "b", AtMost: 10},
			{Measure: "rate", Of: "c", AtLeast: 1},
		},
		Open: func(run *Run) {
			run.Cleanup(func(context.Context) error { closed = true; return nil })
		},
		Sides: []Side{of("a"), of("b")},
	}
	rep := Report{Results: []Scenario{s.Run(t.Context(), Scale{Rounds: 3}, Progress{W: t.Output()})}}
	if got := strings.Join(turns, ""); got != "ababab" || !closed {
		t.Errorf("the turns are %s, closed: %t", got, closed)
	}
	if err := rep.Write(io.Discard, ""); err == nil || !strings.Contains(err.Error(), "scenario story failed") {
		t.Errorf("a scenario failed: %v", err)
	}
	alone := s.Run(t.Context(), Scale{Rounds: 0, Sides: regexp.MustCompile("^a")}, Progress{W: t.Output()})
	if len(alone.Sides) != 1 || len(alone.Verdicts) != 0 {
		t.Errorf("one side has %+v", alone)
	}
	text := rep.markdown()
	for _, want := range []string{
		"| story | rate of a / b | 2.50 × | 2 × | 3 × | ≥ 2.50 × | reached |",
		"| story | rate of a / b | 2.50 × | 2 × | 3 × | ≥ 5 × | **missed by 50 %** |",
		"| story | rate of b | 12.5 | 5 | 20 | ≤ 10 | **missed by 25 %** |",
		"| rate | events/s | 35 (10–60) | 12.5 (5–20) |",
		"FAILED b, round 2: wrong",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// A failure ends a run, and cleanups run from the last to the first, each whatever the others return.
func TestRunEnds(t *testing.T) {
	var order []string
	broken := errors.New("the cleanup failed")
	err := Do(t.Context(), "story", func(run *Run) {
		run.Cleanup(func(ctx context.Context) error { order = append(order, "first"); return ctx.Err() })
		run.Cleanup(func(context.Context) error { order = append(order, "second"); return broken })
		Check(nil)
		if n := Must(strconv.Atoi("3")); n != 3 {
			t.Errorf("Must returns %d", n)
		}
		Check(ErrWrong)
		t.Error("the run goes on")
	})
	if got := strings.Join(order, " "); got != "second first" || !errors.Is(err, ErrWrong) || !errors.Is(err, broken) {
		t.Errorf("cleanups %s: %v", got, err)
	}
}

func TestStatistics(t *testing.T) {
	if got := Median([]float64{5, 1, 3}); got != 3 {
		t.Errorf("the median of 1 3 5 is %v", got)
	}
	if got := Median([]float64{4, 1, 2, 3}); got != 2.5 {
		t.Errorf("the median of 1 2 3 4 is %v", got)
	}
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	for _, c := range []struct {
		sorted []float64
		p      float64
		want   float64
	}{
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 100, 100},
		{hundred, 0, 1},
		{hundred[:10], 99, 10},
		{hundred[:3], 50, 2},
		{hundred[:1], 50, 1},
		{nil, 50, 0},
	} {
		if got := Percentile(c.sorted, c.p); got != c.want {
			t.Errorf("percentile %v of 1 to %d is %v, want %v", c.p, len(c.sorted), got, c.want)
		}
	}
	for n, want := range map[float64]string{0: "0", 0.098: "0.098", 0.00123: "0.0012", 3: "3", 3.14159: "3.14", 42.66: "42.7", 60: "60", 100.4: "100", 59835: "59,835", 1234567: "1,234,567"} {
		if got := FormatNumber(n); got != want {
			t.Errorf("%v is written %s, want %s", n, got, want)
		}
	}
}

func TestCheckTotals(t *testing.T) {
	want := map[string]int64{"a": 1, "b": 2, "c": 0}
	if err := CheckTotals(map[string]int64{"a": 1, "b": 2, "c": 0}, want); err != nil {
		t.Errorf("all is right, but got %v", err)
	}
	// The sum is right.
	err := CheckTotals(map[string]int64{"a": 2, "b": 1, "c": 0}, want)
	if !errors.Is(err, ErrWrong) || !strings.Contains(err.Error(), "user a has 2 unread, must have 1") {
		t.Errorf("two totals are wrong: %v", err)
	}
	if err := CheckTotals(map[string]int64{"a": 1, "b": 2}, want); !errors.Is(err, ErrWrong) {
		t.Errorf("a user is missing: %v", err)
	}
}
