package traffic

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func compressed(t *testing.T, suffix, content string) string {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch suffix {
	case ".gz":
		w = gzip.NewWriter(&b)
	case ".zst":
		var err error
		if w, err = zstd.NewWriter(&b); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(w, content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestSource(t *testing.T) {
	content := chatter(5000)
	gz, zst := compressed(t, ".gz", content), compressed(t, ".zst", content)
	for _, tt := range []struct {
		name, file, stored string
	}{
		{"plain", "t.txt", content},
		{"gzip", "t.txt.gz", gz},
		{"gzip in two members", "t.gz", compressed(t, ".gz", content[:999]) + compressed(t, ".gz", content[999:])},
		{"zstd", "t.txt.zst", zst},
	} {
		t.Run(tt.name, func(t *testing.T) {
			src, err := OpenFile(t.Context(), writeFile(t, tt.file, tt.stored), nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(src)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != content {
				t.Errorf("read %d bytes, want the %d written", len(got), len(content))
			}
			if n := int64(len(tt.stored)); src.Size != n || src.Offset() != n {
				t.Errorf("read %d of %d bytes, want all %d", src.Offset(), src.Size, n)
			}
			if err := src.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	for _, tt := range []struct {
		name, file, stored, want string
	}{
		{"gzip cut short", "t.gz", gz[:len(gz)/2], "the compressed data ends too early"},
		{"zstd cut short", "t.zst", zst[:len(zst)/2], "the compressed data ends too early"},
		{"not gzip", "t.gz", content, "gzip: invalid header"},
		{"not zstd", "t.zst", content, "magic number mismatch"},
		{"empty gzip", "t.gz", "", "there is no traffic in it"},
		{"empty zstd", "t.zst", "", "there is no traffic in it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := writeFile(t, tt.file, tt.stored)
			_, err := Load(t.Context(), Config{File: path, Target: newModel()})
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error is %v, want one about %s with: %s", err, path, tt.want)
			}
		})
	}
}

func TestSourceThatCannotBeOpened(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	if _, err := OpenFile(t.Context(), missing, nil); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), missing) {
		t.Errorf("error is %v", err)
	}
	if _, err := OpenFile(t.Context(), t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("error is %v", err)
	}
}

func TestSourceStdinTellsTheSizeOfAFile(t *testing.T) {
	f, err := os.Open(writeFile(t, "t", "a b 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	src, err := OpenFile(t.Context(), "-", f)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(src)
	if err != nil || string(got) != "a b 1\n" || src.Size != 6 {
		t.Errorf("read %q of %d bytes, %v", got, src.Size, err)
	}
	if err := src.Close(); err != nil {
		t.Error(err)
	}
}

func TestSourceReadsEndWithTheContext(t *testing.T) {
	silent, writer := io.Pipe()
	defer func() { _ = writer.Close() }()
	checkReadEnds(t, "-", silent)
}

// checkReadEnds checks that a read that waits for data ends with its context.
func checkReadEnds(t *testing.T, path string, stdin io.Reader) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	src, err := OpenFile(ctx, path, stdin)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := src.Read(make([]byte, 1))
		failed <- err
	}()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	if err := src.Close(); err != nil {
		t.Error(err)
	}
}
