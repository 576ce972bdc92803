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
	"strings"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// fetch returns the directory of a server's programs in the user's cache, and downloads the
// programs if they are missing. major is the major version; 0 means the newest version.
func fetch(ctx context.Context, major int) (string, error) {
	if os.Geteuid() == 0 {
		return "", errors.New("nothing is downloaded as root")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("download PostgreSQL: %w", err)
	}
	return download(ctx, filepath.Join(cache, "badged"), "https://repo1.maven.org/maven2", major)
}

// download fetches a server from a Maven repository into dir, unless dir already has this
// version. It returns the directory of the server's programs. When ctx is done, download returns
// at once, but the transfer continues in the background, since the library cannot cancel it.
func download(ctx context.Context, dir, repository string, major int) (string, error) {
	version, err := versionToFetch(major)
	if err != nil {
		return "", err
	}
	home := filepath.Join(dir, "postgresql-"+string(version))
	bin := filepath.Join(home, "bin")
	if _, err := os.Stat(filepath.Join(bin, "postgres")); err == nil {
		return bin, nil
	}
	result := make(chan error, 1)
	go func() { result <- fetchInto(dir, home, repository, version) }()
	select {
	case err = <-result:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("download PostgreSQL %s: %w", version, err)
	}
	return bin, nil
}

// fetchInto uses the library embedded-postgres to select a build for this machine, fetch it,
// check its checksum and unpack it. The library does this only when it starts a server. But the
// library's server would continue to run if this process is killed. So fetchInto sets an encoding
// that does not exist: after unpacking, the library runs initdb, which fails with this encoding.
func fetchInto(dir, home, repository string, version embeddedpostgres.PostgresVersion) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	// Unpack in a temporary directory next to home and then rename it, so that an interrupted
	// download is never used as a server.
	work, err := os.MkdirTemp(dir, "download-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	unpacked := filepath.Join(work, "home")
	startErr := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		BinaryRepositoryURL(repository).
		Version(version).
		Port(0). // the library fails if the port is in use; port 0 is never in use
		CachePath(filepath.Join(work, "archive")).
		RuntimePath(filepath.Join(work, "run")).
		BinariesPath(unpacked).
		Encoding("none").
		Logger(io.Discard)).Start()
	if _, err := os.Stat(filepath.Join(unpacked, "bin", "postgres")); err != nil {
		return startErr
	}
	// Another process may have finished the same download first.
	if err := os.Rename(unpacked, home); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// versionToFetch returns the release of a major version that the library can download; major 0
// means the newest release.
func versionToFetch(major int) (embeddedpostgres.PostgresVersion, error) {
	for _, version := range []embeddedpostgres.PostgresVersion{
		embeddedpostgres.V18, embeddedpostgres.V17, embeddedpostgres.V16, embeddedpostgres.V15, embeddedpostgres.V14,
	} {
		if major == 0 || strings.HasPrefix(string(version), strconv.Itoa(major)+".") {
			return version, nil
		}
	}
	return "", fmt.Errorf("no download is known for PostgreSQL %d", major)
}
