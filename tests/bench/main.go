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
	defer stop()
	context.AfterFunc(ctx, stop) // a second interrupt ends the process
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1 // or a total was wrong
	exitUsage  = 2
)

// options are the parsed command line.
type options struct {
	scenarios []contest.Scenario
	scale     contest.Scale
	out       string
	profile   string
	dir       string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitDone
	}
	if err != nil {
		return exitUsage // the flag package has printed the reason
	}
	log := rig.Progress{W: stderr}
	r, err := measureAll(ctx, o, log)
	if err == nil {
		err = r.Write(stdout, o.out)
	}
	if err != nil {
		log.Say("%v", err)
		return exitFailed
	}
	if failures := r.Failures(); failures > 0 {
		log.Say("%d of the scenarios failed", failures)
		return exitFailed
	}
	return exitDone
}

// The default scale of a run, and of a short run.
const (
	fullRounds    = 5
	fullDuration  = time.Minute
	shortDuration = time.Second
)

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{scenarios: scenarios.All()}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("scenario", "", "run only the scenarios whose name matches this `regex`: "+strings.Join(names(o.scenarios), ", "))
	sides := flags.String("side", "", "run only the sides whose name matches this `regex`; aims that need others are left out")
	flags.BoolVar(&o.scale.Small, "short", false, "small and quick, to see that all works: the numbers say nothing")
	flags.IntVar(&o.scale.Rounds, "rounds", 0, fmt.Sprintf("how often each side runs; default %d, or 1 with -short", fullRounds))
	flags.DurationVar(&o.scale.Duration, "duration", 0, fmt.Sprintf("how long a run takes that goes by time; default %s, or %s with -short", fullDuration, shortDuration))
	flags.StringVar(&o.out, "out", "", "write the results of each scenario as JSON into this `directory`")
	flags.StringVar(&o.profile, "profile", "", "write a CPU profile of this process and the statistics of all statements for every run into this `directory`; the numbers suffer")
	flags.StringVar(&o.scale.Baseline, "baseline", "", "another `binary` of badged, with which the scenarios single, single-rate, calls, small-rooms, paths and shards are interleaved")
	flags.StringVar(&o.scale.Centrifugo, "centrifugo", "", "`binary` of centrifugo, with which the scenario single is compared")
	flags.StringVar(&o.dir, "dir", "", "`directory` on a disk that Postgres keeps its data below; empty is where this user's applications keep theirs")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	err := o.check(flags.Args(), *only, *sides)
	if err != nil {
		rig.Progress{W: stderr}.Say("%v", err)
	}
	return o, err
}

// check checks the options, fills in defaults and keeps the selected scenarios.
func (o *options) check(rest []string, only, sides string) error {
	if len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q", rest[0])
	}
	if o.scale.Rounds < 0 || o.scale.Duration < 0 {
		return errors.New("-rounds and -duration must not be negative")
	}
	if o.scale.Rounds == 0 {
		o.scale.Rounds = o.scale.Pick(fullRounds, 1)
	}
	if o.scale.Duration == 0 {
		o.scale.Duration = fullDuration
		if o.scale.Small {
			o.scale.Duration = shortDuration
		}
	}
	wanted, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-scenario: %w", err)
	}
	if o.scale.Sides, err = regexp.Compile(sides); err != nil {
		return fmt.Errorf("-side: %w", err)
	}
	all := names(o.scenarios)
	o.scenarios = slices.DeleteFunc(o.scenarios, func(s contest.Scenario) bool { return !wanted.MatchString(s.Name) })
	if len(o.scenarios) == 0 {
		return fmt.Errorf("no scenario matches %q; there are %s", only, strings.Join(all, ", "))
	}
	for _, dir := range []string{o.out, o.profile} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // results are not secret
			return fmt.Errorf("make a directory for the results: %w", err)
		}
	}
	return nil
}

func names(all []contest.Scenario) []string {
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names
}

// measureAll sets up the rig and runs the scenarios. It fails if nothing can be
// measured; the report has the failures of single scenarios.
func measureAll(ctx context.Context, o options, log rig.Progress) (_ *contest.Report, err error) {
	began := time.Now()
	r, err := rig.New(ctx, rig.Config{Dir: o.dir, Profile: o.profile, SharedBuffers: o.scale.SharedBuffers(), Log: log})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close(ctx)) }()
	for _, other := range []struct {
		binary  *string
		program string
	}{{&o.scale.Baseline, rig.ProgramServer}, {&o.scale.Centrifugo, rig.ProgramFan}} {
		if *other.binary, err = r.UnderName(*other.binary, other.program); err != nil {
			return nil, err
		}
	}
	rep := &contest.Report{Date: began.UTC().Truncate(time.Second), Setting: r.Setting, Rounds: o.scale.Rounds, Duration: o.scale.Duration.Seconds(), Short: o.scale.Small}
	for _, c := range o.scenarios {
		rep.Results = append(rep.Results, c.Run(ctx, r, o.scale))
		if ctx.Err() != nil {
			return nil, errors.New("interrupted")
		}
	}
	rep.Seconds = time.Since(began).Seconds()
	return rep, nil
}
