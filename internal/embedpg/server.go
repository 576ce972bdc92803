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

	"github.com/jackc/pgx/v5"
)

// Server is a private server made by Start. It is safe for concurrent use.
type Server struct {
	cfg     Config
	tether  tether
	account account
	bin     binaries
	pgdata  string
	// tempDir holds the socket, and pgdata too if that is temporary.
	tempDir string
	// held are the locks on the directories; see lock.go.
	held []*os.File

	// run is the current or last run of the server.
	run atomic.Pointer[process]
	// mu is held while the server starts or ends.
	mu      sync.Mutex
	stopped bool
}

// URL returns the connection string of the database badged, as its owner and
// superuser. It is the same after a Restart.
func (s *Server) URL() string { return s.DatabaseURL(database) }

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

// Program returns the path of a program of the server's version, such as
// pg_dump. It may be missing: some systems package clients separately.
func (s *Server) Program(name string) string { return filepath.Join(s.bin.dir, name) }

// Done returns a channel that is closed when the current run of the server
// ends, for whatever reason.
func (s *Server) Done() <-chan struct{} { return s.run.Load().done }

// Err returns nil while the server runs and after Stop and Kill; otherwise why
// it ended, with the last lines of its log.
func (s *Server) Err() error {
	run := s.run.Load()
	select {
	case <-run.done:
		return run.err
	default:
		return nil
	}
}

// Stop stops the server, closing its connections, and removes its socket and
// temporary data. It waits for the shutdown until ctx is done; then it ends
// the server at once, which loses nothing but makes the next start recover,
// and returns an error. It is idempotent.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	return errors.Join(s.shutdown(ctx), s.release())
}

// Kill ends the server as a crash would, and waits until all its processes
// have ended. Data and socket directory stay for a Restart; Stop removes them
// as usual. It is for fault tests.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run.Load().kill()
}

// Pause freezes the server (SIGSTOP) until Resume: connections stay open and nothing
// answers. Elsewhere than on Linux its sessions go on, and only new ones wait. It is for
// fault tests.
func (s *Server) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run.Load().signalAll(syscall.SIGSTOP)
}

// Resume ends a Pause. It does nothing to a server that runs or has ended.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run.Load().signalAll(syscall.SIGCONT)
}

// Restart starts the server again with the same data and URL, after stopping
// it if it runs. ctx bounds it as in Start. If it fails the server is down,
// and Restart may be called again.
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

// immediateTimeout exceeds PostgreSQL's own limit, in an immediate shutdown,
// before it kills its remaining processes.
const immediateTimeout = 10 * time.Second

// shutdown ends the run unless it has ended.
func (s *Server) shutdown(ctx context.Context) error {
	run := s.run.Load()
	run.signal(syscall.SIGINT)
	select {
	case <-run.done:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-run.done:
		return nil // even if ctx is done
	default:
	}
	run.signal(syscall.SIGQUIT)
	select {
	case <-run.done:
	case <-time.After(immediateTimeout):
		run.kill()
	}
	return fmt.Errorf("postgres was cut off in its shutdown and will recover at its next start: %w", context.Cause(ctx))
}

// launch runs the server and waits until it is ready.
func (s *Server) launch(ctx context.Context) error {
	if err := clearStalePID(ctx, s.pgdata); err != nil {
		return err
	}
	log := &serverLog{log: s.cfg.Log}
	// ctx does not bound the server's life.
	cmd := s.account.command(context.WithoutCancel(ctx), s.pgdata, s.bin.postgres(), s.arguments()...)
	cmd.ExtraFiles = s.held
	run, err := startProcess(cmd, log, s.tether)
	if err != nil {
		return err
	}
	s.run.Store(run)
	if err := s.awaitReady(ctx, run); err != nil {
		run.kill()
		return err
	}
	return nil
}

// readyInterval is how often to check whether the server is ready.
const readyInterval = 5 * time.Millisecond

// awaitReady returns once the server accepts connections and has the database.
func (s *Server) awaitReady(ctx context.Context, run *process) error {
	ticker := time.NewTicker(readyInterval)
	defer ticker.Stop()
	for {
		// Check the server's own state first: earlier connections would fill
		// its log with refusals.
		if pm, found := readPostmaster(s.pgdata); found && pm.pid == run.cmd.Process.Pid && (pm.status == "ready" || pm.status == "standby") {
			return s.ensureDatabase(ctx)
		}
		select {
		case <-ticker.C:
		case <-run.done:
			return run.err
		case <-ctx.Done():
			return fmt.Errorf("wait for postgres to be ready: %w\n%s", context.Cause(ctx), run.log.tail())
		}
	}
}

// ensureDatabase connects and creates the database if it is missing: after
// initdb, or after a first start that was interrupted.
func (s *Server) ensureDatabase(ctx context.Context) (err error) {
	conn, err := pgx.Connect(ctx, s.DatabaseURL("postgres"))
	if err != nil {
		return fmt.Errorf("connect to the private postgres: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	var exists bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", database).Scan(&exists)
	if err != nil {
		return fmt.Errorf("look for database %s: %w", database, err)
	}
	if exists {
		return nil
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+database); err != nil {
		return fmt.Errorf("create database %s: %w", database, err)
	}
	return nil
}
