//go:build failover

package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// The settings of the Patroni clusters. If the node of the primary is lost, the primary is replaced
// after ttl at the earliest. Patroni's defaults are 30 s, 10 s and 10 s.
const (
	patroniTTL   = 6 * time.Second
	patroniLoop  = time.Second
	patroniRetry = 2 * time.Second
)

// patroniCluster is three nodes with Postgres under Patroni, which elect a primary
// through etcd. All of it is private to the test and ends with it.
type patroniCluster struct {
	t     *testing.T
	as    *syscall.Credential // nil means the user of this process
	dir   string
	nodes []*patroniNode
}

// patroniNode simulates a machine. All its traffic to and from other parts goes over links.
type patroniNode struct {
	*patroniCluster
	name   string
	pgdata string
	config string
	rest   string // the address of Patroni's API
	out    *output
	run    *tethered
	// clients leads to Postgres for badged, peers for the other nodes, and etcd
	// from the node to etcd.
	clients, peers, etcd *link
	// client and replicates are the addresses of clients and peers.
	client, replicates string
}

// tethered is a program that does not outlive the test.
type tethered struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// tether starts a program as the cluster's user. A Patroni that is asked to end also stops its
// Postgres.
func (c *patroniCluster) tether(out *output, program string, args ...string) *tethered {
	c.t.Helper()
	p := &tethered{cmd: exec.CommandContext(context.WithoutCancel(c.t.Context()), program, args...), done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = c.dir, out, out
	p.cmd.Env = append(environment("LC_ALL=C.UTF-8"), "HOME="+c.dir)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: c.as, Pdeathsig: syscall.SIGTERM}
	p.cmd.WaitDelay = time.Second
	started := make(chan error)
	go func() {
		defer close(p.done)
		runtime.LockOSThread() // the kernel sends the signal when this thread ends
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		c.t.Fatalf("start %s: %v; .ci/needs failover installs it", program, err)
	}
	return p
}

// end asks the program to end, and kills it after a while.
func (p *tethered) end() {
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// startPatroni starts a cluster and waits until all of it is up.
func startPatroni(t *testing.T, synchronous bool) *patroniCluster {
	t.Helper()
	c := &patroniCluster{t: t, dir: pgtest.OpenDir(t)}
	if os.Geteuid() == 0 { // Postgres refuses to run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.ParseUint(u.Uid, 10, 32)
		gid, _ := strconv.ParseUint(u.Gid, 10, 32)
		c.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(c.dir, int(uid), int(gid)); err != nil {
			t.Fatal(err)
		}
	}
	etcd, peer := freePort(t), freePort(t)
	etcdOut := &output{}
	run := c.tether(etcdOut, "etcd", "--name=etcd", "--data-dir="+filepath.Join(c.dir, "etcd"),
		"--listen-client-urls=http://"+etcd, "--advertise-client-urls=http://"+etcd,
		"--listen-peer-urls=http://"+peer, "--initial-advertise-peer-urls=http://"+peer, "--initial-cluster=etcd=http://"+peer)
	t.Cleanup(run.end)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("etcd said:\n%s", etcdOut)
		}
	})
	for i := range 3 {
		n := &patroniNode{patroniCluster: c, name: fmt.Sprintf("node%d", i+1)}
		n.configure(etcd, synchronous)
		c.nodes = append(c.nodes, n)
		n.start()
		t.Cleanup(func() {
			n.run.end()
			n.killPostgres() // a Patroni that was killed has not stopped it
			if t.Failed() {
				t.Logf("%s said:\n%s", n.name, n.out)
			}
		})
	}
	c.awaitWhole(synchronous)
	return c
}

