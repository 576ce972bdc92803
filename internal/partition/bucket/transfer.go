package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/partition/archive"
)

const (
	// attempts is how often Read tries to resume at the same byte before it returns an error.
	attempts = 5
	// pause is the pause before the first attempt to resume a broken read. It doubles before each
	// further attempt.
	pause = 100 * time.Millisecond
	// partSize is the size in bytes of one part of an upload. A part is buffered in memory. S3
	// accepts 10,000 parts, so a file may have about 156 GiB.
	partSize = 16 << 20
)

// reader reads an object. If the connection breaks, it requests the rest of the same version of
// the object.
type reader struct {
	ctx  context.Context
	b    *Bucket
	name string
	etag string
	// offset is the number of bytes that were read so far. size is the size of the object in bytes.
	offset, size int64
	body         io.ReadCloser // nil after the connection broke
}

func (b *Bucket) open(ctx context.Context, name string) (*reader, error) {
	r := &reader{ctx: ctx, b: b, name: name}
	if err := r.request(); err != nil {
		return nil, err
	}
	return r, nil
}

// request requests the object from byte r.offset on. It fails if the object has changed since the
// first request.
func (r *reader) request() error {
	var opts minio.GetObjectOptions
	if r.offset > 0 {
		if err := errors.Join(opts.SetRange(r.offset, 0), opts.SetMatchETag(r.etag)); err != nil {
			return err
		}
	}
	body, info, _, err := r.b.core.GetObject(r.ctx, r.b.name, r.b.key(r.name), opts)
	if err != nil {
		if isRefusedByCondition(err) {
			return fmt.Errorf("%s changed while it was read", r.b.Path(r.name))
		}
		if err = r.b.explain(err); errors.Is(err, fs.ErrNotExist) {
			return &fs.PathError{Op: "read", Path: r.b.Path(r.name), Err: fs.ErrNotExist}
		}
		return fmt.Errorf("read %s: %w", r.b.Path(r.name), err)
	}
	r.body, r.etag = body, info.ETag
	if r.offset == 0 {
		r.size = info.Size
	}
	return nil
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	for attempt := 0; ; attempt++ {
		err := context.Cause(r.ctx)
		if err != nil {
			return 0, err
		}
		if r.offset == r.size {
			return 0, io.EOF
		}
		if r.body == nil {
			err = r.request()
		}
		if err == nil {
			var n int
			n, err = r.body.Read(p)
			r.offset += int64(n)
			if n > 0 {
				if err != nil {
					r.drop()
				}
				return n, nil
			}
		}
		r.drop()
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if attempt == attempts {
			return 0, fmt.Errorf("read %s: cut at byte %d of %d, and %d attempts to resume failed: %w", r.b.Path(r.name), r.offset, r.size, attempts, err)
		}
		_ = wait.For(r.ctx, pause<<attempt)
	}
}

func (r *reader) drop() {
	if r.body != nil {
		_ = r.body.Close() // the body is of no use any more
		r.body = nil
	}
}

// Close implements io.Closer.
func (r *reader) Close() error {
	r.drop()
	return nil
}

// writer uploads an object while it is written.
type writer struct {
	pipe   *io.PipeWriter
	cancel context.CancelFunc
	// err is the result of the upload. It may be read only after `done` is closed.
	err  error
	done chan struct{}
}

// errAborted is the error with which Abort makes an upload fail.
var errAborted = errors.New("aborted")

// Create implements archive.Store. Readers see the object only when the upload is complete. Create
// first deletes the uploaded parts of an incomplete upload with this name: a killed process may
// have left them.
func (b *Bucket) Create(ctx context.Context, name string) (archive.Writer, error) {
	// Ignore the error: some credentials do not permit the deletion, and readers do not see parts.
	_ = b.client.RemoveIncompleteUpload(ctx, b.name, b.key(name))
	ctx, cancel := context.WithCancel(ctx)
	from, to := io.Pipe()
	w := &writer{pipe: to, done: make(chan struct{}), cancel: cancel}
	go func() {
		_, err := b.client.PutObject(ctx, b.name, b.key(name), from, -1, minio.PutObjectOptions{
			PartSize: partSize, ContentType: "application/octet-stream",
		})
		if err != nil {
			err = fmt.Errorf("write %s: %w", b.Path(name), b.explain(err))
		}
		_ = from.CloseWithError(err) // makes the next write to the pipe fail
		w.err = err
		close(w.done)
	}()
	return w, nil
}

func (w *writer) Write(p []byte) (int, error) { return w.pipe.Write(p) }

// Commit implements archive.Writer.
func (w *writer) Commit() error {
	defer w.cancel()
	_ = w.pipe.Close() // always nil
	<-w.done
	return w.err
}

// Abort implements archive.Writer.
func (w *writer) Abort() {
	_ = w.pipe.CloseWithError(errAborted) // always nil
	<-w.done
	w.cancel()
}
