package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kong"

	"github.com/badged/badged/internal/app"
	"github.com/badged/badged/internal/config"
)

// configCmd is `badged config`.
type configCmd struct {
	Check configCheckCmd `cmd:"" help:"Report all mistakes in a server's settings at once, and where each setting comes from."`
}

// configCheckCmd is `badged config check`. Its flags are only for the help:
// kong would stop at the first mistake.
type configCheckCmd struct {
	Connect       bool `help:"Also connect to Postgres and Redis and check that they suit badged." env:"-"`
	JSON          bool `name:"json" help:"Print JSON." env:"-"`
	config.Server `embed:""`
	config.Log    `embed:""`
}

// configReport is the output of `badged config check`.
type configReport struct {
	config.Report
	// Found is the result of --connect.
	Found []finding `json:"found,omitempty"`
}

// finding is the result of one check of Postgres or Redis.
type finding struct {
	// State is "ok", "warning" or "failure".
	State string `json:"state"`
	Text  string `json:"text"`
}

const (
	isOK      = "ok"
	isRisk    = "warning"
	isFailure = "failure"
)

// configCheckArgs returns the arguments of `config check`, including --config
// before it. ok is false for other commands and for --help.
func configCheckArgs(args []string) (rest []string, ok bool) {
	for len(args) > 0 && strings.HasPrefix(args[0], "--config") {
		n := 1
		if args[0] == "--config" {
			n = min(2, len(args))
		}
		rest, args = append(rest, args[:n]...), args[n:]
	}
	if len(args) < 2 || args[0] != "config" || args[1] != "check" ||
		slices.Contains(args, "--help") || slices.Contains(args, "-h") {
		return nil, false
	}
	return append(rest, args[2:]...), true
}

// checkConfig runs `badged config check`. It exits with exitUsage if a setting
// is wrong, and with exitFailed if only Postgres or Redis is.
func checkConfig(ctx context.Context, model *kong.Application, args []string, streams Streams) int {
	take := func(flag string) bool {
		n := len(args)
		args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == flag })
		return len(args) < n
	}
	connect, asJSON := take("--connect"), take("--json")
	report := configReport{Report: config.Check(args, model)}
	for _, err := range app.Check(report.Server) {
		report.Mistakes = append(report.Mistakes, oneLine(err))
	}
	if connect {
		report.Found = lookAround(ctx, &report.Server)
	}
	if err := report.print(streams.Out, asJSON); err != nil {
		say(streams.Err, err, "")
		return exitFailed
	}
	failures := 0
	for _, f := range report.Found {
		if f.State == isFailure {
			failures++
		}
	}
	switch {
	case len(report.Mistakes) > 0:
		say(streams.Err, errors.New(plural(len(report.Mistakes), "mistake")+" in the settings: a server would not start, or not behave as intended"), "")
		return exitUsage
	case failures > 0:
		say(streams.Err, errors.New(plural(failures, "failed check")+" of Postgres and Redis"), "")
		return exitFailed
	}
	return exitDone
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// print prints the report.
func (r *configReport) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(w, r)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SETTING\tVALUE\tFROM")
	for _, s := range r.Settings {
		fmt.Fprintf(table, "%s\t%s\t%s\n", s.Name, s.Value, s.Source)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, part := range []struct {
		title string
		lines []string
	}{{"Mistakes", r.Mistakes}, {"Warnings", r.Warnings}} {
		if len(part.lines) > 0 {
			fmt.Fprintf(w, "\n%s:\n  %s\n", part.title, strings.Join(part.lines, "\n  "))
		}
	}
	if len(r.Found) > 0 {
		fmt.Fprintln(w)
	}
	for _, f := range r.Found {
		fmt.Fprintf(w, "%-8s %s\n", f.State, f.Text)
	}
	return nil
}
