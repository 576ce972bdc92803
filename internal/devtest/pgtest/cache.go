package pgtest

import (
	"cmp"
	"context"
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
	"github.com/badged/badged/internal/embedpg"
)

// The cache has clusters in which a template is built, for all packages and later runs:
// copying one takes a tenth of the processor time of initdb and migrations. Each is in a
// directory of its own, named by a hash of what it is made from, which is locked while it
// is made, copied or removed.
const (
	// cacheVariable turns the cache off if it is "off", for tests of code that differs
	// from the files of the repository.
	cacheVariable = "PGTEST_CACHE"
	// cachedClusters is how many clusters of some 50 MB are kept. A run of all tests
	// uses eleven, two of them of the program that it builds.
	cachedClusters = 20
	clusterName    = "cluster"
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

// cache is the cache of the user.
type cache struct {
	// dir is its directory; empty without a cache.
	dir string
	// sources is a hash of the code that makes clusters.
	sources string
}

// openCache opens the cache. A user without a directory for it has none.
func openCache() cache {
	base, err := os.UserCacheDir()
	if err != nil || os.Getenv(cacheVariable) == "off" {
		return cache{}
	}
	sources := Hash(source.Path("internal/devtest/pgtest"), source.Path("internal/embedpg"))
	dir := filepath.Join(base, "badged-pgtest")
	if sources == "" || os.MkdirAll(dir, 0o700) != nil {
		return cache{}
	}
	// The variables may be those of another user, as with sudo.
	if info, err := os.Stat(dir); err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		return cache{}
	}
	return cache{dir, sources}
}

// find returns the directory of a cluster in which templates are built, or makes it; see
// [embedpg.Seed].
func (c cache) find(ctx context.Context, version string, templates Templates) (dir string, release func(), err error) {
	if c.dir == "" {
		return "", nil, nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("the cache of clusters %s: %w: remove it, or turn it off with %s=off", c.dir, err, cacheVariable)
		}
	}()
	name := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %d %q", version, c.sources, templates.Name, templates.Count, templates.Version))
	entry := filepath.Join(c.dir, hex.EncodeToString(name[:16]))
	lock, err := lockEntry(entry, syscall.LOCK_SH)
	if err != nil {
		return "", nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.Close())
		}
	}()
	dir = filepath.Join(entry, clusterName)
	if !exists(dir) {
		// Another process may make it, or remove the entry, before the lock is ours alone.
		if err := lock.Close(); err != nil {
			return "", nil, err
		}
		if lock, err = lockEntry(entry, syscall.LOCK_EX); err != nil {
			return "", nil, err
		}
		if !exists(dir) {
			if err := makeCluster(ctx, dir, templates); err != nil {
				return "", nil, err
			}
			c.prune()
		}
	}
	now := time.Now()
	if err := os.Chtimes(entry, now, now); err != nil {
		return "", nil, err
	}
	return dir, func() { _ = lock.Close() }, nil // it is only read
}

// forget removes a cluster that does not start.
func (c cache) forget(dir string) error {
	entry := filepath.Dir(dir)
	lock, err := lockEntry(entry, syscall.LOCK_EX)
	if err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(entry), lock.Close())
}

// prune removes the clusters that were not used for the longest time, unless they are used
// now. One that cannot be removed is left.
func (c cache) prune() {
	entries, _ := os.ReadDir(c.dir)
	var used []fs.FileInfo
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			used = append(used, info)
		}
	}
	slices.SortFunc(used, func(a, b fs.FileInfo) int { return cmp.Compare(b.ModTime().UnixNano(), a.ModTime().UnixNano()) })
	for _, info := range used[min(len(used), cachedClusters):] {
		entry := filepath.Join(c.dir, info.Name())
		if lock, err := lockEntry(entry, syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			_ = os.RemoveAll(entry)
			_ = lock.Close()
		}
	}
}

// makeCluster makes a cluster in which templates are built.
func makeCluster(ctx context.Context, dir string, templates Templates) (err error) {
	settings := Settings()
	settings["wal_recycle"] = "off" // segments for later use need not be copied
	pg, err := embedpg.Start(ctx, embedpg.Config{Settings: settings})
	if err != nil {
		return err
	}
	s := &Server{Server: pg, templates: make(map[string]*build)}
	if templates.Name != "" {
		if _, err := s.template(ctx, templates); err != nil {
			return errors.Join(err, s.stop()) //nolint:contextcheck // it must stop also when ctx is done
		}
	}
	making := dir + ".new"
	if err := os.RemoveAll(making); err != nil { // of a process that was killed
		return errors.Join(err, s.stop()) //nolint:contextcheck // as above
	}
	if err := s.Save(ctx, making); err != nil {
		return err
	}
	return os.Rename(making, dir)
}

// lockEntry makes an entry unless it exists, and locks it: closing the file unlocks it.
func lockEntry(entry string, how int) (*os.File, error) {
	for {
		if err := os.MkdirAll(entry, 0o700); err != nil {
			return nil, err
		}
		f, err := os.Open(entry) //nolint:gosec // in the directory of the cache
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(f.Fd()), how); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", entry, err), f.Close())
		}
		locked, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if there, err := os.Lstat(entry); err == nil && os.SameFile(locked, there) {
			return f, nil
		}
		if err := f.Close(); err != nil { // it was removed before it was locked
			return nil, err
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
