package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// scenario compares ways to do one job. A new one is a file of its own and a
// line in scenarios.
type scenario struct {
	name string
	// says is what is compared, in a sentence.
	says string
	// main is the measure that plots show.
	main string
	aims []aim
	// open makes what all rounds share, for a run of some scale.
	open func(ctx context.Context, r *rig, s scale) (*contest, error)
}

// contest is a scenario about to be run.
type contest struct {
	// sides take turns in every round.
	sides []side
	// close gives up what open made; nil where that is nothing.
	close func(ctx context.Context) error
}

// side is one of the ways.
type side struct {
	name string
	// says is how it is set up: connections, batches.
	says string
	// run does the job once, on a state that is the same in every round, and
	// returns what it measured: every time the same measures in the same order.
	// It may return them together with an error, which says that something came
	// out wrong.
	run func(ctx context.Context) ([]measure, error)
}

// contestOf is for scenarios whose rounds share nothing.
func contestOf(sides ...side) (*contest, error) { return &contest{sides: sides}, nil }

// measure is one number of one run.
type measure struct {
	name  string
	unit  string
	value float64
}

// aim is what a measure of one side should be, as a multiple of that of another
// or, where over is empty, by itself. To miss it is no failure: it depends on
// the machine.
type aim struct {
	Measure string  `json:"measure"`
	Of      string  `json:"of"`
	Over    string  `json:"over,omitempty"`
	AtLeast float64 `json:"at_least,omitempty"`
	AtMost  float64 `json:"at_most,omitempty"`
}

// scale is how large and how long a run is.
type scale struct {
	// sides are those that run, by name; nil is all.
	sides  *regexp.Regexp
	rounds int
	// duration is that of each side in each round, where it goes by time.
	duration time.Duration
	// small is for a check that everything works: the numbers say nothing.
	small bool
}

// runs reports whether the side of a name runs.
func (s scale) runs(name string) bool { return s.sides == nil || s.sides.MatchString(name) }

// sharedBuffers are those of Postgres: what it needs to keep the tables of
// millions of users in memory, but for a small run.
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

// result is what the rounds of a scenario gave.
type result struct {
	Scenario string       `json:"scenario"`
	Says     string       `json:"says"`
	Main     string       `json:"main"`
	Sides    []sideResult `json:"sides"`
	Verdicts []verdict    `json:"verdicts,omitempty"`
	// Failures are errors and wrong totals, none where all is well.
	Failures []string `json:"failures,omitempty"`
}

// sideResult is what the rounds of one side gave.
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

// verdict is what became of an aim.
type verdict struct {
	Aim aim `json:"aim"`
	// Values are, by round, the multiple, or the measure itself where the aim
	// is not over another side.
	Values  []float64 `json:"values"`
	Median  float64   `json:"median"`
	Reached bool      `json:"reached"`
	// MissedBy is by how much of the aim it was missed, 0 where it is reached.
	MissedBy float64 `json:"missed_by,omitempty"`
}

// run runs the sides in turns, A B C A B C, so that whatever else happens on
// the machine happens to all of them. A round with a failure counts for
// nothing, and the next one is run nevertheless: one must not hide what the
// others show.
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

// headline is one of the measures, for whoever watches.
func headline(measures []measure, name string) string {
	for _, m := range measures {
		if m.name == name {
			return formatNumber(m.value) + " " + m.unit
		}
	}
	return "done"
}

// add adds what the sides measured in one more round.
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

// judge says what became of an aim; it cannot where no round was completed.
// The multiples are taken round by round: their sides ran right after each
// other.
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
