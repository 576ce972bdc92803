// Package privateredis runs a real redis-server for one test process or
// benchmark, on a free loopback port and without persistence. It never uses a
// server that is already running. Tests can kill, freeze and restart the server
// at the same address to exercise its clients.
package privateredis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
)

const host = "127.0.0.1"

// Ports are drawn from below the ephemeral range of Linux and macOS. While the
// server is down, an outgoing connection could take an ephemeral port, and a
// client could even connect to itself.
const (
	minPort = 20000
	maxPort = 32000

	portAttempts = 20
)

// Config configures a server. The zero value is a plain server.
type Config struct {
	// Args are appended to the command line of redis-server and override the
	// settings of this package, for example "--maxmemory", "64mb".
	Args []string
}

// Server is a running redis-server. It is safe for concurrent use.
type Server struct {
	binary string
	args   []string
	dir    string
	port   int
	// reserved keeps the port from other processes that use this package, also while
	// the server is down.
	reserved net.PacketConn

	mu      sync.Mutex
	process *process // nil while down
	stopped bool
}

// Start runs a server and returns once it accepts connections. ctx bounds the
// start only: the server runs until [Server.Stop] or until this process ends, in
// whatever way.
func Start(ctx context.Context, cfg Config) (*Server, error) { return startBelow(ctx, cfg, maxPort) }

// startBelow is Start with an upper bound for the port.
func startBelow(ctx context.Context, cfg Config, maxPort int) (*Server, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("privateredis: install Redis (Debian, Ubuntu: apt-get install redis-server; macOS: brew install redis) or put it in PATH: %w", err)
	}
	dir, err := os.MkdirTemp("", "privateredis-")
	if err != nil {
		return nil, fmt.Errorf("privateredis: make the working directory: %w", err)
	}
	s := &Server{binary: binary, args: cfg.Args, dir: dir}
	if err := s.startOnFreePort(ctx, maxPort); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

// startOnFreePort tries ports until the server has one: another process may take
// a port between the check and the start.
func (s *Server) startOnFreePort(ctx context.Context, maxPort int) error {
	for attempt := 1; ; attempt++ {
		var err error
		if s.port, s.reserved, err = freePort(ctx, maxPort); err != nil {
			return err
		}
		s.process, err = s.launch(ctx)
		if err == nil {
			return nil
		}
		_ = s.reserved.Close()
		if !errors.Is(err, errPortTaken) || attempt == portAttempts {
			return err
		}
	}
}

// freePort returns a loopback port below maxPort that has no listener now, and its
// reservation: see [reserve].
func freePort(ctx context.Context, maxPort int) (int, net.PacketConn, error) {
	var lastErr error
	for range portAttempts {
		port := minPort + rand.IntN(maxPort-minPort) //nolint:gosec // a port is no secret
		reserved, err := reserve(ctx, port)
		if err == nil {
			return port, reserved, nil
		}
		lastErr = err
	}
	return 0, nil, fmt.Errorf("privateredis: find a free port between %d and %d: %w", minPort, maxPort, lastErr)
}

// reserve takes the UDP port of a number, which Redis does not use, and fails if it is
// taken or TCP has a listener there. No other server of this package, in whatever process,
// then gets the number, also while this one is down between a kill and a restart. The
// kernel ends a reservation with its process.
func reserve(ctx context.Context, port int) (_ net.PacketConn, err error) {
	var listen net.ListenConfig
	address := net.JoinHostPort(host, strconv.Itoa(port))
	reserved, err := listen.ListenPacket(ctx, "udp", address)
	if err != nil {
		return nil, err
	}
	l, err := listen.Listen(ctx, "tcp", address)
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		return nil, errors.Join(err, reserved.Close())
	}
	return reserved, nil
}

// Addr returns host:port, the same for the life of the server.
func (s *Server) Addr() string { return net.JoinHostPort(host, strconv.Itoa(s.port)) }

// URL returns the address in the form that Redis clients parse:
// "redis://127.0.0.1:21345/0".
func (s *Server) URL() string { return "redis://" + s.Addr() + "/0" }

// Kill ends the server as a crash does (SIGKILL) and returns when it is gone.
// It does nothing if the server is down.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill()
}

func (s *Server) kill() {
	if s.process != nil {
		s.process.kill()
		s.process = nil
	}
}

// Pause freezes the server (SIGSTOP): the kernel still accepts connections and
// acknowledges bytes, but no answer comes. It returns when the server has stopped.
func (s *Server) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.signal(syscall.SIGSTOP)
	if err != nil || s.process.paused {
		return err
	}
	s.process.paused = true
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		_, err = syscall.Wait4(s.process.cmd.Process.Pid, nil, syscall.WUNTRACED, nil)
	}
	return err
}

// Resume ends a Pause (SIGCONT). The server then handles the commands it was
// sent in the meantime.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.signal(syscall.SIGCONT)
	if err == nil {
		s.process.paused = false
	}
	return err
}

func (s *Server) signal(sig syscall.Signal) error {
	if s.process == nil {
		return errors.New("privateredis: the server is down")
	}
	if err := s.process.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("privateredis: send %s to %s: %w", sig, s.Addr(), err)
	}
	return nil
}

// Restart kills the server if it runs, and starts an empty one at the same
// address. ctx bounds the start.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errors.New("privateredis: restart: the server was stopped")
	}
	s.kill()
	p, err := s.launch(ctx)
	if err != nil {
		return err
	}
	s.process = p
	return nil
}

// Stop ends the server permanently and removes its files. It may be called more
// than once.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill()
	if !s.stopped {
		_ = s.reserved.Close()
	}
	s.stopped = true
	_ = os.RemoveAll(s.dir)
}
