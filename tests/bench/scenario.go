package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// scenario compares ways to do one job.
type scenario struct {
	name string
	// says describes the comparison.
	says string
	// main is the measure in plots.
	main string
	aims []aim
	// open sets up the state that all rounds share.
	open func(ctx context.Context, r *rig, s scale) (*contest, error)
}

// contest is a scenario that is ready to run.
type contest struct {
	// sides take turns in every round.
	sides []side
	// close releases the shared state; nil if there is none.
	close func(ctx context.Context) error
}

// side is one way to do the job.
type side struct {
	name string
	// says describes its setup: connections, batches.
	says string
	// run does the job once, from the same state in every round. It returns the
	// same measures in the same order every time, also with an error if a result
	// is wrong.
	run func(ctx context.Context) ([]measure, error)
}

// contestOf returns a contest whose rounds share no state.
func contestOf(sides ...side) (*contest, error) { return &contest{sides: sides}, nil }

// measure is one number of one run.
type measure struct {
	name  string
	unit  string
	value float64
}

// aim is the target for a measure of one side, as a multiple of the same measure of
// another side or, if Over is empty, by itself. A missed aim is not a failure, since
// results depend on the machine.
type aim struct {
	Measure string  `json:"measure"`
	Of      string  `json:"of"`
	Over    string  `json:"over,omitempty"`
	AtLeast float64 `json:"at_least,omitempty"`
	AtMost  float64 `json:"at_most,omitempty"`
}

// scale is the size and length of a run.
type scale struct {
	// sides selects sides by name; nil means all.
	sides  *regexp.Regexp
	rounds int
	// duration is the length of a side's round if it is timed.
	duration time.Duration
	// baseline is the path of another binary of badged, "" for none.
	baseline string
	// centrifugo is the path of its binary, "" for none.
	centrifugo string
	// small makes a quick check that everything works; results mean nothing.
	small bool
}

// runs reports whether the side with a name is selected.
func (s scale) runs(name string) bool { return s.sides == nil || s.sides.MatchString(name) }

// sharedBuffers returns the setting of Postgres that keeps the tables of millions
// of users in memory, or "" for a small run.
func (s scale) sharedBuffers() string {
	if s.small {
		return ""
	}
	return "4GB"
}

// pick returns one of two sizes.
func (s scale) pick(full, small int) int {
	if s.small {
		return small
	}
	return full
}

// result is the outcome of a scenario.
type result struct {
	Scenario string       `json:"scenario"`
	Says     string       `json:"says"`
	Main     string       `json:"main"`
	Sides    []sideResult `json:"sides"`
	Verdicts []verdict    `json:"verdicts,omitempty"`
	// Failures are errors and wrong totals.
	Failures []string `json:"failures,omitempty"`
}

// sideResult is the outcome of a side.
type sideResult struct {
	Name     string   `json:"name"`
	Says     string   `json:"says,omitempty"`
	Measures []series `json:"measures"`
}

// series is a measure over the rounds.
type series struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Values []float64 `json:"values"`
}

// verdict is the outcome of an aim.
type verdict struct {
	Aim aim `json:"aim"`
	// Values has one value per round: the multiple, or the measure itself if the
	// aim names no other side.
	Values  []float64 `json:"values"`
	Median  float64   `json:"median"`
	Reached bool      `json:"reached"`
	// MissedBy is the shortfall as a share of the aim, 0 if it is reached.
	MissedBy float64 `json:"missed_by,omitempty"`
}

// run runs the sides in turns, A B C A B C, so that other work on the machine
// affects all of them. A round with a failure does not count, but the next one
// still runs.
func (c scenario) run(ctx context.Context, r *rig, s scale) (out result) {
	out = result{Scenario: c.name, Says: c.says, Main: c.main}
	fail := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		out.Failures = append(out.Failures, text)
		r.log.say("%s: FAILED %s", c.name, text)
	}
	open, err := c.open(ctx, r, s)
	if err != nil {
		fail("%v", err)
		return out
	}
	defer func() {
		if open.close == nil {
			return
		}
		if err := open.close(context.WithoutCancel(ctx)); err != nil {
			fail("%v", err)
		}
	}()
	open.sides = slices.DeleteFunc(open.sides, func(side side) bool { return !s.runs(side.name) })
	for _, side := range open.sides {
		out.Sides = append(out.Sides, sideResult{Name: side.name, Says: side.says})
	}
	for round := 1; round <= s.rounds && ctx.Err() == nil; round++ {
		measured := make([][]measure, len(open.sides))
		for i, side := range open.sides {
			r.running = fmt.Sprintf("%s-%s-%d", c.name, side.name, round)
			if measured[i], err = side.run(ctx); err != nil {
				fail("%s, round %d: %v", side.name, round, err)
				break
			}
			r.log.say("%s: round %d of %d: %s: %s", c.name, round, s.rounds, side.name, headline(measured[i], c.main))
		}
		if err == nil {
			out.add(measured)
		}
	}
	for _, a := range c.aims {
		if v, ok := out.judge(a); ok {
			out.Verdicts = append(out.Verdicts, v)
		}
	}
	return out
}

// headline formats one of the measures for progress output.
func headline(measures []measure, name string) string {
	for _, m := range measures {
		if m.name == name {
			return formatNumber(m.value) + " " + m.unit
		}
	}
	return "done"
}

// add adds the measures of one round.
func (r *result) add(round [][]measure) {
	for i, measures := range round {
		side := &r.Sides[i]
		for j, m := range measures {
			if j == len(side.Measures) {
				side.Measures = append(side.Measures, series{Name: m.name, Unit: m.unit})
			}
			s := &side.Measures[j]
			s.Values = append(s.Values, m.value)
			s.Median, s.Min, s.Max = median(s.Values), slices.Min(s.Values), slices.Max(s.Values)
		}
	}
}

// series returns a measure of a side.
func (r *result) series(side, name string) (series, bool) {
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
	return series{}, false
}

// judge returns the verdict on an aim, if any round was completed. It takes the
// multiples round by round, because the sides of a round ran close together.
func (r *result) judge(a aim) (verdict, bool) {
	of, ok := r.series(a.Of, a.Measure)
	if !ok {
		return verdict{}, false
	}
	v := verdict{Aim: a, Values: slices.Clone(of.Values)}
	if a.Over != "" {
		over, ok := r.series(a.Over, a.Measure)
		if !ok {
			return verdict{}, false
		}
		for i := range v.Values {
			v.Values[i] /= over.Values[i]
		}
	}
	v.Median = median(v.Values)
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
