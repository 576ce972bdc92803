// Package embedpg runs a private PostgreSQL server as a child of this process. It is for `badged
// demo` and `badged dev`, which must work without set-up, and for tests, which must use a real
// server.
//
// The server listens only on a Unix socket in a private directory and stores its data in its own
// directory. It ends when this process ends, even if this process is killed. The package uses a
// PostgreSQL server that is installed on the machine. If there is none, the package downloads
// one, or fails with an error that says what to install.
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
	// Start creates the directory if it is missing. If this process runs as root, the user
	// postgres must have access to the directory, so it must not be under /root. "" means a
	// temporary directory, which is in memory if there is room; Stop removes it.
	DataDir string

	// Seed, unless empty, is the directory pgdata of a stopped server on this machine. If DataDir
	// is "", the server starts with a copy of Seed, which is ten times faster than initdb. The
	// PostgreSQL version of Seed must equal [Version].
	Seed string

	// Settings maps names of configuration parameters to values, as in postgresql.conf. They
	// override the defaults of this package: the defaults of PostgreSQL, but with more memory and
	// fewer checkpoints. Commits are durable by default. Settings cannot override the parameters
	// of the server's socket and log.
	Settings map[string]string

	// Log receives the lines of the server's log: PANIC at level error, WARNING at level warn,
	// all other lines at level debug. Nil discards them.
	Log *slog.Logger
}

// DefaultDataDir returns the default directory for the data of an application; name is the name
// of the application. For root the directory is in /var/lib, since the user of the server may
// have no access to root's home. For other users it is in the platform's directory for user data.
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

// Version returns the output of `postgres --version` of the server that Start would use for a new
// data directory.
func Version(ctx context.Context) (string, error) {
	runAs, err := accountFor("")
	if err != nil {
		return "", err
	}
	p, err := find(ctx, runAs, 0, serverDirs(), fetch)
	return p.version, err
}

// Start starts a server and returns when the server accepts connections. If the last process that
// used the data directory was killed, its server may still be shutting down: Start waits until that
// server has ended.
//
// ctx limits only the start. Afterwards the server runs until Stop or Kill is called or this
// process ends, even if this process is killed. Set a generous limit: after a crash the server
// replays all WAL since the last checkpoint before it accepts connections.
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

// prepare selects the user that runs the server, finds the programs, and locks or creates the
// directories and the cluster.
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

// release removes the temporary directory and releases the locks on directories. Call it after
// the server has ended.
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
