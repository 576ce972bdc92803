package contest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Progress prints progress, a line at a time.
type Progress struct{ W io.Writer }

// Say prints a line.
func (p Progress) Say(format string, args ...any) {
	_, _ = fmt.Fprintf(p.W, "bench: "+format+"\n", args...) // progress is not essential
}

// Parameter is a part of the setting: a version, a property or the settings of a server.
type Parameter struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Report is the outcome of a run.
type Report struct {
	Date     time.Time   `json:"date"`
	Seconds  float64     `json:"seconds"` // of the run
	Rounds   int         `json:"rounds"`
	Duration float64     `json:"duration_seconds"` // of a timed round
	Short    bool        `json:"short,omitempty"`
	Setting  []Parameter `json:"setting"`
	Results  []Scenario  `json:"results"`
}

// Write prints the report to w as Markdown and, unless dir is empty, writes the
// results of each scenario into it. It keeps the files of scenarios
// that were not run. It fails if a scenario has failed.
func (r *Report) Write(w io.Writer, dir string) error {
	_, err := io.WriteString(w, r.markdown())
	for _, s := range r.Results {
		if len(s.Failures) > 0 {
			err = errors.Join(err, fmt.Errorf("scenario %s failed", s.Name))
		}
		if dir == "" {
			continue
		}
		alone := *r
		alone.Results = []Scenario{s}
		b, failed := json.MarshalIndent(alone, "", "  ")
		if failed == nil {
			failed = os.WriteFile(filepath.Join(dir, s.Name+".json"), append(b, '\n'), 0o644) //nolint:gosec // nothing in it is secret
		}
		err = errors.Join(err, failed)
	}
	return err
}

// markdown returns the whole report.
func (r *Report) markdown() string {
	var b strings.Builder
	if r.Short {
		b.WriteString("**A short run: the numbers say nothing.**\n\n")
	}
	setting := [][]string{
		{"date", r.Date.Format(time.RFC3339) + ", took " + time.Duration(r.Seconds*float64(time.Second)).Round(time.Second).String()},
		{"rounds", fmt.Sprintf("%d, in which the sides take turns; runs by time take %g s", r.Rounds, r.Duration)},
	}
	for _, p := range r.Setting {
		setting = append(setting, []string{p.Name, p.Value})
	}
	table(&b, []string{"setting", ""}, setting)

	var aims [][]string
	for _, res := range r.Results {
		for _, v := range res.Verdicts {
			aims = append(aims, append([]string{res.Name}, v.cells()...))
		}
	}
	if len(aims) > 0 {
		b.WriteString("\n")
		table(&b, []string{"scenario", "compared", "median", "min", "max", "aim", ""}, aims)
	}
	for i := range r.Results {
		r.Results[i].markdown(&b)
	}
	return b.String()
}

// CPUOthers measures how much other processes disturbed a round.
const CPUOthers = "CPU others"

// quiet is how many cores other processes may use before a round is disturbed.
const quiet = 0.2

// markdown adds a scenario: a row for each measure, a column for each side.
func (c *Scenario) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "\n### %s\n\n%s%s.\n\n", c.Name, strings.ToUpper(c.Says[:1]), c.Says[1:])
	head := []string{"median (min–max)", "unit"}
	var rows [][]string
	for i, s := range c.Sides {
		fmt.Fprintf(b, "- %s: %s\n", s.Name, s.Says)
		head = append(head, s.Name)
		for _, m := range s.Measures {
			at := slices.IndexFunc(rows, func(row []string) bool { return row[0] == m.Name })
			if at < 0 {
				at = len(rows)
				rows = append(rows, append([]string{m.Name, m.Unit}, make([]string, len(c.Sides))...))
			}
			cell := FormatNumber(m.Median)
			if m.Name == CPUOthers && m.Median > quiet {
				cell = "**disturbed:** " + cell
			}
			if len(m.Values) > 1 {
				cell += " (" + FormatNumber(slices.Min(m.Values)) + "–" + FormatNumber(slices.Max(m.Values)) + ")"
			}
			rows[at][2+i] = cell
		}
	}
	b.WriteString("\n")
	table(b, head, rows)
	for _, f := range c.Failures {
		fmt.Fprintf(b, "\nFAILED %s\n", f)
	}
}

func (v Verdict) cells() []string {
	want := "≥ " + FormatNumber(v.Aim.AtLeast)
	if v.Aim.AtMost > 0 {
		want = "≤ " + FormatNumber(v.Aim.AtMost)
	}
	says := "reached"
	if v.MissedBy > 0 {
		says = fmt.Sprintf("**missed by %.0f %%**", 100*v.MissedBy)
	}
	cells := []string{v.Name}
	for _, n := range []float64{v.Median, slices.Min(v.Values), slices.Max(v.Values)} {
		cells = append(cells, FormatNumber(n)+v.Unit)
	}
	return append(cells, want+v.Unit, says)
}

func table(b *strings.Builder, head []string, rows [][]string) {
	line := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(head)
	b.WriteString("|" + strings.Repeat("---|", len(head)) + "\n")
	for _, row := range rows {
		line(row)
	}
}

// Measure is one number of one run.
type Measure struct {
	Name  string
	Unit  string
	Value float64
}

func Of(name, unit string, value float64) Measure { return Measure{name, unit, value} }

// Median returns the middle of values, or the mean of the two in the middle.
// values must not be empty.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Percentile returns the p-th percentile of sorted values (nearest rank), 0 if
// there are none.
func Percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p * float64(len(sorted)) / 100))
	return sorted[max(rank, 1)-1]
}

// FormatNumber formats a number ≥ 0 with about three significant digits and
// thousands separators, such as "59,835" and "3.14".
func FormatNumber(n float64) string {
	switch {
	case n == 0:
		return "0"
	case n < 0.1:
		return strconv.FormatFloat(n, 'g', 2, 64)
	case n < 10:
		return strings.TrimSuffix(strconv.FormatFloat(n, 'f', 2, 64), ".00")
	case n < 100:
		return strings.TrimSuffix(strconv.FormatFloat(n, 'f', 1, 64), ".0")
	}
	s := strconv.FormatFloat(n, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// ErrWrong means that a number differs from the expected one.
var ErrWrong = errors.New("wrong")

// CheckTotals compares totals with the expected ones and names the first few users with
// a wrong total.
func CheckTotals(got, want map[string]int64) error {
	var wrong []string
	for user, n := range want {
		if m, ok := got[user]; !ok || m != n {
			wrong = append(wrong, fmt.Sprintf("user %s has %d unread, must have %d", user, m, n))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	slices.Sort(wrong)
	return fmt.Errorf("%d of %d totals are %w: %s", len(wrong), len(want), ErrWrong, strings.Join(wrong[:min(3, len(wrong))], "; "))
}
