package privateredis

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// slots is the number of hash slots of a cluster.
	slots = 16384
	// busOffset is the difference between a node's cluster bus port and its client port. Both ports
	// must be free: see maxPort.
	busOffset = 10000
)

// Cluster is a running Redis Cluster. Its masters have equal shares of the slots. Tests can kill
// and freeze each node.
type Cluster struct {
	Masters []*Server
	// Replicas has the replica of each master, at the master's index. It is empty if the cluster
	// has no replicas.
	Replicas []*Server
}

// ClusterConfig configures a cluster.
type ClusterConfig struct {
	// Masters is the number of masters. Default 3, the minimum number that can agree on a failover.
	Masters int
	// Replicas gives each master a replica, which takes over within seconds if the master fails.
	Replicas bool
	// Args are appended to the command line of each node; see [Config].
	Args []string
}

// StartCluster starts a cluster and returns once every node serves requests. ctx bounds only the
// start; the cluster runs until [Cluster.Stop].
func StartCluster(ctx context.Context, cfg ClusterConfig) (*Cluster, error) {
	if cfg.Masters == 0 {
		cfg.Masters = 3
	}
	c := new(Cluster)
	if err := c.start(ctx, cfg); err != nil {
		c.Stop()
		return nil, fmt.Errorf("privateredis: start a cluster: %w", err)
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, cfg ClusterConfig) error {
	node := Config{Args: append([]string{
		"--cluster-enabled", "yes",
		"--cluster-node-timeout", "1000", // milliseconds
		"--cluster-require-full-coverage", "no",
		"--repl-diskless-sync-delay", "0",
	}, cfg.Args...)}
	for range cfg.Masters {
		s, err := startBelow(ctx, node, maxPort-busOffset)
		if err != nil {
			return err
		}
		c.Masters = append(c.Masters, s)
		if !cfg.Replicas {
			continue
		}
		if s, err = startBelow(ctx, node, maxPort-busOffset); err != nil {
			return err
		}
		c.Replicas = append(c.Replicas, s)
	}
	nodes := c.nodes()
	for i, s := range c.Masters {
		first, last := i*slots/cfg.Masters, (i+1)*slots/cfg.Masters-1
		if err := s.do(ctx, "CLUSTER", "ADDSLOTSRANGE", first, last); err != nil {
			return err
		}
	}
	for i, s := range nodes {
		// If all nodes had epoch 0, it would take them some time to resolve the conflict.
		if err := s.do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1); err != nil {
			return err
		}
		if err := s.do(ctx, "CLUSTER", "MEET", host, nodes[0].port); err != nil {
			return err
		}
	}
	if err := c.await(ctx, "know each other", func(s *Server) (bool, error) {
		return s.says(ctx, "cluster_known_nodes:"+strconv.Itoa(len(nodes)), "CLUSTER", "INFO")
	}); err != nil {
		return err
	}
	for i, s := range c.Replicas {
		id, err := c.Masters[i].ID(ctx)
		if err != nil {
			return err
		}
		if err := s.do(ctx, "CLUSTER", "REPLICATE", id); err != nil {
			return err
		}
	}
	return c.await(ctx, "serve", func(s *Server) (bool, error) {
		for _, want := range []string{"cluster_state:ok", "cluster_slots_ok:" + strconv.Itoa(slots)} {
			if ok, err := s.says(ctx, want, "CLUSTER", "INFO"); err != nil || !ok {
				return false, err
			}
		}
		info, err := s.ask(ctx, "INFO", "replication")
		if err != nil {
			return false, err
		}
		replicating := strings.Contains(info, "master_link_status:up")
		waiting := strings.Contains(info, "role:master") && (!cfg.Replicas || strings.Contains(info, "state=online"))
		return replicating || waiting, nil
	})
}

