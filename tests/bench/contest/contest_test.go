package contest

import (
	"context"
	"errors"
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
	rep := Report{Results: []Result{s.Run(t.Context(), Scale{Rounds: 3}, Progress{W: t.Output()})}}
	if got := strings.Join(turns, ""); got != "ababab" || !closed {
		t.Errorf("the turns are %s, closed: %t", got, closed)
	}
	if rep.Failures() != 1 {
		t.Errorf("%d scenarios failed", rep.Failures())
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
