// Package conformance checks clients of the protocol badge.v1, in any language. It starts the
// client as a program that prints the badges that it would show. For this client, the package acts
// as the server, which follows a script.
//
// The package does not know the gateway or the SDK. The golden frames in web/sdk/testdata define
// the protocol for the package, the gateway and the SDK. ADR 73 has the reasons.
package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// Transport is how frames reach the client.
type Transport string

// The transports.
const (
	WebSockets       Transport = "ws"
	ServerSentEvents Transport = "sse"
)

// Config describes the client and the scenarios to run.
type Config struct {
	// Transport is what the client must use. Default: WebSockets.
	Transport Transport
	// Command is the program of the client and its arguments.
	Command []string
	// Only selects the scenarios to run, by names or prefixes of names. If it is empty, all
	// scenarios run.
	Only []string
	// StepTimeout is how long the client may take for a step. Default: 10 s.
	StepTimeout time.Duration
	// Parallel is how many scenarios run at the same time. Default: 4.
	Parallel int
	// pause is how long the server asks clients to wait before a reconnect. Only tests set it.
	// Default: usualPause.
	pause time.Duration
}

// Result is how a scenario ended.
type Result string

// The results.
const (
	Passed      Result = "passed"
	Failed      Result = "failed"
	Unsupported Result = "unsupported"
)

// Outcome is the result of one scenario.
type Outcome struct {
	Name   string `json:"name"`
	Story  string `json:"story"`
	Result Result `json:"result"`
	// Expected and Happened are set if the scenario failed. If the client does not support the
	// scenario, Happened says what it does not support.
	Expected string `json:"expected,omitempty"`
	Happened string `json:"happened,omitempty"`
	// Trace lists everything that client and server did, in order.
	Trace []string `json:"trace"`
	// Stderr is the last part of the client's standard error, if the scenario failed.
	Stderr string `json:"stderr,omitempty"`
}

// Report is the result of a run.
type Report struct {
	Command     []string  `json:"command"`
	Transport   Transport `json:"transport"`
	Passed      int       `json:"passed"`
	Failed      int       `json:"failed"`
	Unsupported int       `json:"unsupported"`
	Scenarios   []Outcome `json:"scenarios"`
}

// Info describes a scenario.
type Info struct{ Name, Story string }

// Scenarios lists the scenarios of a transport, in the order of a report.
func Scenarios(transport Transport) []Info {
	var all []Info
	for _, s := range scenarios(transport, usualPause) {
		all = append(all, Info{s.name, s.story})
	}
	return all
}

// Run runs the scenarios, each with a new process of the client. The report contains the client's
// failures; an error means that the scenarios could not be run. If ctx ends, Run returns the error
// of ctx, and a report of the scenarios that have ended before.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if len(cfg.Command) == 0 {
		return Report{}, errors.New("no command of a client to run")
	}
	if cfg.Transport == "" {
		cfg.Transport = WebSockets
	}
	if cfg.StepTimeout == 0 {
		cfg.StepTimeout = 10 * time.Second
	}
	if cfg.Parallel == 0 {
		cfg.Parallel = 4
	}
	if cfg.pause == 0 {
		cfg.pause = usualPause
	}
	chosen, err := choose(scenarios(cfg.Transport, cfg.pause), cfg.Only)
	if err != nil {
		return Report{}, err
	}
	report := Report{Command: cfg.Command, Transport: cfg.Transport, Scenarios: make([]Outcome, len(chosen))}
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(cfg.Parallel)
	for i, s := range chosen {
		group.Go(func() error {
			outcome, err := play(running, cfg, s)
			if err == nil {
				err = running.Err() // ctx has ended and killed the client, so its failure does not count
			}
			if err == nil {
				report.Scenarios[i] = outcome
			}
			return err
		})
	}
	err = group.Wait()
	if err != nil && ctx.Err() == nil {
		return Report{}, err
	}
	report.Scenarios = slices.DeleteFunc(report.Scenarios, func(o Outcome) bool { return o.Name == "" })
	for _, o := range report.Scenarios {
		switch o.Result {
		case Passed:
			report.Passed++
		case Unsupported:
			report.Unsupported++
		default:
			report.Failed++
		}
	}
	return report, err
}

// choose returns the scenarios whose names begin with an element of `only`, or all scenarios if
// `only` is empty. It returns an error if an element matches no scenario.
func choose(all []scenario, only []string) ([]scenario, error) {
	if len(only) == 0 {
		return all, nil
	}
	for _, prefix := range only {
		if !slices.ContainsFunc(all, func(s scenario) bool { return strings.HasPrefix(s.name, prefix) }) {
			return nil, fmt.Errorf("no scenario is called %q", prefix)
		}
	}
	return slices.DeleteFunc(all, func(s scenario) bool {
		return !slices.ContainsFunc(only, func(prefix string) bool { return strings.HasPrefix(s.name, prefix) })
	}), nil
}

// Print writes the report as text: one line for each scenario, and details below each failed
// scenario.
func (r Report) Print(w io.Writer) error {
	var text strings.Builder
	for _, o := range r.Scenarios {
		fmt.Fprintf(&text, "%-11s  %-18s  %s\n", o.Result, o.Name, o.Story)
		switch o.Result {
		case Unsupported:
			fmt.Fprintf(&text, "    the client does not support %s\n", o.Happened)
		case Failed:
			fmt.Fprintf(&text, "    expected: %s\n    happened: %s\n", o.Expected, o.Happened)
			for _, line := range o.Trace {
				fmt.Fprintf(&text, "      %s\n", line)
			}
			for line := range strings.Lines(o.Stderr) {
				fmt.Fprintf(&text, "      stderr: %s\n", strings.TrimRight(line, "\n"))
			}
		}
	}
	fmt.Fprintf(&text, "%d passed, %d failed, %d not supported\n", r.Passed, r.Failed, r.Unsupported)
	_, err := io.WriteString(w, text.String())
	return err
}

// JSON writes the report as JSON.
func (r Report) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(r)
}
