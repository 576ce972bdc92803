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

// The cache has clusters in which a template is built, for all packages and later runs:
// copying one takes a tenth of the processor time of initdb and migrations. Each is a
// directory that is named by a hash of what it is made from.
const (
	// cacheVariable names the directory of the cache, or turns it off if it is "off",
	// for tests of code that differs from the files of the repository.
	cacheVariable = "PGTEST_CACHE"
	// cachedClusters is how many clusters of some 50 MB are kept. A run of all tests
	// uses eleven, two of them of the program that it builds.
	cachedClusters = 20
	lockPrefix     = "lock-"
)

// Hash returns a hash of files, and of those in folders, for the Version of a template;
// empty if one cannot be read.
func Hash(paths ...string) string {
	sum := sha256.New()
	for _, path := range paths {
		err := filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path) //nolint:gosec // the tests name it
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

// openCache returns the directory of the cache, and a hash of the code that makes clusters.
// The directory is empty if there is no cache.
func openCache() (dir, sources string) {
	dir = os.Getenv(cacheVariable)
	switch base, err := os.UserCacheDir(); {
	case dir == "off", dir == "" && os.Geteuid() != 0 && err != nil:
		return "", ""
	case dir == "" && os.Geteuid() == 0:
		dir = "/var/cache/badged-pgtest" // Postgres runs as another user, who may not enter that of root
	case dir == "":
		dir = filepath.Join(base, "badged-pgtest")
	}
	sources = Hash(source.Path("internal/devtest/pgtest"), source.Path("internal/pg/embedpg"))
	if sources == "" || os.MkdirAll(dir, 0o755) != nil { //nolint:gosec // as above
		return "", ""
	}
	return dir, sources
}

// cached returns a cluster in which a template is built, or makes it; empty without a
// cache. It is not removed before unlock is called.
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
	unlock = func() { _ = lock.Close() } // it is only read
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

// prune removes the clusters that were not used for the longest time, unless they are used
// now. One that cannot be removed is left.
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

// makeCluster makes a cluster in which a template is built. Until it is complete it has
// another name.
func makeCluster(ctx context.Context, cluster string, template Template) error {
	settings := Settings()
	settings["wal_recycle"] = "off" // segments for later use need not be copied
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

// lockCluster locks a cluster that may be missing, with others whose names begin alike:
// files of locks are few and stay. Closing the file unlocks it.
func lockCluster(cluster string, how int) (*os.File, error) {
	dir, name := filepath.Split(cluster)
	f, err := os.OpenFile(dir+lockPrefix+name[:1], os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // in the directory of the cache
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
