package embedpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Seed finds a cluster for a server to begin with a copy of, made by the version of
// PostgreSQL that `postgres --version` calls version. An empty dir means that there is
// none. release, unless nil, is called once the copy is made.
type Seed func(ctx context.Context, version string) (dir string, release func(), err error)

// Save stops the server as Stop does, and copies its cluster to dir, which must not
// exist, for a [Seed]: initdb, and filling a database, take longer than a copy.
func (s *Server) Save(ctx context.Context, dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errors.New("save: the server was stopped")
	}
	s.stopped = true
	err := s.shutdown(ctx)
	if err == nil {
		err = copyCluster(s.pgdata, dir, account{})
	}
	return errors.Join(err, s.release())
}

// makeCluster makes a cluster with temporary data: a copy of the seed, or a new one.
func (s *Server) makeCluster(ctx context.Context) error {
	if s.cfg.Seed != nil {
		dir, release, err := s.cfg.Seed(ctx, s.bin.version)
		if err != nil {
			return fmt.Errorf("find a cluster to copy: %w", err)
		}
		if release != nil {
			defer release()
		}
		if dir != "" {
			return copyCluster(dir, s.pgdata, s.account)
		}
	}
	return s.initCluster(ctx, "--no-sync")
}

// copyCluster copies the cluster of a server that was stopped, for an account.
func copyCluster(from, to string, as account) error {
	buf := make([]byte, 1<<18)
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, below)
		switch {
		case entry.IsDir():
			err = os.Mkdir(target, 0o700)
		case entry.Type().IsRegular():
			err = copyFile(path, target, buf)
		default:
			err = fmt.Errorf("%s is neither a file nor a directory", path)
		}
		return errors.Join(err, as.own(target))
	})
	if err != nil {
		return fmt.Errorf("copy the cluster %s: %w", from, err)
	}
	return nil
}

// copyFile copies a file without its zeros: most of a segment of the log is zeros, and a
// file that has none in their place takes neither time nor memory.
func copyFile(from, to string, buf []byte) (err error) {
	in, err := os.Open(from) //nolint:gosec // the caller chooses the directory
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the caller chooses the directory
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	var size int64
	for {
		n, err := in.Read(buf)
		if errors.Is(err, io.EOF) {
			return out.Truncate(size)
		}
		if err != nil {
			return err
		}
		if bytes.Count(buf[:n], []byte{0}) < n {
			if _, err := out.WriteAt(buf[:n], size); err != nil {
				return err
			}
		}
		size += int64(n)
	}
}
