// Package embedpg runs a private PostgreSQL server as a child of this process. It is for `badged
// demo` and `badged dev`, which must work without set-up, and for tests, which must use a real
// server.
//
// The server listens only on a Unix socket in a private directory, stores its data in its own
// directory, and never outlives this process, even if this process is killed. It uses server
// binaries that are installed on the machine. Without them the package downloads binaries, or
// fails with an error that says what to install.
//
// The package works on Unix systems. If this process runs as root, the package runs the server as
// the owner of the data, or as the user postgres or nobody, since PostgreSQL refuses to run as
// root.
//
// The package does not know badged.
package embedpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
)

// Config configures a server. The zero value is a server with default settings
// whose data lasts until Stop.
type Config struct {
	// DataDir is the directory that stores the data between starts, in its subdirectory pgdata.
	// It is created if missing. If this process runs as root, the user postgres must be able to
	// enter it, so it must not be under /root. Empty means a temporary directory, in memory if
	// there is room; Stop removes it.
	DataDir string

	// Seed, unless empty, is the directory pgdata of a stopped server on this machine. A server
	// with temporary data starts with a copy of it, which is ten times faster than initdb. Its
	// PostgreSQL version must equal [Version].
	Seed string

	// Settings are configuration parameters as in postgresql.conf, by name. They override the
	// defaults of this package, which are PostgreSQL's defaults with more memory and fewer
	// checkpoints. Commits are durable by default. The settings of the server's socket and log
	// cannot be overridden.
	Settings map[string]string

	// Log receives the lines of the server's log: PANIC at level error, WARNING at level warn,
	// all other lines at level debug. Nil discards them.
	Log *slog.Logger
}

// DefaultDataDir returns the default directory for the data of the application name. For root it
// is under /var/lib, since the server's user may not enter root's home. For other users it is in
// the platform's directory for user data.
func DefaultDataDir(name string) (string, error) {
	if os.Geteuid() == 0 {
		return filepath.Join("/var/lib", name), nil
	}
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, name), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("default data directory: %w", err)
	}
	if runtime.GOOS == "darwin" {
		return filepath.Join(home, "Library", "Application Support", name), nil
	}
	return filepath.Join(home, ".local", "share", name), nil
}

// Version returns the output of `postgres --version` for the server that Start uses if the data
// directory is new.
func Version(ctx context.Context) (string, error) {
	as, err := accountFor("")
	if err != nil {
		return "", err
	}
	p, err := find(ctx, as, 0, serverDirs(), fetch)
	return p.version, err
}

// Start starts a server and returns once it accepts connections. If the process of the data
// directory's last server was killed, that server may still be shutting down: Start waits for it.
//
// ctx limits only the start: the server runs until Stop or Kill is called or this process ends,
// even if this process is killed. Set a generous limit: after a crash the server recovers by
// replaying all WAL since the last checkpoint.
//
// An error names the directory or the program and says what to do, or includes the last lines of
// the server's log.
func Start(ctx context.Context, cfg Config) (_ *Server, err error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
		}
	}()
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	if err := s.launch(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// prepare finds or creates what a server needs: the user to run as, the
// programs, the directories and the cluster.
func (s *Server) prepare(ctx context.Context) (err error) {
	major := 0
	if s.cfg.DataDir != "" {
		if major, err = s.openDataDir(ctx); err != nil {
			return err
		}
	}
	if s.account, err = accountFor(s.pgdata); err != nil {
		return err
	}
	if s.programs, err = find(ctx, s.account, major, serverDirs(), fetch); err != nil {
		if major != 0 {
			err = fmt.Errorf("start a server on %s: %w", s.pgdata, err)
		}
		return err
	}
	temp, err := makeTempDir(s.account, s.pgdata == "")
	if err != nil {
		return err
	}
	s.tempDir = temp.Name()
	s.locks = append(s.locks, temp)
	switch {
	case s.pgdata == "":
		s.pgdata = filepath.Join(s.tempDir, "pgdata")
		if s.cfg.Seed != "" {
			return s.copySeed()
		}
	case major != 0:
		return nil
	}
	return s.initCluster(ctx)
}

// release undoes prepare. The server must have ended.
func (s *Server) release() error {
	var errs []error
	if s.tempDir != "" {
		errs = append(errs, os.RemoveAll(s.tempDir))
	}
	for _, lock := range append(s.locks, s.owned) {
		if lock != nil {
			errs = append(errs, lock.Close())
		}
	}
	return errors.Join(errs...)
}
