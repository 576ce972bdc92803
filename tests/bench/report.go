package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// report is the outcome of a run.
type report struct {
	Date    time.Time `json:"date"`
	Seconds float64   `json:"seconds"` // that the run took
	Setting setting   `json:"setting"`
	Results []result  `json:"results"`
}

// failures returns how many cases failed.
func (r *report) failures() int {
	n := 0
	for _, c := range r.Results {
		if len(c.Failures) > 0 {
			n++
		}
	}
	return n
}

// write prints the report to w, and unless file is empty writes it there as
// JSON.
func (r *report) write(w io.Writer, file string) error {
	err := r.print(w)
	if file == "" {
		return err
	}
	b, jsonErr := json.MarshalIndent(r, "", "  ")
	if jsonErr == nil {
		jsonErr = os.WriteFile(file, append(b, '\n'), 0o644) //nolint:gosec // nothing in it is secret
	}
	return errors.Join(err, jsonErr)
}

func (r *report) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(cells ...string) { // tabwriter keeps errors for Flush
		_, _ = fmt.Fprintln(t, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	s := r.Setting
	row("date", r.Date.Format(time.RFC3339)+", took "+time.Duration(r.Seconds*float64(time.Second)).Round(time.Second).String())
	row("badged", s.Commit+", "+s.Go)
	row("machine", fmt.Sprintf("%s, %d cores, %.0f GiB", s.Machine.CPU, s.Machine.Cores, s.Machine.MemoryGiB))
	row("system", s.Machine.System+", kernel "+s.Machine.Kernel+"; load before: "+s.Machine.Load)
	row("disk", fmt.Sprintf("%s (%s)", s.Disk.Filesystem, s.Disk.Dir))
	row("8 KiB + "+s.Disk.SyncCall, fmt.Sprintf("median %.3f ms, p99 %.3f ms (%d times)", s.Disk.SyncMS, s.Disk.SyncMS99, s.Disk.SyncTimes))
	row("Postgres", s.Postgres.Version)
	for parameters := s.Postgres.Settings; len(parameters) > 0; {
		n := min(5, len(parameters))
		var line []string
		for _, p := range parameters[:n] {
			line = append(line, p.Name+"="+p.Value)
		}
		row("", strings.Join(line, " "))
		parameters = parameters[n:]
	}
	row("traffic", s.Traffic)
	if err := t.Flush(); err != nil {
		return err
	}

	for _, c := range r.Results {
		if _, err := fmt.Fprintf(w, "\n%s: %s\n", c.Case, c.Says); err != nil {
			return err
		}
		row(fmt.Sprintf("  rounds: %d", c.Rounds), "unit", "median", "min", "max", "aim")
		for _, m := range c.Measures {
			row("  "+m.Name, m.Unit, formatNumber(m.Median), formatNumber(m.Min), formatNumber(m.Max), m.Aim.describe(m.Median))
		}
		if err := t.Flush(); err != nil {
			return err
		}
		for _, failure := range c.Failures {
			if _, err := fmt.Fprintf(w, "  FAILED %s\n", failure); err != nil {
				return err
			}
		}
	}
	return nil
}

// describe says what the aim is and whether a value meets it.
func (a aim) describe(value float64) string {
	verdict := "met"
	if !a.met(value) {
		verdict = "missed"
	}
	switch {
	case a == aim{}:
		return ""
	case a.Below > 0:
		return "< " + formatNumber(a.Below) + " " + verdict
	default:
		return "≥ " + formatNumber(a.AtLeast) + " " + verdict
	}
}

// formatNumber returns a number ≥ 0 with about four significant digits, its
// thousands set apart, such as "59,835" and "3.14".
func formatNumber(n float64) string {
	switch {
	case n == 0:
		return "0"
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
