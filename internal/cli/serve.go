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

	"github.com/badged/badged/internal/base/memory"
	"github.com/badged/badged/internal/obs"
	"github.com/badged/badged/internal/server/app"
	"github.com/badged/badged/internal/server/config"
)

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
	signal.Notify(hangups, syscall.SIGHUP) // without this, SIGHUP would end the process
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
		return nil // interrupted before the server was ready
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
	context.AfterFunc(ctx, func() { notifySystemd(ctx, log, daemon.SdNotifyStopping) })
	return a.Run(ctx, func() {
		if internal != nil {
			fmt.Fprintf(streams.Err, "badged: for operators on http://%s\n", internal.Addr())
		}
		scheme := "http"
		if c.TLSCert != "" {
			scheme = "https"
		}
		fmt.Fprintf(streams.Err, "badged: ready on %s://%s\n", scheme, l.Addr())
		notifySystemd(ctx, log, daemon.SdNotifyReady)
	})
}

// notifySystemd sends the state of the process to systemd, for units with Type=notify. It does
// nothing if the process was not started by such a unit.
func notifySystemd(ctx context.Context, log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.WarnContext(ctx, "cannot notify systemd", "state", state, "error", err)
	}
}

const (
	// smallHeap is the size in bytes to which the heap may grow before garbage is collected. By
	// default Go collects garbage whenever the heap has doubled. A server with a small heap would
	// then collect several times a second, and spend an eighth of its processor time on this.
	smallHeap = 64 << 20
	// defaultGrowth is Go's default growth of the heap between two collections, in percent. It
	// applies to larger heaps.
	defaultGrowth = 100
	// mostGrowth is the maximum growth that is set, in percent. Go's minimum heap is 4 MiB ×
	// growth / 100, which with mostGrowth is just below smallHeap.
	mostGrowth = 1500
)

// collectRarely makes Go collect small heaps less often: after each collection, it sets by how much
// the heap may grow before the next collection. It does nothing if the operator has set GOGC.
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

// sentinel is an object without references, so each garbage collection runs its finalizer. The
// finalizer sets itself again for the next collection.
type sentinel struct{ _ *sentinel }

// growthOf returns the growth, in percent, for a heap with `live` bytes in use. The result is
// rounded, so that it rarely changes: each change briefly stops all goroutines.
func growthOf(live uint64) int {
	const step = 50
	if live >= smallHeap/2 {
		return defaultGrowth
	}
	growth := min(100*(smallHeap-live)/max(live, 1), mostGrowth)
	return int(growth) / step * step
}
