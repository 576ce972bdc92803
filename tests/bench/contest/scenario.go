// Package contest runs the sides of a scenario in turns, judges their measures and
// writes the report.
package contest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// Scenario compares ways to do one job.
type Scenario struct {
	Name string `json:"scenario"`
	// Says describes the comparison.
	Says string `json:"says"`
	// Main is the measure in progress output.
	Main string `json:"main"`
	Aims []Aim  `json:"-"`
	// Open sets up the state that all rounds share; nil if there is none.
	Open func(*Run) `json:"-"`
	// Sides take turns in every round.
	Sides []Side `json:"sides"`

	// Verdicts are the outcomes of the aims, and Failures errors and wrong totals.
	Verdicts []Verdict `json:"verdicts,omitempty"`
	Failures []string  `json:"failures,omitempty"`
}

// Side is one way to do the job.
type Side struct {
	Name string `json:"name"`
	// Says describes the setup of the side: connections, batches.
	Says string `json:"says"`
	// Run does the job once, from the same state in every round. It returns the
	// same measures in the same order every time.
	Run func(*Run) []Measure `json:"-"`
	// Measures are those of all rounds.
	Measures []Series `json:"measures"`
}

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

// Pick returns one of two sizes.
func (s Scale) Pick(full, small int) int {
	if s.Small {
		return small
	}
	return full
}

// Series is a measure over the rounds.
type Series struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Median float64   `json:"median"`
	Values []float64 `json:"values"`
}

// Verdict is the outcome of an aim. Its series has the multiple of each round, or the measure
// itself if the aim names no other side.
type Verdict struct {
	Aim Aim `json:"aim"`
	Series
	// MissedBy is the shortfall as a share of the aim, 0 if it is reached.
	MissedBy float64 `json:"missed_by,omitempty"`
}

// Run runs the sides in turns, A B C A B C, so that other work on the machine
// affects all of them. A round with a failure does not count, but the next one
// still runs. It returns the scenario with the selected sides and their outcome.
func (c Scenario) Run(ctx context.Context, s Scale, log Progress) Scenario {
	fail := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		c.Failures = append(c.Failures, text)
		log.Say("%s: FAILED %s", c.Name, text)
	}
	c.Sides = slices.DeleteFunc(slices.Clone(c.Sides), func(side Side) bool { return s.Sides != nil && !s.Sides.MatchString(side.Name) })
	err := Do(ctx, c.Name, func(shared *Run) {
		if c.Open != nil {
			c.Open(shared)
		}
		for round := 1; round <= s.Rounds && ctx.Err() == nil; round++ {
			var measured [][]Measure
			for _, side := range c.Sides {
				var measures []Measure
				err := Do(ctx, fmt.Sprintf("%s-%s-%d", c.Name, side.Name, round), func(run *Run) { measures = side.Run(run) })
				if err != nil {
					fail("%s, round %d: %v", side.Name, round, err)
					break
				}
				measured = append(measured, measures)
				log.Say("%s: round %d of %d: %s: %s", c.Name, round, s.Rounds, side.Name, headline(measures, c.Main))
			}
			if len(measured) == len(c.Sides) {
				c.add(measured)
			}
		}
	})
	if err != nil {
		fail("%v", err)
	}
	for _, a := range c.Aims {
		if v, ok := c.judge(a); ok {
			c.Verdicts = append(c.Verdicts, v)
		}
	}
	return c
}

// headline formats one of the measures for progress output.
func headline(measures []Measure, name string) string {
	for _, m := range measures {
		if m.Name == name {
			return FormatNumber(m.Value) + " " + m.Unit
		}
	}
	return "done"
}

func (c *Scenario) add(round [][]Measure) {
	for i, measures := range round {
		side := &c.Sides[i]
		for j, m := range measures {
			if j == len(side.Measures) {
				side.Measures = append(side.Measures, Series{Name: m.Name, Unit: m.Unit})
			}
			s := &side.Measures[j]
			s.Values = append(s.Values, m.Value)
			s.Median = Median(s.Values)
		}
	}
}

// Series returns a measure of a side.
func (c *Scenario) Series(side, name string) (Series, bool) {
	for _, s := range c.Sides {
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
func (c *Scenario) judge(a Aim) (Verdict, bool) {
	of, ok := c.Series(a.Of, a.Measure)
	v := Verdict{Aim: a, Series: Series{Name: a.Measure + " of " + a.Of, Values: slices.Clone(of.Values)}}
	if a.Over != "" && ok {
		var over Series
		over, ok = c.Series(a.Over, a.Measure)
		v.Name, v.Unit = v.Name+" / "+a.Over, " ×"
		for i := range over.Values {
			v.Values[i] /= over.Values[i]
		}
	}
	if !ok {
		return v, false
	}
	v.Median = Median(v.Values)
	if a.AtLeast > 0 {
		v.MissedBy = max(0, (a.AtLeast-v.Median)/a.AtLeast)
	} else {
		v.MissedBy = max(0, (v.Median-a.AtMost)/a.AtMost)
	}
	return v, true
}

// Run is a piece of work, such as the turn of a side. As in a test, the first failed Check
// ends it, and it closes what it has opened.
type Run struct {
	// Name names the work in profiles.
	Name string

	ctx      context.Context
	cleanups []func(context.Context) error
}

func (r *Run) Context() context.Context { return r.ctx }

// Cleanup calls cleanup once the work has ended, also if it has failed. The last function is
// called first. Their context is never done.
func (r *Run) Cleanup(cleanup func(context.Context) error) { r.cleanups = append(r.cleanups, cleanup) }

// failure is the value of a panic that ends the work.
type failure struct{ error }

// Check ends the run if err is not nil. Only the goroutine of the run may call it.
func Check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Must returns v, and ends the run if err is not nil.
func Must[T any](v T, err error) T {
	Check(err)
	return v
}

// Do runs work. It returns the error that ended the work, and those of cleanups.
func Do(ctx context.Context, name string, work func(*Run)) (err error) {
	r := &Run{Name: name, ctx: ctx}
	defer func() {
		for _, cleanup := range slices.Backward(r.cleanups) {
			err = errors.Join(err, cleanup(context.WithoutCancel(ctx)))
		}
	}()
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.error
		default:
			panic(p)
		}
	}()
	work(r)
	return nil
}
