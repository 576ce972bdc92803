package wait

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Files watches small files that may change while the process runs. It reads them at intervals,
// because file notifications work neither on network file systems nor for symbolic links that
// Kubernetes replaces. Files is safe for concurrent use.
type Files struct {
	Paths []string
	// Interval is the time between two reads. A change is used only after two reads in a row have
	// returned the same contents: a file that is just being written may look valid although its end
	// is still missing.
	Interval time.Duration
	// Use is called after each change, with the contents of the files, or with the error if they
	// cannot be read. If Use returns an error, it is called again after the duration Retry, unless
	// Retry is 0.
	Use   func(ctx context.Context, contents [][]byte, err error) error
	Retry time.Duration

	// mu guards the fields below, and is locked while Use runs.
	mu      sync.Mutex
	last    look
	used    look
	retryAt time.Time
	// lookedAt is the time of the last read. differs is true if the result of that read differs
	// from the field `used`.
	lookedAt atomic.Pointer[time.Time]
	differs  atomic.Bool
}

// look is the result of reading the files once.
type look struct {
	contents [][]byte
	err      error
}

func (l look) equals(other look) bool {
	return fmt.Sprint(l.err) == fmt.Sprint(other.err) && slices.EqualFunc(l.contents, other.contents, bytes.Equal)
}

// Read reads the files and returns their contents. Use is not called for these contents.
func (f *Files) Read() (contents [][]byte, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look()
	f.used = f.last
	f.differs.Store(false)
	return f.used.contents, f.used.err
}

// Reload reads the files and calls Use, even if the files have not changed.
func (f *Files) Reload(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look()
	f.use(ctx)
}

// Run calls Look at intervals until ctx is done, and returns nil.
func (f *Files) Run(ctx context.Context) error { return Every(ctx, f.Interval, f.Look) }

// Look reads the files once. It calls Use if the files differ from the contents that were used
// last, or if a retry is due, but only if this read and the read before have the same result.
func (f *Files) Look(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.last
	f.look()
	isDue := f.differs.Load() || !f.retryAt.IsZero() && !time.Now().Before(f.retryAt)
	if isDue && f.last.equals(before) {
		f.use(ctx)
	}
}

// Changing reports whether the files differ from the contents that were used last. If the last read
// is older than two intervals, for example because the process was suspended, Changing reads the
// files first. It must not be called before Read or Look.
func (f *Files) Changing() bool {
	if time.Since(*f.lookedAt.Load()) > 2*f.Interval {
		f.mu.Lock()
		f.look()
		f.mu.Unlock()
	}
	return f.differs.Load()
}

// look reads the files and stores the result. The caller must hold mu.
func (f *Files) look() {
	f.last = look{}
	for _, path := range f.Paths {
		content, err := read(path)
		if err != nil {
			f.last = look{err: err}
			break
		}
		f.last.contents = append(f.last.contents, content)
	}
	at := time.Now() // monotonic
	f.lookedAt.Store(&at)
	f.differs.Store(!f.last.equals(f.used))
}

// maxFile is the maximum size of a file in bytes.
const maxFile = 1 << 20

func read(path string) ([]byte, error) {
	file, err := os.Open(path) //nolint:gosec // G304: the operator names it
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", path, err)
	case len(content) > maxFile:
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return content, nil
}

// use calls Use with the result of the last read. The caller must hold mu.
func (f *Files) use(ctx context.Context) {
	f.used, f.retryAt = f.last, time.Time{}
	if err := f.Use(ctx, f.used.contents, f.used.err); err != nil && f.Retry > 0 {
		f.retryAt = time.Now().Add(f.Retry)
	}
	f.differs.Store(false)
}
