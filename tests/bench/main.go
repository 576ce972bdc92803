// Bench compares badged with other ways to do the same jobs, in turns on this
// machine: the rate of publishing and folding, its cost, and the latency from a
// publisher to the client whose badge changes. Postgres and Redis are real and
// private to the run; Postgres is on a disk with durability on. After every run,
// bench compares the totals with those of its own model.
//
//	go -C tests/bench run . [-scenario REGEX] [-side REGEX] [-rounds N] [-duration D] [-short] [-out DIR] [-profile DIR]
//
// It exits with 1 if something failed or a total was wrong, never because
// something was slow. docs/benchmarks.md explains the output.
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
)

// scenarios returns all scenarios in the order of runs and reports. To add one,
// write a file and add a line here.
func scenarios() []scenario {
	return []scenario{
		single(),
		singleRate(),
		sustained(),
		overload(),
		hotUsers(),
		group(),
		latency(),
		connections(),
		restart(),
		reads(),
		growth(),
		loadScenario(),
		rebuilding(),
		publishSQL(),
		frames(),
		rooms(),
		roomReads(),
		roomDisk(),
		push(),
		webhooks(),
		shardsScenario(),
	}
}

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
	scenarios []scenario
	scale     scale
	out       string
	profile   string
	traffic   string
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
	log := progress{stderr}
	r, err := measureAll(ctx, o, log)
	if err == nil {
		err = r.write(stdout, o.out)
	}
	if err != nil {
		log.say("%v", err)
		return exitFailed
	}
	if failures := r.failures(); failures > 0 {
		log.say("%d of the scenarios failed", failures)
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
	o := options{scenarios: scenarios()}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("scenario", "", "run only the scenarios whose name matches this `regex`: "+strings.Join(names(o.scenarios), ", "))
	sides := flags.String("side", "", "run only the sides whose name matches this `regex`; aims that need others are left out")
	flags.BoolVar(&o.scale.small, "short", false, "small and quick, to see that all works: the numbers say nothing")
	flags.IntVar(&o.scale.rounds, "rounds", 0, fmt.Sprintf("how often each side runs; default %d, or 1 with -short", fullRounds))
	flags.DurationVar(&o.scale.duration, "duration", 0, fmt.Sprintf("how long a run takes that goes by time; default %s, or %s with -short", fullDuration, shortDuration))
	flags.StringVar(&o.out, "out", "", "write the results of each scenario as JSON and as a plot into this `directory`")
	flags.StringVar(&o.profile, "profile", "", "write a CPU profile of this process and the statistics of all statements for every run into this `directory`; the numbers suffer")
	flags.StringVar(&o.scale.baseline, "baseline", "", "another `binary` of badged, with which the scenarios single and single-rate are interleaved")
	flags.StringVar(&o.scale.centrifugo, "centrifugo", "", "`binary` of centrifugo, with which the scenario single is compared")
	flags.StringVar(&o.traffic, "traffic", os.Getenv("BADGED_COLLEGEMSG"),
		"`file` of lines SRC DST UNIXTS to load (BADGED_COLLEGEMSG); empty generates one")
	flags.StringVar(&o.dir, "dir", "", "`directory` on a disk that Postgres keeps its data below; empty is where this user's applications keep theirs")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	err := o.check(flags.Args(), *only, *sides)
	if err != nil {
		progress{stderr}.say("%v", err)
	}
	return o, err
}

// check checks the options, fills in defaults and keeps the selected scenarios.
func (o *options) check(rest []string, only, sides string) error {
	if len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q", rest[0])
	}
	if o.scale.rounds < 0 || o.scale.duration < 0 {
		return errors.New("-rounds and -duration must not be negative")
	}
	if o.scale.rounds == 0 {
		o.scale.rounds = o.scale.pick(fullRounds, 1)
	}
	if o.scale.duration == 0 {
		o.scale.duration = fullDuration
		if o.scale.small {
			o.scale.duration = shortDuration
		}
	}
	wanted, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-scenario: %w", err)
	}
	if o.scale.sides, err = regexp.Compile(sides); err != nil {
		return fmt.Errorf("-side: %w", err)
	}
	all := names(o.scenarios)
	o.scenarios = slices.DeleteFunc(o.scenarios, func(s scenario) bool { return !wanted.MatchString(s.name) })
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

func names(all []scenario) []string {
	var names []string
	for _, s := range all {
		names = append(names, s.name)
	}
	return names
}

// measureAll sets up the rig and runs the scenarios. It fails if nothing can be
// measured; the report has the failures of single scenarios.
func measureAll(ctx context.Context, o options, log progress) (_ *report, err error) {
	began := time.Now()
	rig, err := newRig(ctx, o, log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rig.close(ctx)) }()
	for _, other := range []struct {
		binary  *string
		program string
	}{{&o.scale.baseline, programServer}, {&o.scale.centrifugo, programFan}} {
		if *other.binary, err = underName(rig.dir, *other.binary, other.program); err != nil {
			return nil, err
		}
	}
	rep := &report{Date: began.UTC().Truncate(time.Second), Setting: rig.setting, Rounds: o.scale.rounds, Duration: o.scale.duration.Seconds(), Short: o.scale.small}
	for _, c := range o.scenarios {
		rep.Results = append(rep.Results, c.run(ctx, rig, o.scale))
		if ctx.Err() != nil {
			return nil, errors.New("interrupted")
		}
	}
	rep.Seconds = time.Since(began).Seconds()
	return rep, nil
}

// progress prints progress, a line at a time.
type progress struct{ w io.Writer }

func (p progress) say(format string, args ...any) {
	_, _ = fmt.Fprintf(p.w, "bench: "+format+"\n", args...) // progress is not essential
}
