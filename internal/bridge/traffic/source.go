package traffic

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"
)

// stdinPath is the path that means standard input.
const stdinPath = "-"

// nameOf returns the name of the file at path in messages.
func nameOf(path string) string {
	if path == stdinPath {
		return "standard input"
	}
	return path
}

// maxZstdWindow bounds the memory of decompression. It is the window size that `zstd --long` writes
// and that `zstd -d` accepts by default.
const maxZstdWindow = 128 << 20

// File is an open file. Read returns its decompressed bytes.
type File struct {
	// Name is the file's name in messages.
	Name string
	// Size is the size of the stored file in bytes; 0 if unknown, for example for a pipe.
	Size int64

	stored  storedReader
	content io.Reader
	closers []func() error
}

// OpenFile opens the file at path, or stdin if path is "-". It decompresses files whose names end
// in .gz or .zst. When ctx is done, reads fail with the error of ctx, even a read that is blocked
// on a pipe.
func OpenFile(ctx context.Context, path string, stdin io.Reader) (_ *File, err error) {
	s := &File{Name: nameOf(path), stored: storedReader{ended: ctx.Err}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if path == stdinPath {
		s.openStdin(ctx, stdin)
	} else if err := s.openFile(ctx, path); err != nil {
		return nil, err
	}
	if err := s.decompress(filepath.Ext(path)); err != nil {
		return nil, fmt.Errorf("read %s: %w", s.Name, err)
	}
	return s, nil
}

func (s *File) openFile(ctx context.Context, path string) error {
	f, err := os.Open(path) //nolint:gosec // the file that the user named
	if err != nil {
		return fmt.Errorf("open the file: %w", err)
	}
	s.closers = append(s.closers, ignoreClosed(f.Close))
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("open the file: %w", err)
	}
	if info.IsDir() {
		return fmt.Errorf("open the file: %s is a directory", path)
	}
	if info.Mode().IsRegular() {
		s.Size = info.Size()
	}
	stop := context.AfterFunc(ctx, func() { _ = f.Close() }) // unblocks a read of a pipe
	s.closers = append(s.closers, func() error { stop(); return nil })
	s.stored.r = f
	return nil
}

// openStdin reads stdin in a goroutine, because a read from a terminal cannot be canceled. When ctx
// is done, the goroutine continues to run until its read of stdin returns.
func (s *File) openStdin(ctx context.Context, stdin io.Reader) {
	if f, ok := stdin.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			s.Size = info.Size()
		}
	}
	out, in := io.Pipe()
	go func() {
		_, err := io.Copy(in, stdin)
		_ = in.CloseWithError(err)
	}()
	stop := context.AfterFunc(ctx, func() { _ = out.CloseWithError(ctx.Err()) })
	s.closers = append(s.closers, out.Close, func() error { stop(); return nil })
	s.stored.r = out
}

// decompress sets content, with a decompressor chosen by the file's suffix.
func (s *File) decompress(suffix string) error {
	switch suffix {
	case ".gz":
		z, err := gzip.NewReader(bufio.NewReader(&s.stored))
		if errors.Is(err, io.EOF) {
			return errEmpty
		}
		if err != nil {
			return describeRead(err)
		}
		s.content = z
		s.closers = append(s.closers, z.Close)
	case ".zst":
		z, err := zstd.NewReader(&s.stored, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return err
		}
		s.content = z
		s.closers = append(s.closers, func() error { z.Close(); return nil })
	default:
		s.content = &s.stored
	}
	return nil
}

// Read reads the decompressed file.
func (s *File) Read(p []byte) (int, error) {
	n, err := s.content.Read(p)
	return n, describeRead(err)
}

// Offset returns how many bytes of the stored file have been read.
func (s *File) Offset() int64 { return s.stored.n.Load() }

// Close closes the decompressor and then the file.
func (s *File) Close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.closers = nil
	return errors.Join(errs...)
}

// describeRead explains the error for compressed data that is incomplete.
func describeRead(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the compressed data ends too early: %w", err)
	}
	return err
}

// storedReader counts the bytes of the stored file.
type storedReader struct {
	r     io.Reader
	ended func() error // the reason why reading was ended, or nil
	n     atomic.Int64
}

func (s *storedReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.n.Add(int64(n))
	if err != nil {
		if ended := s.ended(); ended != nil {
			err = ended // instead of "file already closed"
		}
	}
	return n, err
}

// ignoreClosed returns a function that calls closeFile, and succeeds even if the file is closed
// already.
func ignoreClosed(closeFile func() error) func() error {
	return func() error {
		if err := closeFile(); !errors.Is(err, os.ErrClosed) {
			return err
		}
		return nil
	}
}
