package rig

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/badged/badged/internal/devtest/privateredis"
)

// Topology is the set of processes of a deployment.
type Topology int

const (
	OneProcess     Topology = iota // with all roles and the in-process bus
	ThreeProcesses                 // one for each role, and Redis between them
)

// String describes the topology.
func (t Topology) String() string {
	if t == OneProcess {
		return "one process with all roles, in-process bus"
	}
	return "three processes, one for each role, and Redis"
}

// Deployment is a running product on an empty database.
type Deployment struct {
	// API and gateway are where publishers and clients connect.
	API, Gateway string
	Database     string // its URL
	// Shards are the URLs of the databases of DeployShards, nil of any other deployment.
	Shards []string

	Servers []*Server
	Front   *Server // the server that clients connect to
	// FrontArgs are the arguments of front.
	FrontArgs []string
	redis     *privateredis.Server
	Drop      func(context.Context) error
}

// Deploy starts the product on a new database, migrated with more arguments.
func (r *Rig) Deploy(ctx context.Context, t Topology, more ...string) (_ *Deployment, err error) {
	d := &Deployment{}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Stop(ctx))
		}
	}()
	url, drop, err := r.Database(ctx)
	if err != nil {
		return nil, err
	}
	d.Drop, d.Database = drop, url
	if _, _, err := r.RunBinary(ctx, append([]string{"migrate", "up", "--database-url=" + url}, more...)...); err != nil {
		return nil, err
	}
	if t == OneProcess {
		d.FrontArgs = []string{"--database-url=" + url}
		s, err := r.Serve(ctx, d.FrontArgs...)
		if err != nil {
			return nil, err
		}
		d.Servers = append(d.Servers, s)
		d.API, d.Gateway, d.Front = s.URL, s.URL, s
		return d, nil
	}
	if d.redis, err = privateredis.Start(ctx, privateredis.Config{}); err != nil {
		return nil, err
	}
	for _, role := range []string{"projector", "gateway", "api"} {
		args := []string{"--database-url=" + url, "--redis-url=" + d.redis.URL(), "--roles=" + role}
		s, err := r.Serve(ctx, args...)
		if err != nil {
			return nil, err
		}
		d.Servers = append(d.Servers, s)
		switch role {
		case "gateway":
			d.Gateway, d.Front, d.FrontArgs = s.URL, s, args
		case "api":
			d.API = s.URL
		}
	}
	return d, nil
}

// DeployShards starts one process with all roles on that many new databases.
func (r *Rig) DeployShards(ctx context.Context, shards, partitions int) (_ *Deployment, err error) {
	d := &Deployment{}
	var drops []func(context.Context) error
	d.Drop = func(ctx context.Context) error {
		var errs []error
		for _, drop := range drops {
			errs = append(errs, drop(ctx))
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Stop(ctx))
		}
	}()
	for i := range shards {
		url, drop, err := r.Database(ctx)
		if err != nil {
			return nil, err
		}
		drops = append(drops, drop)
		d.Shards = append(d.Shards, url)
		// As many connections as one database gets, in all.
		d.FrontArgs = append(d.FrontArgs, fmt.Sprintf("--shard=s%d=%s&pool_max_conns=%d", i, url, max(2, 12/shards)))
	}
	if _, _, err := r.RunBinary(ctx, append([]string{"migrate", "up", fmt.Sprint("--partitions=", partitions)}, d.FrontArgs...)...); err != nil {
		return nil, err
	}
	server, err := r.Serve(ctx, d.FrontArgs...)
	if err != nil {
		return nil, err
	}
	d.Servers = append(d.Servers, server)
	d.API, d.Gateway, d.Front = server.URL, server.URL, server
	return d, nil
}

// Stop ends the processes in reverse order of their start and drops the database.
func (d *Deployment) Stop(ctx context.Context) error {
	var errs []error
	for _, s := range slices.Backward(d.Servers) {
		errs = append(errs, s.Stop())
	}
	if d.redis != nil {
		d.redis.Stop()
	}
	if d.Drop != nil {
		errs = append(errs, d.Drop(context.WithoutCancel(ctx)))
	}
	return errors.Join(errs...)
}