// await waits until every node meets a condition. what describes the condition.
func (c *Cluster) await(ctx context.Context, what string, met func(*Server) (bool, error)) error {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for _, s := range c.nodes() {
		for {
			ok, err := met(s)
			if err != nil {
				return err
			}
			if ok {
				break
			}
			select {
			case <-look.C:
			case <-ctx.Done():
				return fmt.Errorf("wait until all nodes %s: %w", what, ctx.Err())
			}
		}
	}
	return nil
}

// nodes returns the masters and the replicas.
func (c *Cluster) nodes() []*Server {
	return slices.Concat(c.Masters, c.Replicas)
}

// URL returns a URL with the addresses of all nodes, in the form that go-redis parses.
func (c *Cluster) URL() string {
	query := url.Values{}
	nodes := c.nodes()
	for _, s := range nodes {
		query.Add("addr", s.Addr())
	}
	return "redis://" + nodes[0].Addr() + "?" + query.Encode()
}

// MasterOf returns the index of the master that considers itself the owner of the slot of a key.
func (c *Cluster) MasterOf(ctx context.Context, key string) (int, error) {
	for i, s := range c.Masters {
		client, err := s.client()
		if err != nil {
			return 0, err
		}
		err = client.Exists(ctx, key).Err() // or a MOVED error, which names another node
		_ = client.Close()
		if err == nil {
			return i, nil
		}
		if !strings.HasPrefix(err.Error(), "MOVED ") {
			return 0, fmt.Errorf("privateredis: ask %s for a key: %w", s.Addr(), err)
		}
	}
	return 0, errors.New("privateredis: no master serves the slot of " + key)
}

// MoveSlot assigns the slot of a key to another master. from and to are indexes of masters. The
// keys in the slot are not moved.
func (c *Cluster) MoveSlot(ctx context.Context, key string, from, to int) error {
	source, target := c.Masters[from], c.Masters[to]
	answer, err := source.ask(ctx, "CLUSTER", "KEYSLOT", key)
	if err != nil {
		return err
	}
	sourceID, err := source.ID(ctx)
	if err != nil {
		return err
	}
	targetID, err := target.ID(ctx)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		at   *Server
		what []any
	}{
		{target, []any{"IMPORTING", sourceID}},
		{source, []any{"MIGRATING", targetID}},
		{target, []any{"NODE", targetID}},
		{source, []any{"NODE", targetID}},
	} {
		if err := step.at.do(ctx, append([]any{"CLUSTER", "SETSLOT", answer}, step.what...)...); err != nil {
			return err
		}
	}
	return nil
}

// Stop stops all nodes permanently. It may be called more than once.
func (c *Cluster) Stop() {
	for _, s := range c.nodes() {
		s.Stop()
	}
}

// ID returns the node's id in its cluster.
func (s *Server) ID(ctx context.Context) (string, error) { return s.ask(ctx, "CLUSTER", "MYID") }

func (s *Server) client() (*redis.Client, error) {
	opt, err := redis.ParseURL(s.URL())
	if err != nil {
		return nil, fmt.Errorf("privateredis: parse the address: %w", err)
	}
	opt.MaxRetries, opt.DialerRetries, opt.ContextTimeoutEnabled = -1, 1, true
	return redis.NewClient(opt), nil
}

// ask sends one command and returns the answer as text.
func (s *Server) ask(ctx context.Context, command ...any) (string, error) {
	client, err := s.client()
	if err != nil {
		return "", err
	}
	defer client.Close()
	answer, err := client.Do(ctx, command...).Result()
	if err != nil {
		return "", fmt.Errorf("privateredis: %v at %s: %w", command, s.Addr(), err)
	}
	return fmt.Sprint(answer), nil
}

func (s *Server) do(ctx context.Context, command ...any) error {
	_, err := s.ask(ctx, command...)
	return err
}

// says reports whether the answer to a command contains text.
func (s *Server) says(ctx context.Context, text string, command ...any) (bool, error) {
	answer, err := s.ask(ctx, command...)
	return strings.Contains(answer, text), err
}
