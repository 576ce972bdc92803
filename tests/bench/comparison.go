package main

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// comparison is a case: one way to do one job, measured.
type comparison struct {
	name string
	// says is what is done and measured, in a sentence.
	says string
	// rounds is how often by default.
	rounds int
	// round does the job once, on databases and processes of its own, and
	// returns what it measured: in every round the same measures in the same
	// order. It may return them together with an error, which says that
	// something came out wrong.
	round func(ctx context.Context, r *rig) ([]measure, error)
}

// measure is one number of one round.
type measure struct {
	name  string
	unit  string
	value float64
	aim   aim
}

// aim is what a number should be; the zero aim is none. To miss it is no
// failure: that depends on the machine.
type aim struct {
	AtLeast float64 `json:"at_least,omitempty"`
	Below   float64 `json:"below,omitempty"`
}

// met reports whether a value is what it should be.
func (a aim) met(value float64) bool {
	return value >= a.AtLeast && (a.Below == 0 || value < a.Below)
}

// result is what the rounds of a case gave.
type result struct {
	Case     string   `json:"case"`
	Says     string   `json:"says"`
	Rounds   int      `json:"rounds"` // that were completed
	Measures []series `json:"measures"`
	// Failures are errors and wrong totals, none where all is well.
	Failures []string `json:"failures,omitempty"`
}

// series is a measure over the rounds.
type series struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Values []float64 `json:"values"`
	Aim    aim       `json:"aim,omitzero"`
}

// run runs a case. After a failure it goes on with the next round, unless ctx
// is done: one bad round must not hide what the others show.
func (c comparison) run(ctx context.Context, r *rig, rounds int) result {
	out := result{Case: c.name, Says: c.says}
	for i := 1; i <= rounds && ctx.Err() == nil; i++ {
		measures, err := c.round(ctx, r)
		if err != nil {
			out.Failures = append(out.Failures, fmt.Sprintf("round %d: %v", i, err))
			r.log.say("%s: round %d of %d failed: %v", c.name, i, rounds, err)
		}
		if len(measures) == 0 {
			continue
		}
		r.log.say("%s: round %d of %d: %s", c.name, i, rounds, headline(measures))
		out.add(measures)
	}
	return out
}

// add adds the measures of one more round.
func (r *result) add(measures []measure) {
	r.Rounds++
	for i, m := range measures {
		if i == len(r.Measures) {
			r.Measures = append(r.Measures, series{Name: m.name, Unit: m.unit, Aim: m.aim})
		}
		s := &r.Measures[i]
		s.Values = append(s.Values, m.value)
		s.Median, s.Min, s.Max = median(s.Values), slices.Min(s.Values), slices.Max(s.Values)
	}
}

// headline is the measures that have an aim, for whoever watches.
func headline(measures []measure) string {
	var text string
	for _, m := range measures {
		if m.aim == (aim{}) {
			continue
		}
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("%s %s %s", m.name, formatNumber(m.value), m.unit)
	}
	return text
}

// median returns the middle of values, or the mean of the two in the middle.
// There must be some.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// percentile returns the value that p percent of the sorted values do not
// exceed (nearest rank), 0 where there are none.
func percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p * float64(len(sorted)) / 100))
	return sorted[max(rank, 1)-1]
}
