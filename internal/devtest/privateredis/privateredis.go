// Package privateredis runs a real redis-server for one test process or benchmark. The server
// listens on a free loopback port and has no persistence. The package never uses a server that is
// already running. To test clients, a test can kill, freeze and restart the server at the same
// address.
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

// Ports are chosen below the ephemeral ports of Linux and macOS. If the server had an ephemeral
// port, then while the server is down, an outgoing connection could get this port, and a client
// could even connect to itself.
const (
	minPort = 20000
	maxPort = 32000

	portAttempts = 20
)

// Config configures a server. The zero value is a plain server.
type Config struct {
	// Args are appended to the command line of redis-server. They override the settings of this
	// package. An example is "--maxmemory", "64mb".
	Args []string
}

// Server is a running redis-server. It is safe for concurrent use.
type Server struct {
	binary string
	args   []string
	dir    string
	port   int
	// reserved reserves the port among the processes that use this package, even while the server
	// is down.
	reserved net.PacketConn

	mu      sync.Mutex
	process *process // nil while down
	stopped bool
}

// Start starts a server and returns once it accepts connections. ctx bounds only the start. The
// server runs until [Server.Stop], or until this process ends in any way.
func Start(ctx context.Context, cfg Config) (*Server, error) { return startBelow(ctx, cfg, maxPort) }

// startBelow is like Start, but chooses a port below maxPort.
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

// startOnFreePort tries ports until the server has one, because another process may get the port
// between the check and the start.
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

// freePort returns a loopback port below maxPort on which no process listens now, and its
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

// reserve binds the UDP port with a number, which Redis does not use. It returns an error if the
// UDP port is in use, or if a process listens on the TCP port. While it is bound, no other server
// of this package gets the same number, not even in another process and while this server is down.
// The kernel releases the port when the process ends.
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

// Addr returns host:port. It does not change, even if the server is restarted.
func (s *Server) Addr() string { return net.JoinHostPort(host, strconv.Itoa(s.port)) }

// URL returns the address in the form that Redis clients parse:
// "redis://127.0.0.1:21345/0".
func (s *Server) URL() string { return "redis://" + s.Addr() + "/0" }

// Kill kills the server like a crash (SIGKILL), and returns when its process has ended. It does
// nothing if the server is down.
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

// Pause freezes the server (SIGSTOP): the kernel still accepts connections and acknowledges bytes,
// but the server does not answer. Pause returns when the server is frozen.
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

// Resume ends a Pause (SIGCONT). The server then handles the commands that it received during the
// pause.
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

// Restart kills the server if it is running, and starts an empty server at the same address. ctx
// bounds the start.
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

// Stop stops the server permanently and removes its files. It may be called more than once.
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
