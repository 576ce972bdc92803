package contest

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
)

// Sides take turns. A failed round counts for no side and does not stop the next round. Aims are
// judged round by round.
func TestScenario(t *testing.T) {
	var turns []string
	values := map[string][]float64{"a": {10, 20, 60}, "b": {5, 4, 20}}
	of := func(name string) Side {
		round := 0
		return Side{Name: name, Run: func(context.Context) ([]measure.Measure, error) {
			turns = append(turns, name)
			round++
			if name == "b" && round == 2 {
				return nil, measure.ErrWrong
			}
			return []measure.Measure{measure.Of("rate", "events/s", values[name][round-1])}, nil
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
		Open: func(context.Context, *rig.Rig, Scale) (*Contest, error) {
			return &Contest{Sides: []Side{of("a"), of("b")}, Close: func(context.Context) error { closed = true; return nil }}, nil
		},
	}
	rep := Report{Results: []Result{s.Run(t.Context(), &rig.Rig{Config: rig.Config{Log: rig.Progress{W: t.Output()}}}, Scale{Rounds: 3})}}
	if got := strings.Join(turns, ""); got != "ababab" || !closed {
		t.Errorf("the turns are %s, closed: %t", got, closed)
	}
	if rep.Failures() != 1 {
		t.Errorf("%d scenarios failed", rep.Failures())
	}
	alone := s.Run(t.Context(), &rig.Rig{Config: rig.Config{Log: rig.Progress{W: t.Output()}}}, Scale{Rounds: 0, Sides: regexp.MustCompile("^a")})
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
