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
	// tempDir contains the socket, and also pgdata if the data are temporary.
	tempDir string
	// locks are the locks on the directories. owned is the second lock on the data
	// directory, which the server does not inherit; see dirs.go.
	locks []*os.File
	owned *os.File

	// process is the current or last run of the server.
	process atomic.Pointer[process]
	// mu is held while the server starts or ends.
	mu      sync.Mutex
	stopped bool
}

// URL returns the connection string of the database postgres, as its owner and
// superuser. It is the same after a Restart.
func (s *Server) URL() string { return s.DatabaseURL("postgres") }

// DatabaseURL returns the connection string of another database of the server.
func (s *Server) DatabaseURL(name string) string {
	u := url.URL{
		Scheme: "postgres",
		Path:   "/" + name,
		// The port is part of the socket's name. Without it, PGPORT in the
		// environment would apply.
		RawQuery: url.Values{"host": {s.tempDir}, "port": {port}, "user": {role}}.Encode(),
	}
	return u.String()
}

// Program returns the path of a program of the server's version, such as pg_dump. The file may
// be missing: some systems package clients separately.
func (s *Server) Program(name string) string { return filepath.Join(s.programs.dir, name) }

// Done returns a channel that is closed when the current run of the server
// ends, for whatever reason.
func (s *Server) Done() <-chan struct{} { return s.process.Load().done }

// Err returns nil while the server runs and after Stop and Kill. If the server ended by
// itself, it returns the reason with the last lines of the server's log.
func (s *Server) Err() error {
	p := s.process.Load()
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Stop stops the server, closes its connections, and removes its socket and temporary data. It
// waits for the shutdown until ctx is done. Then it ends the server at once and returns an
// error: no data are lost, but the next start has to recover. It is idempotent.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	return errors.Join(s.shutdown(ctx), s.release())
}

// Kill ends the server as a crash would, and waits until all its processes have ended. Data and
// socket directory stay for a Restart; Stop removes the socket directory and temporary data.
// It is for fault tests.
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

// Pause freezes the server (SIGSTOP) until Resume: connections stay open, and the server does
// not answer. On systems other than Linux existing sessions continue, and only new sessions
// wait. It is for fault tests.
func (s *Server) Pause() { s.signalAll(syscall.SIGSTOP) }

// Resume ends a Pause. It does nothing to a server that runs or has ended.
func (s *Server) Resume() { s.signalAll(syscall.SIGCONT) }

// Restart stops the server if it runs, and starts it again with the same data and URL. ctx
// bounds the start as in Start. If Restart fails, the server is down, and Restart may be
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
	_ = p.signal(syscall.SIGCONT) // or it waits for Resume
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	// After SIGQUIT PostgreSQL itself kills processes that do not end in a few seconds.
	ended := p.signal(syscall.SIGQUIT) != nil
	<-p.done
	if ended {
		return nil
	}
	return fmt.Errorf("postgres was cut off in its shutdown and will recover at its next start: %w", context.Cause(ctx))
}
