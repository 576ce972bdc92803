package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Folder is a Store in a directory: each object is a file. Lock creates the directory if necessary.
type Folder string

// lockName is the name of the file that a writer of the archive locks. A writer does not lock the
// directory itself, since some network file systems can lock only writable files.
const lockName = "lock"

// Path implements Store.
func (dir Folder) Path(name string) string { return filepath.Join(string(dir), name) }

// Lock implements Store. It does not block. The operating system releases the lock when the process
// ends.
func (dir Folder) Lock(context.Context) (io.Closer, error) {
	if err := makeDir(string(dir)); err != nil {
		return nil, fmt.Errorf("create the archive: %w", err)
	}
	f, err := os.OpenFile(dir.Path(lockName), os.O_RDWR|os.O_CREATE, 0o640) //nolint:gosec // as the files of the archive
	if err != nil {
		return nil, fmt.Errorf("lock the archive: %w", err)
	}
	free, err := tryLock(f)
	switch {
	case err != nil:
		err = fmt.Errorf("lock the archive %s: %w", dir, err)
	case !free:
		err = fmt.Errorf("%s: %w", dir, ErrInUse)
	default:
		return f, nil
	}
	return nil, errors.Join(err, f.Close())
}

// partExtension is appended to the name of a file until the file is complete.
const partExtension = ".part"

// makeDir durably creates a directory and its missing parents. It syncs each parent directory, so
// that a power failure cannot remove the new directory.
func makeDir(dir string) error {
	dir = filepath.Clean(dir)
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	parent := filepath.Dir(dir)
	if err := makeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncDir(parent)
}

// Open implements Store.
func (dir Folder) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	f, err := os.Open(dir.Path(name))
	if err != nil {
		return nil, err
	}
	return contextReader{ctx, f}, nil
}

// Create implements Store.
func (dir Folder) Create(_ context.Context, name string) (Writer, error) {
	path := dir.Path(name)
	f, err := os.OpenFile(path+partExtension, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640) //nolint:gosec // a file of the archive
	if err != nil {
		return nil, err
	}
	return &fileWriter{f, path}, nil
}

// fileWriter writes a file with the extension .part. Commit renames the file to path.
type fileWriter struct {
	*os.File
	path string
}

func (w *fileWriter) Commit() error {
	err := errors.Join(w.Chmod(0o640), w.Sync(), w.Close())
	if err == nil {
		err = os.Rename(w.Name(), w.path)
	}
	if err != nil {
		_ = os.Remove(w.Name()) // the first error matters
		return err
	}
	return syncDir(filepath.Dir(w.path))
}

func (w *fileWriter) Abort() {
	_ = w.Close()
	_ = os.Remove(w.Name())
}

// Remove implements Store.
func (dir Folder) Remove(_ context.Context, name string) error {
	if err := os.Remove(dir.Path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return syncDir(string(dir))
}

// Load implements Store. It returns no version, since the lock excludes other writers.
func (dir Folder) Load(_ context.Context, name string) (content []byte, version string, err error) {
	content, err = os.ReadFile(dir.Path(name))
	return content, "", err
}

// Save implements Store.
func (dir Folder) Save(ctx context.Context, name string, content []byte, _ string) (version string, err error) {
	w, err := dir.Create(ctx, name)
	if err != nil {
		return "", err
	}
	if _, err := w.Write(content); err != nil {
		w.Abort()
		return "", err
	}
	return "", w.Commit()
}
