package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/badged/badged/internal/app"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/memory"
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
	memory.Heed("/")
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
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil // stopped before it was ready
	}
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
	context.AfterFunc(ctx, func() { tellSystemd(ctx, log, daemon.SdNotifyStopping) })
	return a.Run(ctx, func() {
		if internal != nil {
			fmt.Fprintf(streams.Err, "badged: for operators on http://%s\n", internal.Addr())
		}
		scheme := "http"
		if c.TLSCert != "" {
			scheme = "https"
		}
		fmt.Fprintf(streams.Err, "badged: ready on %s://%s\n", scheme, l.Addr())
		tellSystemd(ctx, log, daemon.SdNotifyReady)
	})
}

// tellSystemd tells the service manager the state of a unit with Type=notify. Without
// such a manager it does nothing.
func tellSystemd(ctx context.Context, log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.WarnContext(ctx, "cannot notify systemd", "state", state, "error", err)
	}
}

const (
	// smallHeap is the size in bytes that a heap reaches before it is collected. By
	// default Go collects whenever the heap has doubled: a server that holds little
	// does so several times a second, for an eighth of its processor time.
	smallHeap = 64 << 20
	// defaultGrowth is Go's default growth in percent, which larger heaps keep.
	defaultGrowth = 100
	// mostGrowth keeps the least heap that Go collects, 4 MiB times the growth, below
	// smallHeap.
	mostGrowth = 1500
)

// collectRarely adapts the growth of the heap after each collection, for as long as
// the process runs. It leaves a growth that the operator has set.
func collectRarely() {
	if os.Getenv("GOGC") != "" {
		return
	}
	growth := defaultGrowth
	var collected func(*sentinel)
	collected = func(s *sentinel) {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		if g := growthOf(live[0].Value.Uint64()); g != growth {
			growth = g
			debug.SetGCPercent(g)
		}
		runtime.SetFinalizer(s, collected)
	}
	runtime.SetFinalizer(&sentinel{}, collected)
}

// sentinel is an object to which nothing refers, so each collection finalizes it.
type sentinel struct{ _ *sentinel }

// growthOf returns the growth in percent after which a heap with that many live bytes
// is collected. It is rounded, since setting it stops all goroutines for a moment.
func growthOf(live uint64) int {
	const step = 50
	if live >= smallHeap/2 {
		return defaultGrowth
	}
	growth := min(100*(smallHeap-live)/max(live, 1), mostGrowth)
	return int(growth) / step * step
}
