// Package contest runs the sides of a scenario in turns, judges their measures and
// writes the report.
package contest

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
)

// Scenario compares ways to do one job.
type Scenario struct {
	Name string
	// Says describes the comparison.
	Says string
	// Main is the measure in plots.
	Main string
	Aims []Aim
	// Open sets up the state that all rounds share.
	Open func(ctx context.Context, r *rig.Rig, s Scale) (*Contest, error)
}

// Contest is a scenario that is ready to run.
type Contest struct {
	// Sides take turns in every round.
	Sides []Side
	// Close releases the shared state; nil if there is none.
	Close func(ctx context.Context) error
}

// Side is one way to do the job.
type Side struct {
	Name string
	// Says describes the setup of the side: connections, batches.
	Says string
	// Run does the job once, from the same state in every round. It returns the
	// same measures in the same order every time, also with an error if a result
	// is wrong.
	Run func(ctx context.Context) ([]measure.Measure, error)
}

// Of returns a contest whose rounds share no state.
func Of(sides ...Side) (*Contest, error) { return &Contest{Sides: sides}, nil }

// Aim is the target for a measure of one side: a multiple of the same measure of the side Over or,
// if Over is empty, a value. A missed aim is not a failure, since results depend on the machine.
type Aim struct {
	Measure string  `json:"measure"`
	Of      string  `json:"of"`
	Over    string  `json:"over,omitempty"`
	AtLeast float64 `json:"at_least,omitempty"`
	AtMost  float64 `json:"at_most,omitempty"`
}

// Scale is the size and length of a run.
type Scale struct {
	// Sides selects sides by name; nil means all.
	Sides  *regexp.Regexp
	Rounds int
	// Duration is the length of a side's round if it is timed.
	Duration time.Duration
	// Baseline is the path of another binary of badged, "" for none.
	Baseline string
	// Centrifugo is the path of the binary of centrifugo, "" for none.
	Centrifugo string
	// Small makes the run a quick check that everything works; its results mean nothing.
	Small bool
}

// Runs reports whether the side with a name is selected.
func (s Scale) Runs(name string) bool { return s.Sides == nil || s.Sides.MatchString(name) }

// SharedBuffers returns the setting of Postgres that keeps the tables of millions
// of users in memory, or "" for a small run.
func (s Scale) SharedBuffers() string {
	if s.Small {
		return ""
	}
	return "4GB"
}

// Pick returns one of two sizes.
func (s Scale) Pick(full, small int) int {
	if s.Small {
		return small
	}
	return full
}

// Result is the outcome of a scenario.
type Result struct {
	Scenario string       `json:"scenario"`
	Says     string       `json:"says"`
	Main     string       `json:"main"`
	Sides    []SideResult `json:"sides"`
	Verdicts []Verdict    `json:"verdicts,omitempty"`
	// Failures are errors and wrong totals.
	Failures []string `json:"failures,omitempty"`
}

// SideResult is the outcome of a side.
type SideResult struct {
	Name     string   `json:"name"`
	Says     string   `json:"says,omitempty"`
	Measures []Series `json:"measures"`
}

// Series is a measure over the rounds.
type Series struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Values []float64 `json:"values"`
}

// Verdict is the outcome of an aim.
type Verdict struct {
	Aim Aim `json:"aim"`
	// Values has one value per round: the multiple, or the measure itself if the
	// aim names no other side.
	Values  []float64 `json:"values"`
	Median  float64   `json:"median"`
	Reached bool      `json:"reached"`
	// MissedBy is the shortfall as a share of the aim, 0 if it is reached.
	MissedBy float64 `json:"missed_by,omitempty"`
}

// Run runs the sides in turns, A B C A B C, so that other work on the machine
// affects all of them. A round with a failure does not count, but the next one
// still runs.
func (c Scenario) Run(ctx context.Context, r *rig.Rig, s Scale) (out Result) {
	out = Result{Scenario: c.Name, Says: c.Says, Main: c.Main}
	fail := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		out.Failures = append(out.Failures, text)
		r.Log.Say("%s: FAILED %s", c.Name, text)
	}
	open, err := c.Open(ctx, r, s)
	if err != nil {
		fail("%v", err)
		return out
	}
	defer func() {
		if open.Close == nil {
			return
		}
		if err := open.Close(context.WithoutCancel(ctx)); err != nil {
			fail("%v", err)
		}
	}()
	open.Sides = slices.DeleteFunc(open.Sides, func(side Side) bool { return !s.Runs(side.Name) })
	for _, side := range open.Sides {
		out.Sides = append(out.Sides, SideResult{Name: side.Name, Says: side.Says})
	}
	for round := 1; round <= s.Rounds && ctx.Err() == nil; round++ {
		measured := make([][]measure.Measure, len(open.Sides))
		for i, side := range open.Sides {
			r.Running = fmt.Sprintf("%s-%s-%d", c.Name, side.Name, round)
			if measured[i], err = side.Run(ctx); err != nil {
				fail("%s, round %d: %v", side.Name, round, err)
				break
			}
			r.Log.Say("%s: round %d of %d: %s: %s", c.Name, round, s.Rounds, side.Name, headline(measured[i], c.Main))
		}
		if err == nil {
			out.add(measured)
		}
	}
	for _, a := range c.Aims {
		if v, ok := out.judge(a); ok {
			out.Verdicts = append(out.Verdicts, v)
		}
	}
	return out
}

// headline formats one of the measures for progress output.
func headline(measures []measure.Measure, name string) string {
	for _, m := range measures {
		if m.Name == name {
			return measure.FormatNumber(m.Value) + " " + m.Unit
		}
	}
	return "done"
}

// add adds the measures of one round.
func (r *Result) add(round [][]measure.Measure) {
	for i, measures := range round {
		side := &r.Sides[i]
		for j, m := range measures {
			if j == len(side.Measures) {
				side.Measures = append(side.Measures, Series{Name: m.Name, Unit: m.Unit})
			}
			s := &side.Measures[j]
			s.Values = append(s.Values, m.Value)
			s.Median, s.Min, s.Max = measure.Median(s.Values), slices.Min(s.Values), slices.Max(s.Values)
		}
	}
}

// Series returns a measure of a side.
func (r *Result) Series(side, name string) (Series, bool) {
	for _, s := range r.Sides {
		if s.Name != side {
			continue
		}
		for _, m := range s.Measures {
			if m.Name == name {
				return m, true
			}
		}
	}
	return Series{}, false
}

// judge returns the verdict on an aim, if any round was completed. It computes a multiple for each
// round, because the sides of one round ran close together.
func (r *Result) judge(a Aim) (Verdict, bool) {
	of, ok := r.Series(a.Of, a.Measure)
	if !ok {
		return Verdict{}, false
	}
	v := Verdict{Aim: a, Values: slices.Clone(of.Values)}
	if a.Over != "" {
		over, ok := r.Series(a.Over, a.Measure)
		if !ok {
			return Verdict{}, false
		}
		for i := range v.Values {
			v.Values[i] /= over.Values[i]
		}
	}
	v.Median = measure.Median(v.Values)
	switch {
	case a.AtLeast > 0 && v.Median < a.AtLeast:
		v.MissedBy = (a.AtLeast - v.Median) / a.AtLeast
	case a.AtMost > 0 && v.Median > a.AtMost:
		v.MissedBy = (v.Median - a.AtMost) / a.AtMost
	default:
		v.Reached = true
	}
	return v, true
}
