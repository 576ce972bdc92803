package ways

import (
	"context"
	"errors"

	"github.com/badged/badged/internal/devtest/privateredis"
	"github.com/badged/badged/tests/bench/rig"
)

// owned is a way that also owns its server or database.
type owned struct {
	Way
	release func(context.Context) error
}

// Close ends the way and releases its server or database.
func (o owned) Close(ctx context.Context) error {
	return errors.Join(o.Way.Close(ctx), o.release(ctx))
}

// OpenInProcess opens the server in this process on a new database.
func OpenInProcess(r *rig.Rig) func(context.Context) (Way, error) {
	return func(ctx context.Context) (Way, error) {
		w, _, err := embedNew(ctx, r)
		return w, err
	}
}

// embedNew is inProcess that returns the server too.
func embedNew(ctx context.Context, r *rig.Rig) (Way, *Embedded, error) {
	url, drop, err := r.Database(ctx)
	if err != nil {
		return nil, nil, err
	}
	e, err := Embed(ctx, url)
	if err != nil {
		return nil, nil, errors.Join(err, drop(ctx))
	}
	return owned{e, drop}, e, nil
}

// OpenInProcessWithDevices opens the server in this process on a new database in which every
// partition has a device of a user without events.
func OpenInProcessWithDevices(r *rig.Rig) func(context.Context) (Way, error) {
	return func(ctx context.Context) (Way, error) {
		w, e, err := embedNew(ctx, r)
		if err != nil {
			return nil, err
		}
		if err := e.registerDevices(ctx); err != nil {
			return nil, errors.Join(err, w.Close(ctx))
		}
		return w, nil
	}
}

// OpenOnRedis opens ways on a new Redis with default settings.
func OpenOnRedis(open func(ctx context.Context, url string) (Way, error)) func(context.Context) (Way, error) {
	return func(ctx context.Context) (Way, error) {
		server, err := privateredis.Start(ctx, privateredis.Config{Args: rig.RedisAsShipped()})
		if err != nil {
			return nil, err
		}
		w, err := open(ctx, server.URL())
		if err != nil {
			server.Stop()
			return nil, err
		}
		return owned{w, func(context.Context) error { server.Stop(); return nil }}, nil
	}
}

// OpenOnPostgres opens ways on a new database.
func OpenOnPostgres(r *rig.Rig, open func(ctx context.Context, url string) (Way, error)) func(context.Context) (Way, error) {
	return func(ctx context.Context) (Way, error) {
		url, drop, err := r.Database(ctx)
		if err != nil {
			return nil, err
		}
		w, err := open(ctx, url)
		if err != nil {
			return nil, errors.Join(err, drop(ctx))
		}
		return owned{w, drop}, nil
	}
}