func (n *patroniNode) configure(etcd string, synchronous bool) {
	t := n.t
	t.Helper()
	pg, rest := freePort(t), freePort(t)
	over := func(to string) (*link, string) {
		l, url := newLink(t, "tcp://"+to)
		return l, strings.TrimPrefix(url, "tcp://")
	}
	n.clients, n.client = over(pg)
	n.peers, n.replicates = over(pg)
	var toEtcd string
	n.etcd, toEtcd = over(etcd)
	n.pgdata, n.config, n.rest, n.out = filepath.Join(n.dir, n.name), filepath.Join(n.dir, n.name+".yaml"), rest, &output{}
	login := func(name string) map[string]any { return map[string]any{"username": name, "password": "secret"} }
	config := map[string]any{
		"scope": "badged", "name": n.name,
		"restapi": map[string]any{"listen": rest, "connect_address": rest},
		// Without use_proxies Patroni would connect to etcd directly and bypass the link.
		"etcd3": map[string]any{"host": toEtcd, "use_proxies": true},
		"bootstrap": map[string]any{
			"dcs": map[string]any{
				"ttl": int(patroniTTL.Seconds()), "loop_wait": int(patroniLoop.Seconds()), "retry_timeout": int(patroniRetry.Seconds()),
				// Without strict mode, a Patroni that restarts while its Postgres still
				// runs removes the synchronous standbys of that Postgres (seen with 3.0.2).
				// Commits that wait for a standby, which is the primary by then, succeed and
				// are lost.
				"synchronous_mode": synchronous, "synchronous_mode_strict": synchronous,
				// A primary that crashed is replaced, not started again.
				"master_start_timeout": 0, "primary_start_timeout": 0,
				"maximum_lag_on_failover": 1 << 30,
				"postgresql": map[string]any{
					"use_pg_rewind": true,
					"parameters": map[string]any{
						"max_connections": 150, "shared_buffers": "128MB", "max_wal_size": "1GB", "wal_keep_size": "512MB",
						"synchronous_commit": "on", "log_min_messages": "fatal",
						"wal_receiver_timeout": "4s", "wal_sender_timeout": "4s", "wal_retrieve_retry_interval": "500ms",
					},
				},
			},
			"initdb": []any{"data-checksums", map[string]any{"encoding": "UTF8"}, map[string]any{"locale": "C"}},
		},
		"postgresql": map[string]any{
			"listen": pg, "connect_address": n.replicates, "data_dir": n.pgdata,
			"bin_dir":        filepath.Dir(pgtest.Borrow(t).Program("postgres")),
			"authentication": map[string]any{"superuser": login("badged"), "replication": login("replicator"), "rewind": login("rewinder")},
			"pg_hba":         []any{"local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"},
			"parameters":     map[string]any{"unix_socket_directories": n.dir},
		},
	}
	text, err := json.Marshal(config) // which is YAML
	if err == nil {
		err = os.WriteFile(n.config, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (n *patroniNode) start() {
	n.t.Helper()
	n.run = n.tether(n.out, "patroni", n.config)
}

// postgresIDs returns the processes of the node's Postgres, the postmaster first.
func (n *patroniNode) postgresIDs() []int {
	content, err := os.ReadFile(filepath.Join(n.pgdata, "postmaster.pid"))
	if err != nil {
		return nil
	}
	first, _, _ := strings.Cut(string(content), "\n")
	postmaster, err := strconv.Atoi(first)
	if err != nil || !serves(postmaster, n.pgdata) {
		return nil
	}
	all := []int{postmaster}
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", postmaster))
	for field := range strings.FieldsSeq(string(children)) {
		if child, err := strconv.Atoi(field); err == nil {
			all = append(all, child)
		}
	}
	return all
}

// serves reports whether a process works in a data directory: another program may have the same pid
// by now.
func serves(pid int, pgdata string) bool {
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	return err == nil && cwd == pgdata
}

func (n *patroniNode) signalPostgres(s syscall.Signal) {
	for _, pid := range n.postgresIDs() {
		_ = syscall.Kill(pid, s)
	}
}

func (n *patroniNode) killPostgres() { n.signalPostgres(syscall.SIGKILL) }

func (n *patroniNode) killPatroni() {
	n.t.Helper()
	_ = n.run.cmd.Process.Kill()
	<-n.run.done
}

// role returns the role of the node as Patroni reports it, "master" or "replica"; "" if Patroni does
// not answer.
func (n *patroniNode) role() string {
	var said struct{ State, Role string }
	if !n.ask("/patroni", &said) || said.State != "running" {
		return ""
	}
	return said.Role
}

// ask sends a request to Patroni's API, and reports whether Patroni has answered.
func (n *patroniNode) ask(path string, answer any) bool {
	ctx, cancel := context.WithTimeout(n.t.Context(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.rest+path, http.NoBody)
	if err != nil {
		n.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	return json.NewDecoder(res.Body).Decode(answer) == nil
}

// number returns the result of a query on the node, over the link of its peers; -1 if the query
// fails.
func (n *patroniNode) number(sql string) int64 {
	ctx, cancel := context.WithTimeout(n.t.Context(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, fmt.Sprintf("postgres://badged@%s/postgres?sslmode=disable", n.replicates))
	if err != nil {
		return -1
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var result int64
	if err := conn.QueryRow(ctx, sql).Scan(&result); err != nil {
		return -1
	}
	return result
}

// patiently polls until so returns true, for longer than patience: on a busy machine a cluster takes
// long to start.
func (c *patroniCluster) patiently(what string, so func() bool) {
	c.t.Helper()
	deadline := time.After(3 * time.Minute)
	for !so() {
		select {
		case <-deadline:
			c.t.Fatalf("waited in vain for %s", what)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// awaitPrimary waits until a node other than besides is the primary, and returns it.
func (c *patroniCluster) awaitPrimary(besides *patroniNode) (primary *patroniNode) {
	c.t.Helper()
	c.patiently("a primary", func() bool {
		i := slices.IndexFunc(c.nodes, func(n *patroniNode) bool {
			return n != besides && slices.Contains([]string{"master", "primary"}, n.role())
		})
		if i >= 0 {
			primary = c.nodes[i]
		}
		return i >= 0
	})
	return primary
}

// awaitWhole waits until two standbys follow the primary, with synchronous set one of them
// synchronously. It also waits until Patroni has recorded which standby is synchronous: before that,
// Patroni promotes no standby.
func (c *patroniCluster) awaitWhole(synchronous bool) {
	c.t.Helper()
	c.patiently("two standbys", func() bool {
		primary := c.awaitPrimary(nil)
		var cluster struct{ Members []struct{ Role string } }
		if !primary.ask("/cluster", &cluster) {
			return false
		}
		noted := 0
		for _, m := range cluster.Members {
			if m.Role == "sync_standby" {
				noted++
			}
		}
		streaming := primary.number(`SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND application_name LIKE 'node%'`)
		return streaming == 2 && (noted == 1) == synchronous
	})
}

// hosts returns the URL that names all nodes.
func (c *patroniCluster) hosts() string {
	var all []string
	for _, n := range c.nodes {
		all = append(all, n.client)
	}
	return "postgres://badged@" + strings.Join(all, ",") + "/chat?sslmode=disable&target_session_attrs=read-write"
}

// haproxy starts HAProxy in front of the cluster and returns the URL through it. HAProxy asks Patroni
// which node is the primary.
func (c *patroniCluster) haproxy() string {
	c.t.Helper()
	at := freePort(c.t)
	config := `global
    maxconn 1000
defaults
    mode tcp
    timeout connect 1s
    timeout client 30m
    timeout server 30m
    timeout check 1s
listen primary
    bind ` + at + `
    option httpchk OPTIONS /primary
    http-check expect status 200
    default-server inter 500ms fall 2 rise 1 on-marked-down shutdown-sessions
`
	for _, n := range c.nodes {
		_, port, err := net.SplitHostPort(n.rest)
		if err != nil {
			c.t.Fatal(err)
		}
		config += fmt.Sprintf("    server %s %s check port %s\n", n.name, n.client, port)
	}
	file := filepath.Join(c.dir, "haproxy.cfg")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		c.t.Fatal(err)
	}
	program, err := exec.LookPath("haproxy")
	if errors.Is(err, exec.ErrNotFound) {
		program = "/usr/sbin/haproxy" // /usr/sbin is not in every PATH
	}
	out := &output{}
	run := c.tether(out, program, "-db", "-f", file)
	c.t.Cleanup(func() {
		run.end()
		if c.t.Failed() {
			c.t.Logf("HAProxy said:\n%s", out)
		}
	})
	return "postgres://badged@" + at + "/chat?sslmode=disable"
}
