package rig

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/badged/badged/internal/devtest/privateredis"
)

// Deploy configures a deployment. The zero value is one process of this build with all roles, on a
// database with the default number of partitions.
type Deploy struct {
	// Binary is another build of badged; empty is this one.
	Binary string
	// Databases is how many databases share the partitions, if there are several.
	Databases int
	// Partitions is the number of partitions, 0 for the default.
	Partitions int
	// Apart starts a process for each role, and Redis between them.
	Apart bool
	// Args and Env are further arguments and environment variables of the servers.
	Args, Env []string
}

// String describes what is started.
func (c Deploy) String() string {
	says := "one process with all roles, in-process bus"
	if c.Apart {
		says = "three processes, one for each role, and Redis"
	}
	if c.Databases > 1 {
		says += fmt.Sprintf(", %d databases", c.Databases)
	}
	if c.Partitions > 0 {
		says += fmt.Sprintf(", %d partitions", c.Partitions)
	}
	return says
}

// Deployment is a running product on empty databases.
type Deployment struct {
	// API and Gateway are where publishers and clients connect.
	API, Gateway string
	Databases    []string // their URLs
	// Front is the server that clients connect to.
	Front *Server

	servers []*Server
	redis   *privateredis.Server
	drops   []func(context.Context) error
}

// Deploy starts the product on new databases.
func (r *Rig) Deploy(ctx context.Context, c Deploy) (_ *Deployment, err error) {
	d := &Deployment{}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Stop(ctx))
		}
	}()
	if c.Binary == "" {
		c.Binary = r.Binary
	}
	var args []string
	for i := range max(1, c.Databases) {
		url, drop, err := r.Database(ctx)
		if err != nil {
			return nil, err
		}
		d.drops, d.Databases = append(d.drops, drop), append(d.Databases, url)
		if c.Databases <= 1 {
			args = append(args, "--database-url="+url)
		} else { // as many connections as one database gets, in all
			args = append(args, fmt.Sprintf("--shard=s%d=%s&pool_max_conns=%d", i, url, max(2, 12/c.Databases)))
		}
	}
	migrate := append([]string{"migrate", "up"}, args...)
	if c.Partitions > 0 {
		migrate = append(migrate, fmt.Sprint("--partitions=", c.Partitions))
	}
	if err := RunBinary(ctx, c.Binary, migrate...); err != nil {
		return nil, err
	}
	args = append(args, c.Args...)
	roles := []string{""}
	if c.Apart {
		if d.redis, err = privateredis.Start(ctx, privateredis.Config{}); err != nil {
			return nil, err
		}
		args, roles = append(args, "--redis-url="+d.redis.URL()), []string{"projector", "gateway", "api"}
	}
	for _, role := range roles {
		own := args
		if role != "" {
			own = append(slices.Clone(args), "--roles="+role)
		}
		s, err := Serve(ctx, c.Binary, c.Env, own...)
		if err != nil {
			return nil, err
		}
		d.servers = append(d.servers, s)
		if role != "api" { // the last of those before it is the gateway
			d.Gateway, d.Front = s.URL, s
		}
		d.API = s.URL
	}
	return d, nil
}

// StopServers ends the processes in reverse order of their start.
func (d *Deployment) StopServers() (err error) {
	for _, s := range slices.Backward(d.servers) {
		err = errors.Join(err, s.Stop())
	}
	d.servers = nil
	return err
}

// Stop ends the processes and drops the databases, even if ctx is done.
func (d *Deployment) Stop(ctx context.Context) error {
	err := d.StopServers()
	if d.redis != nil {
		d.redis.Stop()
	}
	for _, drop := range d.drops {
		err = errors.Join(err, drop(ctx))
	}
	return err
}
