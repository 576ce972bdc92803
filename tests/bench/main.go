// Bench measures the built binary on this machine: how fast it takes and folds
// traffic, and how long a message takes from its publisher to the client whose
// badge it changes. Postgres and Redis are real and private to the run, on a
// disk and with durability on; the totals of every round are compared with
// those that this program works out by itself.
//
//	go run ./tests/bench [-only NAME,…] [-round N] [-json FILE] [-traffic FILE] [-dir DIR]
//
// It exits with 1 where something failed or a total was wrong, never because
// something was slow. See docs/benchmarks.md for how to read what it prints.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// comparisons are all the cases, in the order in which they run and are
// reported. A new one is a file of its own and a line here.
func comparisons() []comparison {
	return []comparison{
		replayCase("replay", oneProcess),
		replayCase("replay-redis", threeProcesses),
		latencyCase("latency", oneProcess, standardLoad()),
		latencyCase("latency-redis", threeProcesses, standardLoad()),
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

// options are what the command line says.
type options struct {
	cases   []comparison
	rounds  int // 0: each case's own
	json    string
	traffic string
	dir     string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitDone
	}
	if err != nil {
		return exitUsage // the flag package has said why
	}
	log := progress{stderr}
	r, err := measureAll(ctx, o, log)
	if err == nil {
		err = r.write(stdout, o.json)
	}
	if err != nil {
		log.say("%v", err)
		return exitFailed
	}
	if failures := r.failures(); failures > 0 {
		log.say("%d of the cases failed", failures)
		return exitFailed
	}
	return exitDone
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{cases: comparisons()}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("only", "", "run only these `cases`, comma-separated: "+strings.Join(names(o.cases), ", "))
	flags.IntVar(&o.rounds, "round", 0, "`rounds` of each case; 0 is what the case does by default")
	flags.StringVar(&o.json, "json", "", "write the results to this `file` as well, as JSON")
	flags.StringVar(&o.traffic, "traffic", os.Getenv("BADGED_COLLEGEMSG"),
		"`file` of lines SRC DST UNIXTS to replay (BADGED_COLLEGEMSG); empty generates one")
	flags.StringVar(&o.dir, "dir", "", "`directory` on a disk that Postgres keeps its data below; empty is where this user's applications keep theirs")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	fail := func(format string, args ...any) (options, error) {
		err := fmt.Errorf(format, args...)
		progress{stderr}.say("%v", err)
		return o, err
	}
	if flags.NArg() > 0 {
		return fail("unexpected argument %q", flags.Arg(0))
	}
	if o.rounds < 0 {
		return fail("-round must be 0 or more, is %d", o.rounds)
	}
	if *only != "" {
		wanted := strings.Split(*only, ",")
		for _, name := range wanted {
			if !slices.Contains(names(o.cases), name) {
				return fail("there is no case %q; there are %s", name, strings.Join(names(o.cases), ", "))
			}
		}
		o.cases = slices.DeleteFunc(o.cases, func(c comparison) bool { return !slices.Contains(wanted, c.name) })
	}
	return o, nil
}

func names(cases []comparison) []string {
	var all []string
	for _, c := range cases {
		all = append(all, c.name)
	}
	return all
}

// measureAll sets up the rig and runs the cases. Its error means that nothing
// could be measured; what failed in a case is in the report.
func measureAll(ctx context.Context, o options, log progress) (_ *report, err error) {
	began := time.Now()
	rig, err := newRig(ctx, o.dir, o.traffic, log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rig.close(ctx)) }()
	rep := &report{Date: began.UTC().Truncate(time.Second), Setting: rig.setting}
	for _, c := range o.cases {
		rounds := c.rounds
		if o.rounds > 0 {
			rounds = o.rounds
		}
		rep.Results = append(rep.Results, c.run(ctx, rig, rounds))
		if ctx.Err() != nil {
			return nil, errors.New("interrupted")
		}
	}
	rep.Seconds = time.Since(began).Seconds()
	return rep, nil
}

// progress says what is going on, a line at a time.
type progress struct{ w io.Writer }

func (p progress) say(format string, args ...any) {
	_, _ = fmt.Fprintf(p.w, "bench: "+format+"\n", args...) // if nobody listens, so be it
}
