package cli

import (
	"context"
	"fmt"

	"github.com/badged/badged/internal/app"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/obs"
)

// serveCmd is `badged serve`.
type serveCmd struct {
	config.Server `embed:""`
	config.Log    `embed:""`
}

// Run serves until it is interrupted.
func (c *serveCmd) Run(ctx context.Context, streams Streams) error {
	log, err := obs.NewLogger(streams.Err, c.LogLevel, c.LogFormat)
	if err != nil {
		return err
	}
	l, err := app.Listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	defer l.Close()
	a, err := app.Open(ctx, c.Server, l, log)
	if err != nil {
		return err
	}
	defer a.Close()
	return a.Run(ctx, func() { fmt.Fprintf(streams.Err, "badged: ready on http://%s\n", l.Addr()) })
}
