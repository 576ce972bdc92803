package embedpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// role is the superuser that initdb creates.
const role = "badged"

// clusterMajor returns the major version of the server that created the cluster in pgdata,
// or 0 if there is no cluster yet.
func clusterMajor(pgdata string) (major int, err error) {
	text, err := os.ReadFile(filepath.Join(pgdata, "PG_VERSION")) //nolint:gosec // the caller chooses its directory
	switch {
	case err == nil:
		if _, err := fmt.Sscan(string(text), &major); err != nil {
			return 0, fmt.Errorf("%s has no version in PG_VERSION: %w: choose another directory", pgdata, err)
		}
		return major, nil
	case !errors.Is(err, fs.ErrNotExist):
		return 0, fmt.Errorf("data directory: %w", err)
	}
	if entries, _ := os.ReadDir(pgdata); len(entries) > 0 {
		return 0, fmt.Errorf("%s is not empty and has no PG_VERSION: choose another directory, or move its contents away", pgdata)
	}
	return 0, nil
}

// initCluster creates a cluster in the directory s.pgdata + ".new" and then renames the
// directory, so that an incomplete cluster is never used as a database.
func (s *Server) initCluster(ctx context.Context) (err error) {
	fresh := s.pgdata + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("make a database: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("make a database in %s: %w", s.pgdata, errors.Join(err, os.RemoveAll(fresh)))
		}
	}()
	if err := errors.Join(os.Mkdir(fresh, 0o700), s.account.chown(fresh)); err != nil {
		return err
	}
	args := []string{
		"--pgdata", fresh,
		"--username", role,
		"--encoding", "UTF8",
		// Sorting by bytes is fastest. It does not depend on the collations of the operating
		// system: if an upgrade of the system changes a collation, indexes that use it become
		// corrupt.
		"--locale", "C",
		// Only root and the user that runs the server have access to the directory of the socket.
		// Both users can also read and change the data files, so authentication would protect
		// nothing. Peer authentication would refuse root, but this process runs as root whenever
		// the server runs as another user.
		"--auth-local", "trust",
		"--auth-host", "reject",
		"--no-instructions",
	}
	if s.cfg.DataDir == "" || s.cfg.Settings["fsync"] == "off" {
		args = append(args, "--no-sync")
	}
	initdb := s.account.command(ctx, fresh, s.Program("initdb"), args...)
	var stderr bytes.Buffer
	initdb.Stderr = &stderr
	wait, err := s.start(initdb)
	if err != nil {
		return err
	}
	if err := wait(); err != nil {
		return fmt.Errorf("initdb: %w %s", err, strings.TrimSpace(stderr.String()))
	}
	// pgdata may exist as an empty directory.
	if err := os.Remove(s.pgdata); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(fresh, s.pgdata)
}

// copySeed creates the cluster of a server with temporary data: it copies the cluster cfg.Seed.
func (s *Server) copySeed() error {
	err := os.CopyFS(s.pgdata, os.DirFS(s.cfg.Seed))
	if err = errors.Join(err, os.Chmod(s.pgdata, 0o700)); err != nil { //nolint:gosec // a directory
		return fmt.Errorf("copy the cluster %s: %w", s.cfg.Seed, err)
	}
	return nil
}

// defaults returns settings for short transactions, and for a server on a developer's machine. A
// large shared_buffers does no harm there: the operating system allocates memory only when the
// server uses it.
func defaults() map[string]string {
	return map[string]string{
		// The default of 128MB halves the rate of folding.
		"shared_buffers": "512MB",
		// Each checkpoint causes full-page writes. With fewer checkpoints, the WAL needs more
		// disk space and recovery takes longer; max_wal_size limits both.
		"max_wal_size":       "2GB",
		"checkpoint_timeout": "15min",
		// On solid state drives random reads cost about as much as sequential reads.
		"random_page_cost": "1.1",
		// Compiling a query with JIT takes longer than running any query of badged.
		"jit": "off",
	}
}

// fixed returns the settings that users cannot override. With them, the server listens only on
// its private socket, and writes its log to this process in a format that this package can parse.
// logging_collector would write the log to files; some distributions enable it.
func fixed(socketDir string) map[string]string {
	return map[string]string{
		"listen_addresses":        "",
		"port":                    port,
		"unix_socket_directories": socketDir,
		"logging_collector":       "off",
		"log_line_prefix":         "",
		"log_min_messages":        "warning",
		"lc_messages":             "C",
	}
}

// arguments returns all settings as arguments of the program postgres, in a stable order.
func (s *Server) arguments() []string {
	all := defaults()
	if s.cfg.DataDir == "" {
		// Use files in the data directory for dynamic shared memory, so that these files are
		// removed together with the data after a crash.
		all["dynamic_shared_memory_type"] = "mmap"
	}
	maps.Copy(all, s.cfg.Settings)
	maps.Copy(all, fixed(s.tempDir))
	args := []string{"-D", s.pgdata}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		args = append(args, "-c", name+"="+all[name])
	}
	return args
}
