package contest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
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
	Results  []Result    `json:"results"`
}

// Failures returns how many scenarios failed.
func (r *Report) Failures() int {
	n := 0
	for _, s := range r.Results {
		if len(s.Failures) > 0 {
			n++
		}
	}
	return n
}

// Write prints the report to w as Markdown and, unless dir is empty, writes the
// results of each scenario into it. It keeps the files of scenarios
// that were not run.
func (r *Report) Write(w io.Writer, dir string) error {
	_, err := io.WriteString(w, r.markdown())
	if dir == "" {
		return err
	}
	for _, s := range r.Results {
		alone := *r
		alone.Results = []Result{s}
		b, failed := json.MarshalIndent(alone, "", "  ")
		if failed == nil {
			failed = os.WriteFile(filepath.Join(dir, s.Scenario+".json"), append(b, '\n'), 0o644) //nolint:gosec // nothing in it is secret
		}
		err = errors.Join(err, failed)
	}
	return err
}

// markdown returns the whole report: the setting, the verdicts on aims, and the
// measures of each scenario.
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
			aims = append(aims, append([]string{res.Scenario}, v.cells()...))
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

// quiet is how many cores other processes may use before a round counts as
// disturbed.
const quiet = 0.2

// markdown adds a scenario: a row for each measure, a column for each side.
func (r *Result) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "\n### %s\n\n%s%s.\n\n", r.Scenario, strings.ToUpper(r.Says[:1]), r.Says[1:])
	head := []string{"median (min–max)", "unit"}
	var rows [][]string
	for i, s := range r.Sides {
		fmt.Fprintf(b, "- %s: %s\n", s.Name, s.Says)
		head = append(head, s.Name)
		for _, m := range s.Measures {
			at := slices.IndexFunc(rows, func(row []string) bool { return row[0] == m.Name })
			if at < 0 {
				at = len(rows)
				rows = append(rows, append([]string{m.Name, m.Unit}, make([]string, len(r.Sides))...))
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
	for _, f := range r.Failures {
		fmt.Fprintf(b, "\nFAILED %s\n", f)
	}
}

// cells describes an aim and its verdict.
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

// table writes a table in Markdown.
func table(b *strings.Builder, head []string, rows [][]string) {
	line := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(head)
	b.WriteString("|" + strings.Repeat("---|", len(head)) + "\n")
	for _, row := range rows {
		line(row)
	}
}
