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

	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
)

// Report is the outcome of a run.
type Report struct {
	Date     time.Time   `json:"date"`
	Seconds  float64     `json:"seconds"` // of the run
	Rounds   int         `json:"rounds"`
	Duration float64     `json:"duration_seconds"` // of a timed round
	Short    bool        `json:"short,omitempty"`
	Setting  rig.Setting `json:"setting"`
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
	errs := []error{err}
	for _, s := range r.Results {
		alone := *r
		alone.Results = []Result{s}
		b, err := json.MarshalIndent(alone, "", "  ")
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, s.Scenario+".json"), append(b, '\n'), 0o644) //nolint:gosec // nothing in it is secret
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// markdown returns the whole report: the setting, the verdicts on aims, and the
// measures of each scenario.
func (r *Report) markdown() string {
	var b strings.Builder
	s := r.Setting
	if r.Short {
		b.WriteString("**A short run: the numbers say nothing.**\n\n")
	}
	setting := [][]string{
		{"date", r.Date.Format(time.RFC3339) + ", took " + time.Duration(r.Seconds*float64(time.Second)).Round(time.Second).String()},
		{"rounds", fmt.Sprintf("%d, in which the sides take turns; runs by time take %g s", r.Rounds, r.Duration)},
		{"badged", s.Commit + ", " + s.Go},
		{"machine", fmt.Sprintf("%s, %d cores, %.0f GiB", s.Machine.CPU, s.Machine.Cores, s.Machine.MemoryGiB)},
		{"system", s.Machine.System + ", kernel " + s.Machine.Kernel + "; load before: " + s.Machine.Load},
		{"disk", fmt.Sprintf("%s (%s); 8 KiB + %s: median %.3f ms, p99 %.3f ms (%d times)",
			s.Disk.Filesystem, s.Disk.Dir, s.Disk.SyncCall, s.Disk.SyncMS, s.Disk.SyncMS99, s.Disk.SyncTimes)},
		{"Postgres", s.Postgres.Version + ": " + list(s.Postgres.Settings)},
		{"Redis", s.Redis.Version + ": " + list(s.Redis.Settings)},
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

func list(parameters []rig.Parameter) string {
	var all []string
	for _, p := range parameters {
		all = append(all, p.Name+"="+p.Value)
	}
	return strings.Join(all, " ")
}

// markdown adds a scenario: a row for each measure, a column for each side.
func (r *Result) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "\n### %s\n\n%s.\n\n", r.Scenario, upper(r.Says))
	for _, s := range r.Sides {
		if s.Says != "" {
			fmt.Fprintf(b, "- %s: %s\n", s.Name, s.Says)
		}
	}
	head := []string{"median (min–max)", "unit"}
	var rows [][]string
	for i, s := range r.Sides {
		head = append(head, s.Name)
		for _, m := range s.Measures {
			at := slices.IndexFunc(rows, func(row []string) bool { return row[0] == m.Name })
			if at < 0 {
				at = len(rows)
				rows = append(rows, append([]string{m.Name, m.Unit}, make([]string, len(r.Sides))...))
			}
			rows[at][2+i] = measure.FormatNumber(m.Median)
			if m.Name == rig.CPUOthers && m.Median > rig.Quiet {
				rows[at][2+i] = "**disturbed:** " + rows[at][2+i]
			}
			if len(m.Values) > 1 {
				rows[at][2+i] += " (" + measure.FormatNumber(m.Min) + "–" + measure.FormatNumber(m.Max) + ")"
			}
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
	compared, unit := v.Aim.Measure+" of "+v.Aim.Of, ""
	if v.Aim.Over != "" {
		compared += " / " + v.Aim.Over
		unit = " ×"
	}
	want := "≥ " + measure.FormatNumber(v.Aim.AtLeast)
	if v.Aim.AtMost > 0 {
		want = "≤ " + measure.FormatNumber(v.Aim.AtMost)
	}
	says := "reached"
	if !v.Reached {
		says = fmt.Sprintf("**missed by %.0f %%**", 100*v.MissedBy)
	}
	return []string{
		compared, measure.FormatNumber(v.Median) + unit, measure.FormatNumber(slices.Min(v.Values)) + unit, measure.FormatNumber(slices.Max(v.Values)) + unit,
		want + unit, says,
	}
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

func upper(sentence string) string { return strings.ToUpper(sentence[:1]) + sentence[1:] }
