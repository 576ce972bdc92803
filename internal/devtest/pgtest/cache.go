package pgtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/badged/badged/internal/devtest/source"
	"github.com/badged/badged/internal/pg/embedpg"
)

// The cache contains database clusters (data directories) in which a template is already built. All
// packages and later runs use them: copying a cluster takes a tenth of the processor time of initdb
// and migrations. The name of a cluster's directory is a hash of everything from which the cluster
// is made.
const (
	// cacheVariable is the environment variable with the directory of the cache. "off" turns the
	// cache off, for tests of code that differs from the files of the repository.
	cacheVariable = "PGTEST_CACHE"
	// cachedClusters is the maximum number of clusters in the cache. Each has about 50 MB. A run of
	// all tests uses eleven; two of them belong to the program that it builds.
	cachedClusters = 20
	lockPrefix     = "lock-"
)

// Hash returns a hash of the given files and of all files in the given folders, except Go tests. It
// is used as the Version of a template. It is empty if a file cannot be read.
func Hash(paths ...string) string {
	sum := sha256.New()
	for _, path := range paths {
		err := filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			fmt.Fprintf(sum, "%s %d\n", filepath.Base(path), len(content))
			sum.Write(content)
			return err
		})
		if err != nil {
			return ""
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// openCache returns the directory of the cache, and a hash of the code that makes clusters. Both
// are empty if there is no cache.
func openCache() (dir, sources string) {
	dir = os.Getenv(cacheVariable)
	switch base, err := os.UserCacheDir(); {
	case dir == "off", dir == "" && os.Geteuid() != 0 && err != nil:
		return "", ""
	case dir == "" && os.Geteuid() == 0:
		dir = "/var/cache/badged-pgtest" // Postgres runs as another user, who may not enter root's own directory
	case dir == "":
		dir = filepath.Join(base, "badged-pgtest")
	}
	sources = Hash(source.Path("internal/devtest/pgtest"), source.Path("internal/pg/embedpg"))
	if sources == "" || os.MkdirAll(dir, 0o755) != nil { //nolint:gosec // as above
		return "", ""
	}
	return dir, sources
}

// cached returns the cluster in the cache in which the template is built. If there is none, it
// makes the cluster. Without a cache, it returns "". The cluster is not removed before unlock is
// called.
func cached(ctx context.Context, version string, template Template) (cluster string, unlock func(), err error) {
	dir, sources := openCache()
	if dir == "" {
		return "", func() {}, nil
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %d %q", version, sources, template.Name, template.Count, template.Version))
	cluster = filepath.Join(dir, hex.EncodeToString(sum[:16]))
	lock, err := lockCluster(cluster, syscall.LOCK_SH)
	if err != nil {
		return "", nil, fmt.Errorf("the cache of clusters: %w: remove it, or turn it off with %s=off", err, cacheVariable)
	}
	unlock = func() { _ = lock.Close() } // the file was only read, so an error does not matter
	if !exists(cluster) {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
		if err == nil && !exists(cluster) { // another process may have been faster
			err = makeCluster(ctx, cluster, template)
			prune(dir)
		}
	}
	now := time.Now()
	if err = errors.Join(err, os.Chtimes(cluster, now, now)); err != nil {
		unlock()
		return "", nil, err
	}
	return cluster, unlock, nil
}

// prune removes the clusters that were not used for the longest time. It does not remove a cluster
// that is in use, and ignores errors.
func prune(dir string) {
	entries, _ := os.ReadDir(dir)
	var used []fs.FileInfo
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && info.IsDir() {
			used = append(used, info)
		}
	}
	slices.SortFunc(used, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for _, info := range used[min(len(used), cachedClusters):] {
		cluster := filepath.Join(dir, info.Name())
		if lock, err := lockCluster(cluster, syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			_ = os.RemoveAll(cluster)
			_ = lock.Close()
		}
	}
}

// makeCluster makes a cluster in which the template is built. The cluster gets its final name when
// it is complete.
func makeCluster(ctx context.Context, cluster string, template Template) error {
	settings := Settings()
	settings["wal_recycle"] = "off" // copies of the cluster need no recycled WAL segments
	settings["fsync"] = "off"
	making := filepath.Join(filepath.Dir(cluster), "new-"+rand.Text())
	defer func() { _ = os.RemoveAll(making) }()
	pg, err := embedpg.Start(ctx, embedpg.Config{DataDir: making, Settings: settings})
	if err != nil {
		return err
	}
	s := &Server{Server: pg, templates: make(map[string]*built)}
	if template.Name != "" {
		_, err = s.build(ctx, template)
	}
	if err = errors.Join(err, s.stop()); err != nil { //nolint:contextcheck // it must stop also when ctx is done
		return err
	}
	return os.Rename(filepath.Join(making, "pgdata"), cluster)
}

// lockCluster locks a cluster, which need not exist. All clusters whose names begin with the same
// character share a lock file, since lock files are never removed. Closing the returned file
// unlocks the cluster.
func lockCluster(cluster string, how int) (*os.File, error) {
	dir, name := filepath.Split(cluster)
	f, err := os.OpenFile(dir+lockPrefix+name[:1], os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), how); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	return f, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
