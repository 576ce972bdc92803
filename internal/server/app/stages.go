package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/badged/badged/internal/server/httpapi"
	"github.com/badged/badged/internal/server/inbound"
)

// stage is a part of the server. Its run blocks until ctx is done, then finishes the work in
// progress and returns nil.
type stage struct {
	name string
	run  func(ctx context.Context) error
}

func (a *App) stage(name string, run func(ctx context.Context) error) {
	a.stages = append(a.stages, stage{name, run})
}

// Run serves until ctx is done or a part fails. It calls `ready` when the server accepts requests.
// At the end it stops the parts one after another, in the reverse order of their start, so that a
// part that is stopping can still pass work to the parts that were started before it.
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
				err = errors.New("ended unexpectedly")
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
			failed <- err // the select below reads it again
		}
	}
	ready()

	select {
	case <-ctx.Done():
		a.log.InfoContext(base, "stopping")
	case err := <-failed:
		a.log.ErrorContext(base, "stopping because a part failed", "error", err)
	}
	a.health.Drain()
	var errs []error
	for i := len(parts) - 1; i >= 0; i-- {
		parts[i].stop()
		errs = append(errs, <-parts[i].done)
	}
	return errors.Join(errs...)
}

// maxHeaderBytes is the maximum size of the header of a request. It exceeds the size of any
// token.
const maxHeaderBytes = 64 << 10

// serve serves HTTP until ctx is done and the requests in progress are answered.
func (a *App) serve(ctx context.Context) error {
	servers := []*http.Server{a.server(ctx, httpapi.Elsewhere(a.mux))}
	listeners := []net.Listener{inbound.NewListener(a.listener, a.limits, a.log, a.inbound)}
	if a.internal != nil {
		servers = append(servers, a.server(ctx, httpapi.Elsewhere(a.operators)))
		listeners = append(listeners, inbound.NewListener(a.internal, internalLimits(), a.log, a.inbound))
	}
	served := make(chan error, len(servers))
	for i, server := range servers {
		go func() { served <- server.Serve(listeners[i]) }()
	}
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	shutdownCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.DrainTimeout)
	defer cancel()
	for _, server := range servers {
		if server.Shutdown(shutdownCtx) != nil {
			_ = server.Close() // abort the requests that have not ended within the drain timeout
		}
	}
	return err
}

// server returns an HTTP server for routes.
func (a *App) server(ctx context.Context, routes http.Handler) *http.Server {
	if a.tracing != nil {
		routes = a.tracing.Handler(routes, tracedRoutes...)
	}
	if a.guard != nil {
		routes = a.guard(routes)
	}
	return &http.Server{
		Handler:           inbound.Deadlines(routes, a.bodies),
		ReadHeaderTimeout: inbound.Grace,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ConnContext:       inbound.ConnContext,
		ConnState:         inbound.ConnState,
	}
}
