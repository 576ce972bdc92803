package embedpg

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Server is a private server made by Start. It is safe for concurrent use.
type Server struct {
	cfg      Config
	account  *account
	programs programs
	pgdata   string
	// tempDir contains the socket, and also pgdata if the data is temporary.
	tempDir string
	// locks are the locks on directories; the server inherits these open files. owned is the
	// second lock on the data directory; the server does not inherit it: see dirs.go.
	locks []*os.File
	owned *os.File

	// process is the current or last run of the server.
	process atomic.Pointer[process]
	// mu is held while the server starts or ends.
	mu      sync.Mutex
	stopped bool
}

// URL returns the connection string of the database postgres. Its user is a superuser. The string
// stays the same after Restart.
func (s *Server) URL() string { return s.DatabaseURL("postgres") }

// DatabaseURL returns the connection string of another database of the server.
func (s *Server) DatabaseURL(name string) string {
	u := url.URL{
		Scheme: "postgres",
		Path:   "/" + name,
		// The port is part of the socket's name. Set it, since otherwise the environment variable
		// PGPORT would apply.
		RawQuery: url.Values{"host": {s.tempDir}, "port": {port}, "user": {role}}.Encode(),
	}
	return u.String()
}

// Program returns the path of a program that belongs to the server, such as pg_dump. The file may
// not exist, since some systems have a separate package for client programs.
func (s *Server) Program(name string) string { return filepath.Join(s.programs.dir, name) }

// Done returns a channel that is closed when the current run of the server ends, for any reason.
func (s *Server) Done() <-chan struct{} { return s.process.Load().done }

// Err returns nil while the server runs and after Stop and Kill. If the server ended by itself,
// Err returns the reason and the last lines of the server's log.
func (s *Server) Err() error {
	p := s.process.Load()
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Stop shuts the server down, which closes its connections. Then it removes the socket and
// temporary data. If ctx is done before the shutdown is complete, Stop ends the server at once
// and returns an error: no data is lost, but the next start takes longer, since the server must
// recover. Further calls of Stop do nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	return errors.Join(s.shutdown(ctx), s.release())
}

// Kill kills all processes of the server (SIGKILL), as in a crash, and returns when they have
// ended. The data and the directory of the socket remain, so that Restart can be called; Stop
// removes the directory and temporary data. Kill is for fault tests.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.process.Load()
	p.ordered.Store(true)
	for {
		s.signalAll(syscall.SIGKILL)
		select {
		case <-p.done:
			return
		case <-time.After(lockInterval):
		}
	}
}

// Pause suspends the server (SIGSTOP) until Resume: connections stay open, but the server does
// not answer. On systems other than Linux, existing sessions still answer, and only new sessions
// do not. Pause is for fault tests.
func (s *Server) Pause() { s.signalAll(syscall.SIGSTOP) }

// Resume ends a Pause. It has no effect on a server that is not paused.
func (s *Server) Resume() { s.signalAll(syscall.SIGCONT) }

// Restart stops the server if it runs, and starts it again with the same data and URL. ctx limits
// both the shutdown and the start. If Restart fails, the server is down, and Restart may be
// called again.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errors.New("restart: the server was stopped")
	}
	if err := s.shutdown(ctx); err != nil {
		return err
	}
	return s.launch(ctx)
}

// shutdown ends the current run of the server unless it has ended.
func (s *Server) shutdown(ctx context.Context) error {
	p := s.process.Load()
	_ = p.signal(syscall.SIGINT)
	_ = p.signal(syscall.SIGCONT) // otherwise a paused server handles SIGINT only after Resume
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	// After SIGQUIT, PostgreSQL kills its child processes that do not end within a few seconds.
	ended := p.signal(syscall.SIGQUIT) != nil
	<-p.done
	if ended {
		return nil
	}
	return fmt.Errorf("postgres was killed during its shutdown and will recover at its next start: %w", context.Cause(ctx))
}
