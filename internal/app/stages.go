package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// stage is a long-running part. run blocks until ctx is done, and then returns
// nil once it has finished what it was doing.
type stage struct {
	name string
	run  func(ctx context.Context) error
}

func (a *App) stage(name string, run func(ctx context.Context) error) {
	a.stages = append(a.stages, stage{name, run})
}

// Run serves until ctx is done or a part fails, and calls ready once it
// does. Then the parts stop one after another, the last to start first, so
// that nobody loses the one it hands its work to.
func (a *App) Run(ctx context.Context, ready func()) error {
	type running struct {
		stage
		stop context.CancelFunc
		done chan error
	}
	var parts []running
	failed := make(chan error, len(a.stages))
	base := context.WithoutCancel(ctx)
	for _, s := range a.stages {
		stageCtx, stop := context.WithCancel(base)
		r := running{s, stop, make(chan error, 1)}
		go func() {
			err := r.run(stageCtx)
			if err == nil && stageCtx.Err() == nil {
				err = errors.New("ended by itself")
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", r.name, err)
				failed <- err
			}
			r.done <- err
		}()
		parts = append(parts, r)
	}
	if a.opening != nil {
		select {
		case <-a.opening:
		case <-ctx.Done():
		case err := <-failed:
			failed <- err // for below
		}
	}
	ready()

	select {
	case <-ctx.Done():
		a.log.InfoContext(base, "stopping")
	case err := <-failed:
		a.log.ErrorContext(base, "stopping, since a part has failed", "error", err)
	}
	a.health.Drain()
	var errs []error
	for i := len(parts) - 1; i >= 0; i-- {
		parts[i].stop()
		errs = append(errs, <-parts[i].done)
	}
	return errors.Join(errs...)
}

// serve answers HTTP until ctx is done, and then until the requests under way
// are answered.
func (a *App) serve(ctx context.Context) error {
	var handler http.Handler = a.mux
	if a.tracing != nil {
		handler = a.tracing.Handler(handler, tracedRoutes...)
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(a.listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	shutdownCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.DrainTimeout)
	defer cancel()
	if err := server.Shutdown(shutdownCtx); err != nil {
		_ = server.Close() // what did not end in time is cut
	}
	return nil
}
