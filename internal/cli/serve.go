package cli

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

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
	collectRarely()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // without this it ends the process
	defer signal.Stop(hangups)
	l, err := app.Listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	defer l.Close()
	var options []app.Option
	var internal net.Listener
	if c.InternalListen != "" {
		if internal, err = app.ListenInternal(ctx, c.InternalListen); err != nil {
			return err
		}
		defer internal.Close()
		options = append(options, app.WithInternal(internal))
	}
	a, err := app.Open(ctx, c.Server, l, log, options...)
	if err != nil {
		return err
	}
	defer a.Close()
	a.Stage("reload", func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-hangups:
				a.Reload(ctx)
			}
		}
	})
	for _, risk := range append(c.KeyRisks(), c.ClearTextRisks()...) {
		log.WarnContext(ctx, risk)
	}
	return a.Run(ctx, func() {
		if internal != nil {
			fmt.Fprintf(streams.Err, "badged: for operators on http://%s\n", internal.Addr())
		}
		scheme := "http"
		if c.TLSCert != "" {
			scheme = "https"
		}
		fmt.Fprintf(streams.Err, "badged: ready on %s://%s\n", scheme, l.Addr())
	})
}
