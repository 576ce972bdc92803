package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/devtest/privateredis"
	"github.com/badged/badged/tests/bench/contest"
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
	// API and Gateway are the servers to which publishers and clients connect.
	API, Gateway *Server
	Databases    []string // their URLs
}

// Deploy starts the product on new databases, until the end of the run.
func (r *Rig) Deploy(run *contest.Run, c Deploy) Deployment {
	var d Deployment
	if c.Binary == "" {
		c.Binary = r.Binary
	}
	var args []string
	for i := range max(1, c.Databases) {
		url, _ := r.Database(run)
		d.Databases = append(d.Databases, url)
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
	contest.Check(RunBinary(run.Context(), c.Binary, migrate...))
	args = append(args, c.Args...)
	if !c.Apart {
		d.API = Serve(run, c.Binary, c.Env, args...)
		d.Gateway = d.API
		return d
	}
	args = append(args, "--redis-url="+startRedis(run, privateredis.Config{}).URL())
	role := func(name string) *Server {
		return Serve(run, c.Binary, c.Env, append(slices.Clone(args), "--roles="+name)...)
	}
	role("projector")
	d.Gateway, d.API = role("gateway"), role("api")
	return d
}

// startRedis starts a server until the end of the run.
func startRedis(run *contest.Run, cfg privateredis.Config) *privateredis.Server {
	server := contest.Must(privateredis.Start(run.Context(), cfg))
	run.Cleanup(func(context.Context) error { server.Stop(); return nil })
	return server
}

// NewRedis starts a server for a rival until the end of the run, and returns a client. The server
// takes snapshots as Redis does by default, which privateredis turns off. There is no append-only
// file, so a crash loses acknowledged writes of the last minutes.
func NewRedis(run *contest.Run) *redis.Client {
	server := startRedis(run, privateredis.Config{Args: []string{"--save", "3600 1 300 100 60 10000"}})
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 64, ReadTimeout: time.Minute})
	run.Cleanup(func(context.Context) error { return client.Close() })
	return client
}

// Credentials of every server here.
const (
	PublisherKey  = "publisher-secret"
	AdminKey      = "admin-secret"
	WebhookSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	JWTKeys       = "k1=HS256:0123456789abcdef0123456789abcdef"
)

// command returns a command of a binary of badged, with the credentials and without other
// settings from this process's environment.
func command(ctx context.Context, binary string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, args...) //nolint:gosec // a binary that we have built, or that the user names
	cmd.Env = []string{"BADGED_JWT_KEYS=" + JWTKeys, "BADGED_PUBLISHER_KEYS=backend=" + PublisherKey, "BADGED_ADMIN_KEYS=ops=" + AdminKey}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "BADGED_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	return cmd
}

// RunBinary runs a command of a binary of badged to its end.
func RunBinary(ctx context.Context, binary string, args ...string) error {
	if out, err := command(ctx, binary, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("badged %s: %w\n%s", args[0], err, out)
	}
	return nil
}

// Server is a running program.
type Server struct {
	URL    string
	Cmd    *exec.Cmd
	output bytes.Buffer  // to be read once done is closed
	done   chan struct{} // closed when the program has ended
	err    error         // how it ended, once done is closed
}

// Serve starts `badged serve` and returns once it is ready.
func Serve(run *contest.Run, binary string, env []string, args ...string) *Server {
	return Start(run, "/readyz", func(port int) *exec.Cmd {
		cmd := command(run.Context(), binary, append([]string{"serve", fmt.Sprintf("--listen=127.0.0.1:%d", port)}, args...)...)
		cmd.Env = append(cmd.Env, env...)
		return cmd
	})
}

// Start starts a program that listens on a port, and returns once the program answers requests
// for the path ready with 200. The program is killed when the context of its command is done,
// and stopped at the end of the run.
func Start(run *contest.Run, ready string, on func(port int) *exec.Cmd) *Server {
	ctx := run.Context()
	free := contest.Must(new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"))
	port := free.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // listens on TCP
	contest.Check(free.Close())
	s := &Server{URL: fmt.Sprintf("http://127.0.0.1:%d", port), Cmd: on(port), done: make(chan struct{})}
	s.Cmd.Stdout, s.Cmd.Stderr = &s.output, &s.output
	contest.Check(s.Cmd.Start())
	go func() {
		s.err = s.Cmd.Wait()
		close(s.done)
	}()
	run.Cleanup(func(context.Context) error { return s.Stop() })
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		ended, err := wait.Signal(ctx, s.done, 5*time.Millisecond)
		contest.Check(err)
		if ended {
			contest.Check(fmt.Errorf("%s ended before it was ready: %w\n%s", s.Cmd.Path, s.err, s.output.String()))
		}
		req := contest.Must(http.NewRequestWithContext(ctx, http.MethodGet, s.URL+ready, http.NoBody))
		if res, err := client.Do(req); err == nil {
			contest.Check(res.Body.Close())
			if res.StatusCode == http.StatusOK {
				return s
			}
		}
	}
}

// stopLimit is longer than a server's graceful shutdown.
const stopLimit = 20 * time.Second

// Stop asks the server to end, unless it has. It fails if the server does not exit cleanly.
func (s *Server) Stop() error {
	if err := s.Cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the server: %w", err)
	}
	timeout := time.AfterFunc(stopLimit, func() { _ = s.Cmd.Process.Kill() }) // it may have ended just now
	defer timeout.Stop()
	<-s.done
	if s.err != nil {
		return fmt.Errorf("the server did not exit cleanly: %w\n%s", s.err, s.output.String())
	}
	return nil
}
