package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"text/tabwriter"
	"time"

	"github.com/badged/badged/internal/bridge/relay"
	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/pg/pooler"
	"github.com/badged/badged/internal/server/app"
	"github.com/badged/badged/internal/server/config"
	"github.com/badged/badged/migrations"
)

type relayCmd struct {
	Run     relayRunCmd     `cmd:"" default:"withargs" help:"Copy the events of the outbox to badged."`
	Install relayInstallCmd `cmd:"" help:"Create the outbox in the database of a chat backend, or update it to this release."`
	Status  relayStatusCmd  `cmd:"" help:"Show the events in the outbox, and the events that badged has refused."`
	Retry   relayRetryCmd   `cmd:"" help:"Move the refused events back into the outbox, so that the relay sends them again."`
}

type relayRunCmd struct {
	config.Relay `embed:""`
	MaxLag       time.Duration `help:"With --database-url or --shard: how far folding may fall behind. Above this, the relay copies no further events until folding has caught up. 0 for no limit." default:"30s"`
	Listen       string        `help:"Address of the listener for /metrics, /readyz, /livez and /debug/pprof/; port 0 selects a free port." default:"127.0.0.1:8082"`
	config.Log   `embed:""`
}

// Validate implements kong's validation.
func (c *relayRunCmd) Validate() error {
	if c.MaxLag < 0 {
		return errors.Join(c.Relay.Validate(), errors.New("--max-lag must be 0s (no limit) or more"))
	}
	return c.Relay.Validate()
}

// Run publishes the events of the outbox until it is interrupted.
func (c *relayRunCmd) Run(ctx context.Context, streams Streams) error {
	return runSidecar(ctx, streams, c.Log, c.Listen, func(l net.Listener, log *slog.Logger) (*app.App, error) {
		return app.OpenRelay(ctx, c.Relay, c.MaxLag, l, log)
	})
}

type relayInstallCmd struct {
	config.Outbox `embed:""`
	PublisherRole []string `help:"Database roles that may publish to the outbox, and do nothing else with it; comma-separated." placeholder:"ROLE" env:"-"`
	RelayRole     []string `help:"Database roles that may run the relay; comma-separated." placeholder:"ROLE" env:"-"`
}

// Run creates or updates the outbox.
func (c *relayInstallCmd) Run(ctx context.Context, streams Streams) error {
	cfg, err := c.OutboxPoolConfig()
	if err != nil {
		return err
	}
	if _, err := pooler.Find(ctx, cfg.ConnConfig); err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	applied, err := migrations.InstallOutbox(ctx, cfg.ConnConfig)
	if err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	for _, m := range applied {
		fmt.Fprintln(streams.Out, "applied", m.Name)
	}
	if len(applied) == 0 {
		fmt.Fprintln(streams.Out, "the outbox is up to date")
	}
	for _, roles := range []struct {
		kind  migrations.RoleKind
		names []string
	}{{migrations.RolePublisher, c.PublisherRole}, {migrations.RoleRelay, c.RelayRole}} {
		for _, role := range roles.names {
			if err := migrations.GrantOutbox(ctx, cfg.ConnConfig, roles.kind, role); err != nil {
				return err
			}
			fmt.Fprintf(streams.Out, "role %s has the privileges of a %s in the schema badged, and no others\n", role, roles.kind)
		}
	}
	return nil
}

func openOutbox(ctx context.Context, o config.Outbox) (*relay.Outbox, error) {
	cfg, err := o.OutboxPoolConfig()
	if err != nil {
		return nil, err
	}
	outbox, err := relay.OpenOutbox(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	return outbox, nil
}

type relayStatusCmd struct {
	config.Outbox `embed:""`
	JSON          bool `name:"json" help:"Print JSON." env:"-"`
}

// shownRefusals is the maximum number of refused events that the status shows.
const shownRefusals = 20

// relayStatus is the output of `badged relay status --json`.
type relayStatus struct {
	Events        int64           `json:"events"`
	OldestSeconds float64         `json:"oldest_seconds"`
	Refused       int64           `json:"refused"`
	Relay         string          `json:"relay,omitempty"`
	LastRefusals  []relay.Refusal `json:"last_refusals"`
}

// Run prints the status.
func (c *relayStatusCmd) Run(ctx context.Context, streams Streams) error {
	outbox, err := openOutbox(ctx, c.Outbox)
	if err != nil {
		return err
	}
	defer outbox.Close()
	backlog, err := outbox.Backlog(ctx)
	if err != nil {
		return err
	}
	carrier, err := outbox.Carrier(ctx)
	if err != nil {
		return err
	}
	refusals, err := outbox.Refusals(ctx, shownRefusals)
	if err != nil {
		return err
	}
	if c.JSON {
		return terminal.PrintJSON(streams.Out, relayStatus{backlog.Events, backlog.Age.Seconds(), backlog.Refused, carrier, refusals})
	}
	if carrier == "" {
		carrier = "none"
	}
	fmt.Fprintf(streams.Out, "%d events wait, the oldest for %.1f s; relay: %s\n", backlog.Events, backlog.Age.Seconds(), carrier)
	if backlog.Refused == 0 {
		return nil
	}
	fmt.Fprintf(streams.Out, "badged has refused %d events. The last are:\n", backlog.Refused)
	table := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "OFFSET\tREFUSED\tREASON")
	for _, f := range refusals {
		fmt.Fprintf(table, "%d\t%s\t%s\n", f.Offset, f.RefusedAt.UTC().Format(time.RFC3339), f.Reason)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the status: %w", err)
	}
	return nil
}

type relayRetryCmd struct {
	config.Outbox `embed:""`
}

// Run moves the refused events back into the outbox, after all other events.
func (c *relayRetryCmd) Run(ctx context.Context, streams Streams) error {
	outbox, err := openOutbox(ctx, c.Outbox)
	if err != nil {
		return err
	}
	defer outbox.Close()
	n, err := outbox.Retry(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(streams.Out, "%d events were moved back to the end of the outbox\n", n)
	return nil
}
