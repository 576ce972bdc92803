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

// Files watches small files that may change while the process runs. It polls them, which also
// works where file notifications do not: on network file systems, and for the symbolic links
// that Kubernetes replaces. It is safe for concurrent use.
type Files struct {
	Paths []string
	// Interval is the time between two reads. Changed contents are used only when two reads
	// in a row return the same, since a file that is being written in place may be valid
	// while its end is still missing.
	Interval time.Duration
	// Use is called after each change with the contents of the files, or with the error of
	// reading them. If Use fails, it is called again after Retry; never if Retry is 0.
	Use   func(ctx context.Context, contents [][]byte, err error) error
	Retry time.Duration

	// mu guards the fields below, and is locked while Use runs.
	mu      sync.Mutex
	last    look
	used    look
	retryAt time.Time
	// lookedAt is when last was read. differs is true if last is not equal to used.
	lookedAt atomic.Pointer[time.Time]
	differs  atomic.Bool
}

// look is the result of reading the files once.
type look struct {
	contents [][]byte
	err      error
}

func (l look) is(other look) bool {
	return fmt.Sprint(l.err) == fmt.Sprint(other.err) && slices.EqualFunc(l.contents, other.contents, bytes.Equal)
}

// Read reads the files and returns their contents. It records them as used, so Use is not
// called for them.
func (f *Files) Read() (contents [][]byte, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look()
	f.used = f.last
	f.differs.Store(false)
	return f.used.contents, f.used.err
}

// Reload reads the files and calls Use at once, even if they have not changed.
func (f *Files) Reload(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look()
	f.use(ctx)
}

// Run calls Look at intervals until ctx is done, and returns nil.
func (f *Files) Run(ctx context.Context) error { return Every(ctx, f.Interval, f.Look) }

// Look reads the files once, and calls Use if a change was confirmed or a retry is due.
func (f *Files) Look(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.last
	f.look()
	isDue := f.differs.Load() || !f.retryAt.IsZero() && !time.Now().Before(f.retryAt)
	if isDue && f.last.is(before) {
		f.use(ctx)
	}
}

// Changing reports whether the files differ from the contents that were used last. It reads
// the files first if the last read is older than two intervals, as after the process was
// stopped for a while. Call Read or Look before the first call.
func (f *Files) Changing() bool {
	if time.Since(*f.lookedAt.Load()) > 2*f.Interval {
		f.mu.Lock()
		f.look()
		f.mu.Unlock()
	}
	return f.differs.Load()
}

// look reads the files. The caller holds the mutex.
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
	f.differs.Store(!f.last.is(f.used))
}

// maxFile is the largest size of a file in bytes.
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

// use calls Use with the result of the last read. The caller holds the mutex.
func (f *Files) use(ctx context.Context) {
	f.used, f.retryAt = f.last, time.Time{}
	if err := f.Use(ctx, f.used.contents, f.used.err); err != nil && f.Retry > 0 {
		f.retryAt = time.Now().Add(f.Retry)
	}
	f.differs.Store(false)
}
