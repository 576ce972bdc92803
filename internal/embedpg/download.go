package embedpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// fetchBinaries returns a server from the user's cache, and downloads it if
// missing.
func fetchBinaries(ctx context.Context, major int) (string, error) {
	if os.Geteuid() == 0 {
		return "", errors.New("nothing is downloaded as root")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("download PostgreSQL: %w", err)
	}
	return download(ctx, filepath.Join(cache, "badged"), "", major)
}

// download fetches a server from a Maven repository, by default the central
// one, into dir and returns the directory of its programs. It does not fetch a
// server again. When ctx ends it returns at once, although the transfer, which
// cannot be canceled, continues.
func download(ctx context.Context, dir, repository string, major int) (string, error) {
	version, err := versionToFetch(major)
	if err != nil {
		return "", err
	}
	home := filepath.Join(dir, "postgresql-"+string(version))
	if _, err := os.Stat(filepath.Join(home, "bin", "postgres")); err == nil {
		return filepath.Join(home, "bin"), nil
	}
	result := make(chan error, 1)
	go func() { result <- fetchInto(dir, home, repository, version) }()
	select {
	case err := <-result:
		if err != nil {
			return "", fmt.Errorf("download PostgreSQL %s: %w", version, err)
		}
		return filepath.Join(home, "bin"), nil
	case <-ctx.Done():
		return "", fmt.Errorf("download PostgreSQL %s: %w", version, context.Cause(ctx))
	}
}

// fetchInto uses the library's knowledge of builds: it selects one for this
// machine, fetches it, checks its sum and unpacks it. The library does this
// only as part of starting a server, so the start is made to fail next: a
// server cannot have port 0.
func fetchInto(dir, home, repository string, version embeddedpostgres.PostgresVersion) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	// Unpacked in a neighboring directory and renamed, so that an interrupted
	// download is never taken for a server.
	work, err := os.MkdirTemp(dir, "download-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	unpacked, data := filepath.Join(work, "home"), filepath.Join(work, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	// A directory that looks like a cluster makes the library skip initdb.
	major, err := parseMajor(string(version))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(strconv.Itoa(major)), 0o600); err != nil {
		return err
	}
	cfg := embeddedpostgres.DefaultConfig().
		Version(version).
		Port(0).
		CachePath(filepath.Join(work, "archive")).
		RuntimePath(filepath.Join(work, "run")).
		BinariesPath(unpacked).
		DataPath(data).
		Logger(io.Discard)
	if repository != "" {
		cfg = cfg.BinaryRepositoryURL(repository)
	}
	server := embeddedpostgres.NewDatabase(cfg)
	startErr := server.Start()
	if startErr == nil {
		return errors.Join(errors.New("the downloaded server started on port 0"), server.Stop())
	}
	if _, err := os.Stat(filepath.Join(unpacked, "bin", "postgres")); err != nil {
		return startErr
	}
	// Another process may have been faster.
	if err := os.Rename(unpacked, home); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// versionToFetch returns the release of a major version that the library
// knows, or its newest for 0.
func versionToFetch(major int) (embeddedpostgres.PostgresVersion, error) {
	known := []embeddedpostgres.PostgresVersion{
		embeddedpostgres.V18, embeddedpostgres.V17, embeddedpostgres.V16, embeddedpostgres.V15, embeddedpostgres.V14,
	}
	for _, version := range known {
		if m, err := parseMajor(string(version)); err == nil && (major == 0 || m == major) {
			return version, nil
		}
	}
	return "", fmt.Errorf("no download is known for PostgreSQL %d", major)
}
