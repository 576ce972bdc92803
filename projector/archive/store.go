package archive

import (
	"context"
	"errors"
	"io"
)

// ErrInUse is returned if another process adds to the archive.
var ErrInUse = errors.New("another process adds to the archive: wait until it has finished, or choose another archive")

// Store holds the objects of an archive by name: files in a folder, or objects in a
// bucket. Its methods may be used concurrently.
type Store interface {
	// Path names an object in messages. Path("") names the store.
	Path(name string) string
	// Lock keeps others from adding to the archive until it is closed, or lets Save
	// notice them. It fails with ErrInUse if another process adds now.
	Lock(ctx context.Context) (io.Closer, error)
	// Open reads an object. The error is fs.ErrNotExist if there is none. Reading
	// fails when ctx is done.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Create begins an object. Committed, it replaces one of that name.
	Create(ctx context.Context, name string) (Writer, error)
	// Remove removes an object, if there is one.
	Remove(ctx context.Context, name string) error
	// Load returns a small object and its version. The error is fs.ErrNotExist if
	// there is none.
	Load(ctx context.Context, name string) (content []byte, version string, err error)
	// Save replaces a small object whose version Load or Save has returned, or ""
	// for a new one, and returns its new version. It fails with ErrInUse if the
	// object has another version by now.
	Save(ctx context.Context, name string, content []byte, version string) (string, error)
}

// Writer writes an object. Exactly one of Commit and Abort must be called.
type Writer interface {
	io.Writer
	// Commit makes the object durable, and lets others see it. Before, they see
	// nothing.
	Commit() error
	// Abort removes what was written.
	Abort()
}

// contextReader reads until a context is done.
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
