package offline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/conformance"
)

// Conformance is `badged conformance`.
type Conformance struct {
	Command   []string              `arg:"" optional:"" help:"The program of the client and its arguments, after --. docs/conformance.md says what the program must read and print."`
	Transport conformance.Transport `help:"The transport that the client must use: ws for WebSockets, sse for server-sent events and commands over HTTP." enum:"ws,sse" default:"ws" env:"-"`
	Only      []string              `help:"Run only the scenarios whose names begin with this text." placeholder:"NAME" env:"-"`
	List      bool                  `help:"List the scenarios without running them." env:"-"`
	JSON      string                `name:"json" help:"Also write the report to a file, as JSON." placeholder:"FILE" env:"-"`
	Timeout   time.Duration         `help:"How long the client may take for each step of a scenario." default:"10s" env:"-"`
	Parallel  int                   `help:"Number of scenarios that run at the same time, 1 to 64." default:"4" env:"-"`
}

// Validate implements kong's validation.
func (c *Conformance) Validate() error {
	const maxParallel = 64
	switch {
	case len(c.Command) == 0 && !c.List:
		return errors.New("the command of a client is required, such as `badged conformance -- node client.mjs`")
	case c.Timeout <= 0:
		return errors.New("--timeout must be more than 0s")
	case c.Parallel < 1 || c.Parallel > maxParallel:
		return fmt.Errorf("--parallel must be from 1 to %d", maxParallel)
	}
	return nil
}

// Run runs the client through the scenarios and prints the report. It fails if a scenario fails.
func (c *Conformance) Run(ctx context.Context, streams terminal.Streams) error {
	if c.List {
		table := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
		for _, s := range conformance.Scenarios(c.Transport) {
			fmt.Fprintf(table, "%s\t%s\n", s.Name, s.Story)
		}
		return table.Flush()
	}
	report, err := conformance.Run(ctx, conformance.Config{
		Transport: c.Transport, Command: c.Command, Only: c.Only, StepTimeout: c.Timeout, Parallel: c.Parallel,
	})
	if err != nil {
		if len(report.Scenarios) > 0 {
			err = errors.Join(err, report.Print(streams.Out))
			fmt.Fprintln(streams.Out, "Interrupted: the other scenarios have not ended.")
		}
		return err
	}
	if err := report.Print(streams.Out); err != nil {
		return err
	}
	if c.JSON != "" {
		if err := c.write(report); err != nil {
			return err
		}
	}
	if report.Failed > 0 {
		return fmt.Errorf("the client fails %d of %s", report.Failed, terminal.Counted(int64(len(report.Scenarios)), "scenario"))
	}
	return nil
}

func (c *Conformance) write(report conformance.Report) error {
	file, err := os.Create(c.JSON)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if err := errors.Join(report.JSON(file), file.Close()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
