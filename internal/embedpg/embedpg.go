// Package embedpg runs a private PostgreSQL server as a child of this process:
// for `badged demo`, which must work without set-up, and for tests, which must
// use a real server.
//
// The server listens only on a Unix socket in a private directory, keeps its
// data in its own directory, and never outlives this process, even one that is
// killed. It uses server binaries installed on the machine, or else downloads
// some or tells what to install.
//
// The package works on Unix systems. As root it runs the server as the user
// postgres or nobody, since PostgreSQL refuses to run as root.
//
// It does not know badged.
package embedpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
)

// Faults of the machine or the data directory. Errors of Start wrap one of
// these if it applies, name the directory or program, and say what to do.
var (
	// ErrNoBinaries is returned if no usable server was found and none could
	// be downloaded.
	ErrNoBinaries = errors.New("no PostgreSQL server found")
	// ErrInUse is returned if another live server uses the data directory.
	ErrInUse = errors.New("the data directory is in use")
	// ErrOwner is returned if the data directory belongs to a user that the
	// server cannot run as, or the server's user cannot enter it.
	ErrOwner = errors.New("the data directory is out of reach")
	// ErrVersion is returned if the data directory was made by a major version
	// of PostgreSQL that is not installed.
	ErrVersion = errors.New("the data directory is of another PostgreSQL version")
	// ErrNotCluster is returned if the data directory has other contents than
	// a database.
	ErrNotCluster = errors.New("the data directory holds no PostgreSQL database")
)

// Names inside the server. The role is initdb's superuser; both exist once
// Start has returned.
const (
	role     = "badged"
	database = "badged"
)

// Config configures a server. The zero value is a server with default settings
// whose data lasts until Stop.
type Config struct {
	// DataDir keeps the data between starts, in a subdirectory pgdata; it is
	// created if missing. As root it must be a directory that the user
	// postgres may enter, not one under /root. Empty means a temporary
	// directory, in memory if there is room, which Stop removes.
	DataDir string

	// Seed, unless nil, finds a cluster for temporary data to begin with. Without one
	// initdb makes it.
	Seed Seed

	// Settings are configuration parameters as in postgresql.conf, by name.
	// They override the defaults of this package, which are those of
	// PostgreSQL with more memory and fewer checkpoints; durability is on by
	// default. The server's socket and log cannot be configured.
	Settings map[string]string

	// Log gets the server's log: warnings as warnings, the rest for debugging.
	// Nil discards it.
	Log *slog.Logger
}

// DefaultDataDir returns the directory for an application's data, with name
// appended: under /var/lib for root, whose home the server's user may not
// enter, and otherwise the platform's directory for user data.
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

// Start starts a server and returns once it accepts connections. If the
// previous server of the data directory is still shutting down after its
// process was killed, Start waits for it.
//
// ctx bounds only the start: the server runs until Stop or Kill, or until this
// process ends, in whatever way. Set a generous limit: recovery after a crash
// takes as long as there is work to redo.
//
// Errors wrap one of the errors above if it applies; others have the last
// lines of the server's log.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	return start(ctx, cfg, startTethered)
}

// start is Start with a tether that ties the server's life to ours.
func start(ctx context.Context, cfg Config, tie tether) (_ *Server, err error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Settings = maps.Clone(cfg.Settings)
	if err := checkSettings(cfg.Settings); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, tether: tie}
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
// binaries, the directories and the cluster.
func (s *Server) prepare(ctx context.Context) (err error) {
	if s.cfg.DataDir != "" {
		dir, err := filepath.Abs(s.cfg.DataDir)
		if err != nil {
			return fmt.Errorf("data directory %s: %w", s.cfg.DataDir, err)
		}
		s.pgdata = filepath.Join(dir, "pgdata")
		lock, err := claimDataDir(ctx, dir)
		if err != nil {
			return err
		}
		s.held = append(s.held, lock)
	}
	if s.account, err = accountFor(s.pgdata); err != nil {
		return err
	}
	major, err := clusterMajor(s.pgdata)
	if err != nil {
		return err
	}
	if s.bin, err = standardPlaces().find(ctx, s.account, major); err != nil {
		return s.named(err)
	}

	lock, err := makeTempDir(ctx, s.account, s.bin, s.pgdata == "")
	if err != nil {
		return err
	}
	s.tempDir = lock.Name()
	s.held = append(s.held, lock)
	if s.pgdata == "" {
		s.pgdata = filepath.Join(s.tempDir, "pgdata")
		return s.makeCluster(ctx)
	}
	if err := s.account.canEnter(ctx, filepath.Dir(s.pgdata), s.bin); err != nil {
		return fmt.Errorf("%w: user %s may not enter %s: choose a directory that it may, such as one in /var/lib (%w)",
			ErrOwner, s.account.name, filepath.Dir(s.pgdata), err)
	}
	if major == 0 {
		return s.initCluster(ctx)
	}
	return nil
}

// named adds the data directory to an error that does not name it.
func (s *Server) named(err error) error {
	if errors.Is(err, ErrVersion) {
		return fmt.Errorf("%s: %w", s.pgdata, err)
	}
	return err
}

// release undoes prepare. The server must have ended.
func (s *Server) release() error {
	var errs []error
	if s.tempDir != "" {
		errs = append(errs, os.RemoveAll(s.tempDir))
	}
	for _, lock := range s.held {
		errs = append(errs, lock.Close())
	}
	return errors.Join(errs...)
}
