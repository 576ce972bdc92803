// Bench compares badged with other ways to do the same jobs, in turns on this
// machine: the rate of publishing and folding, its cost, and the latency from a
// publisher to the client whose badge changes. Postgres and Redis are real and
// private to the run; Postgres is on a disk with durability on. After every run,
// bench compares the totals with those of its own model.
//
//	go -C tests/bench run . [-scenario REGEX] [-side REGEX] [-rounds N] [-duration D] [-short] [-out DIR] [-profile DIR]
//
// It exits with 1 if something failed or a total was wrong, never because
// something was slow. docs/measuring.md explains the output.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/scenarios"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second interrupt ends the process
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		contest.Progress{W: os.Stderr}.Say("%v", err)
		os.Exit(1)
	}
}

type options struct {
	only    *regexp.Regexp
	scale   contest.Scale
	out     string
	profile string
	dir     string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	var r contest.Report
	if err := contest.Do(ctx, "bench", func(run *contest.Run) { r = measureAll(run, o, contest.Progress{W: stderr}) }); err != nil {
		return err
	}
	return r.Write(stdout, o.out)
}

// parse returns the options, with defaults, and makes the directories for results.
func parse(args []string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("scenario", "", "run only the scenarios whose name matches this `regex`: "+names())
	sides := flags.String("side", "", "run only the sides whose name matches this `regex`; aims that need others are left out")
	flags.BoolVar(&o.scale.Small, "short", false, "small and quick, to see that all works: the numbers say nothing")
	rounds := flags.Uint("rounds", 0, "how often each side runs; default 5, or 1 with -short")
	flags.DurationVar(&o.scale.Duration, "duration", 0, "how long a run takes that goes by time; default 1m, or 1s with -short")
	flags.StringVar(&o.out, "out", "", "write the results of each scenario as JSON into this `directory`")
	flags.StringVar(&o.profile, "profile", "", "write a CPU profile of this process and the statistics of all statements for every run into this `directory`; the numbers suffer")
	flags.StringVar(&o.scale.Baseline, "baseline", "", "another `binary` of badged, with which the scenarios single, single-rate, calls, small-rooms, paths and shards are interleaved")
	flags.StringVar(&o.scale.Centrifugo, "centrifugo", "", "`binary` of centrifugo, with which the scenario single is compared")
	flags.StringVar(&o.dir, "dir", "", "`directory` on a disk that Postgres keeps its data below; empty is where this user's applications keep theirs")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.only, err = regexp.Compile(*only); err != nil {
		return o, fmt.Errorf("-scenario: %w", err)
	}
	if o.scale.Sides, err = regexp.Compile(*sides); err != nil {
		return o, fmt.Errorf("-side: %w", err)
	}
	if len(selected(nil, o)) == 0 {
		return o, fmt.Errorf("no scenario matches %q; there are %s", *only, names())
	}
	if o.scale.Rounds = int(*rounds); *rounds == 0 {
		o.scale.Rounds = o.scale.Pick(5, 1)
	}
	if o.scale.Duration <= 0 {
		o.scale.Duration = time.Duration(o.scale.Pick(60, 1)) * time.Second
	}
	for _, dir := range []string{o.out, o.profile} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // results are not secret
			return o, fmt.Errorf("make a directory for the results: %w", err)
		}
	}
	return o, nil
}

func selected(r *rig.Rig, o options) []contest.Scenario {
	return slices.DeleteFunc(scenarios.All(r, o.scale), func(s contest.Scenario) bool { return !o.only.MatchString(s.Name) })
}

func names() string {
	var names []string
	for _, s := range scenarios.All(nil, contest.Scale{}) {
		names = append(names, s.Name)
	}
	return strings.Join(names, ", ")
}

// measureAll sets up the rig and runs the scenarios. It fails if nothing can be
// measured; the report has the failures of single scenarios.
func measureAll(run *contest.Run, o options, log contest.Progress) contest.Report {
	began := time.Now()
	r := &rig.Rig{Dir: o.dir, Profile: o.profile}
	if !o.scale.Small {
		r.SharedBuffers = "4GB" // keeps the tables of millions of users in memory
	}
	r.Open(run, log)
	o.scale.Baseline = r.UnderName(o.scale.Baseline, rig.ProgramServer)
	o.scale.Centrifugo = r.UnderName(o.scale.Centrifugo, rig.ProgramFan)
	rep := contest.Report{Date: began.UTC().Truncate(time.Second), Rounds: o.scale.Rounds, Duration: o.scale.Duration.Seconds(), Short: o.scale.Small, Setting: r.Setting}
	for _, c := range selected(r, o) {
		rep.Results = append(rep.Results, c.Run(run.Context(), o.scale, log))
		contest.Check(run.Context().Err())
	}
	rep.Seconds = time.Since(began).Seconds()
	return rep
}
