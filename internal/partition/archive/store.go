package archive

import (
	"context"
	"errors"
	"io"
)

// ErrInUse is returned if another process has locked or changed the archive.
var ErrInUse = errors.New("another process adds to the archive: wait until it has finished, or choose another archive")

// Store stores the objects of an archive by name, as files in a folder or as objects in a bucket.
// It is safe for concurrent use.
type Store interface {
	// Path returns the name of an object for messages. Path("") is the name of the store.
	Path(name string) string
	// Lock excludes other writers until the result is closed. It fails with ErrInUse if another
	// writer has the lock. In a store without locks, Lock excludes no writers, and Save detects
	// them instead.
	Lock(ctx context.Context) (io.Closer, error)
	// Open opens an object. The error is fs.ErrNotExist if the object does not exist. Reads
	// fail when ctx is done.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Create starts to write an object. Commit replaces an object with the same name.
	Create(ctx context.Context, name string) (Writer, error)
	// Remove deletes an object if it exists.
	Remove(ctx context.Context, name string) error
	// Load returns a small object and its version. The error is fs.ErrNotExist if the object
	// does not exist.
	Load(ctx context.Context, name string) (content []byte, version string, err error)
	// Save replaces a small object and returns its new version. version is the result of the last
	// Load or Save of the object, or "" for a new object. If the object has another version by
	// now, Save fails with ErrInUse. A store with locks ignores version.
	Save(ctx context.Context, name string, content []byte, version string) (string, error)
}

// Writer writes an object. Exactly one of Commit and Abort must be called.
type Writer interface {
	io.Writer
	// Commit makes the object durable and visible to readers.
	Commit() error
	// Abort discards the object.
	Abort()
}

// contextReader is a reader whose Read fails after its context is done.
type contextReader struct {
	ctx context.Context
	io.ReadCloser
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.ReadCloser.Read(p)
}
