package main

import (
	"context"
	"errors"
	"slices"

	"github.com/badged/badged/internal/devtest/privateredis"
)

// topology is the set of processes of a deployment.
type topology int

const (
	oneProcess     topology = iota // with all roles and the in-process bus
	threeProcesses                 // one for each role, and Redis between them
)

// String describes the topology.
func (t topology) String() string {
	if t == oneProcess {
		return "one process with all roles, in-process bus"
	}
	return "three processes, one for each role, and Redis"
}

// deployment is a running product on an empty database.
type deployment struct {
	// api and gateway are where publishers and clients connect.
	api, gateway string
	database     string // its URL

	servers []*server
	front   *server // the server that clients connect to
	// frontArgs are the arguments of front.
	frontArgs []string
	redis     *privateredis.Server
	drop      func(context.Context) error
}

// deploy starts the product on a new database, migrated with more arguments.
func (r *rig) deploy(ctx context.Context, t topology, more ...string) (_ *deployment, err error) {
	d := &deployment{}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.stop(ctx))
		}
	}()
	url, drop, err := r.database(ctx)
	if err != nil {
		return nil, err
	}
	d.drop, d.database = drop, url
	if _, _, err := r.runBinary(ctx, append([]string{"migrate", "up", "--database-url=" + url}, more...)...); err != nil {
		return nil, err
	}
	if t == oneProcess {
		d.frontArgs = []string{"--database-url=" + url}
		s, err := r.serve(ctx, d.frontArgs...)
		if err != nil {
			return nil, err
		}
		d.servers = append(d.servers, s)
		d.api, d.gateway, d.front = s.url, s.url, s
		return d, nil
	}
	if d.redis, err = privateredis.Start(ctx, privateredis.Config{}); err != nil {
		return nil, err
	}
	for _, role := range []string{"projector", "gateway", "api"} {
		args := []string{"--database-url=" + url, "--redis-url=" + d.redis.URL(), "--roles=" + role}
		s, err := r.serve(ctx, args...)
		if err != nil {
			return nil, err
		}
		d.servers = append(d.servers, s)
		switch role {
		case "gateway":
			d.gateway, d.front, d.frontArgs = s.url, s, args
		case "api":
			d.api = s.url
		}
	}
	return d, nil
}

// restartFront stops the process that clients connect to, as an operator would,
// and starts its replacement at another address.
func (d *deployment) restartFront(ctx context.Context, r *rig) error {
	if err := d.front.stop(); err != nil {
		return err
	}
	at := slices.Index(d.servers, d.front)
	s, err := r.serve(ctx, d.frontArgs...)
	if err != nil {
		d.servers = slices.Delete(d.servers, at, at+1)
		return err
	}
	if d.api == d.gateway {
		d.api = s.url
	}
	d.servers[at], d.front, d.gateway = s, s, s.url
	return nil
}

// stop ends the processes in reverse order of their start and drops the database.
func (d *deployment) stop(ctx context.Context) error {
	var errs []error
	for _, s := range slices.Backward(d.servers) {
		errs = append(errs, s.stop())
	}
	if d.redis != nil {
		d.redis.Stop()
	}
	if d.drop != nil {
		errs = append(errs, d.drop(context.WithoutCancel(ctx)))
	}
	return errors.Join(errs...)
}
