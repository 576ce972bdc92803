// Package embedpg runs a private PostgreSQL server as a child of this process:
// for `badged demo`, which must need no set-up, and for tests, which must use
// the real thing.
//
// The server listens on a unix socket in a private directory and on nothing
// else, keeps its data in a directory of its own, and never outlives this
// process, even when that is killed. It uses server binaries found on the
// machine; where there are none it downloads some, or says what to install.
//
// The package works on Unix systems. As root it runs the server as the user
// postgres, or else nobody, since PostgreSQL refuses to run as root.
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

// What can be wrong with the machine or the data directory. The errors that
// Start returns wrap one of these where they apply, name the directory or
// program at fault and say what to do about it.
var (
	// ErrNoBinaries says that no usable server was found and none could be
	// downloaded.
	ErrNoBinaries = errors.New("no PostgreSQL server found")
	// ErrInUse says that another live server works on the data directory.
	ErrInUse = errors.New("the data directory is in use")
	// ErrOwner says that the data directory belongs to a user that the server
	// cannot run as, or lies where the server's user may not go.
	ErrOwner = errors.New("the data directory is out of reach")
	// ErrVersion says that the data directory was made by a major version of
	// PostgreSQL that is not on this machine.
	ErrVersion = errors.New("the data directory is of another PostgreSQL version")
	// ErrNotCluster says that the data directory holds something else than a
	// database.
	ErrNotCluster = errors.New("the data directory holds no PostgreSQL database")
)

// Names inside the server. The role is the superuser that initdb makes; it and
// the database exist once Start has returned.
const (
	role     = "badged"
	database = "badged"
)

// Config says where a server keeps its data and how it runs. The zero value is
// a server with default settings and data that lasts until Stop.
type Config struct {
	// DataDir is the directory that keeps the data from one start to the next,
	// in a subdirectory named pgdata; it is made if missing. As root it must be
	// somewhere that the user postgres may go, not under /root. Empty means a
	// temporary directory that Stop removes, in memory where there is room.
	DataDir string

	// Settings are configuration parameters as in postgresql.conf, by name.
	// They take precedence over the defaults of this package, which are those
	// of PostgreSQL with more memory and fewer checkpoints; durability is on
	// unless a setting turns it off. Where the server listens and logs cannot
	// be set.
	Settings map[string]string

	// Log takes the server's log, its warnings as warnings and the rest for
	// debugging. Nil discards it.
	Log *slog.Logger
}

// DefaultDataDir is the directory below which this user's applications keep
// data, with name appended: /var/lib for root, whose home the server's user
// may not enter, and the platform's directory for user data otherwise.
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

// Start starts a server and returns once it accepts connections. A data
// directory that is still being left by a server whose process was killed is
// waited for.
//
// ctx bounds the start only: the server runs until Stop or Kill, or until this
// process ends, in whatever way. There is no limit of time but ctx, since
// recovery after a crash takes as long as there was work to redo.
//
// Errors wrap the reasons above where they apply; any other carries the last
// lines that the server logged.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	return start(ctx, cfg, startTethered)
}

// start is Start with the way to tie the server's life to ours.
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

// prepare finds or makes all that a server needs: the user to run as, the
// binaries, the directories and the cluster in them.
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
		return s.initCluster(ctx, "--no-sync")
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

// named adds the data directory to an error that does not know it.
func (s *Server) named(err error) error {
	if errors.Is(err, ErrVersion) {
		return fmt.Errorf("%s: %w", s.pgdata, err)
	}
	return err
}

// release gives up what prepare took. The server must be gone.
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
