package cli

import (
	"context"
	"fmt"

	"github.com/badged/badged/internal/app"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/obs"
)

// tailCmd is `badged tail`.
type tailCmd struct {
	config.Tail `embed:""`
	Listen      string `help:"Address of /metrics, /readyz and /livez; port 0 picks a free one." default:"127.0.0.1:8083"`
	config.Log  `embed:""`
}

// Validate implements kong's validation.
func (c *tailCmd) Validate() error { return c.Tail.Validate() }

// Run publishes until it is interrupted.
func (c *tailCmd) Run(ctx context.Context, streams Streams) error {
	log, err := obs.NewLogger(streams.Err, c.LogLevel, c.LogFormat)
	if err != nil {
		return err
	}
	l, err := app.Listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	defer l.Close()
	a, err := app.OpenTail(ctx, c.Tail, l, log)
	if err != nil {
		return err
	}
	defer a.Close()
	return a.Run(ctx, func() { fmt.Fprintf(streams.Err, "badged: ready on http://%s\n", l.Addr()) })
}
