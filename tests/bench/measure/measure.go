// Package measure has the numbers of a run: measures, their statistics, and the
// comparison of totals with the expected ones.
package measure

// Measure is one number of one run.
type Measure struct {
	Name  string
	Unit  string
	Value float64
}

// Of returns a measure.
func Of(name, unit string, value float64) Measure { return Measure{name, unit, value} }
