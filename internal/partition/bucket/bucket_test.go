package bucket

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/badged/badged/internal/devtest/privates3"
	"github.com/badged/badged/internal/partition/archive"
)

// serve starts a server with the bucket "archives", sets the environment for it, and
// returns a proxy in front of it.
func serve(t *testing.T) *proxy {
	t.Helper()
	s := privates3.Start(t, "archives")
	for _, setting := range s.Env() {
		name, value, _ := strings.Cut(setting, "=")
		t.Setenv(name, value)
	}
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{to: httputil.NewSingleHostReverseProxy(target), dir: filepath.Join(s.Dir, "archives")}
	// The signature is of the host that the client named.
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	t.Setenv("AWS_ENDPOINT_URL", server.URL)
	return p
}

// proxy passes requests on, unless breaks says otherwise.
type proxy struct {
	to *httputil.ReverseProxy
	// dir has the files of the bucket.
	dir string
	// breaks, if not nil, may answer a request, and then reports true.
	breaks atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if breaks := p.breaks.Load(); breaks != nil && (*breaks)(w, r) {
		return
	}
	p.to.ServeHTTP(w, r)
}

func (p *proxy) breakWith(f func(http.ResponseWriter, *http.Request) bool) { p.breaks.Store(&f) }

func open(t *testing.T, location string) archive.Store {
	t.Helper()
	s, err := Store(location)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// put writes an object.
func put(t *testing.T, s archive.Store, name string, content []byte) {
	t.Helper()
	w, err := s.Create(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
}

// get reads an object.
func get(ctx context.Context, s archive.Store, name string) ([]byte, error) {
	r, err := s.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// Folders and buckets behave the same.
func TestStores(t *testing.T) {
	p := serve(t)
	big := bytes.Repeat([]byte("0123456789abcdef"), partSize/16+1) // two parts
	for _, location := range []string{filepath.Join(t.TempDir(), "a"), "s3://archives", "s3://archives/a/b/"} {
		s := open(t, location)
		l, err := s.Lock(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", location, err)
		}
		if _, err := s.Open(t.Context(), "x"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: what is not there opens with %v", location, err)
		}
		if _, _, err := s.Load(t.Context(), "x"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: what is not there loads with %v", location, err)
		}
		if err := s.Remove(t.Context(), "x"); err != nil {
			t.Errorf("%s: what is not there is removed with %v", location, err)
		}
		for _, content := range [][]byte{nil, []byte("small"), big} {
			w, err := s.Create(t.Context(), "x")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(content); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Open(t.Context(), "x"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: what is being written opens with %v", location, err)
			}
			if err := w.Commit(); err != nil {
				t.Fatal(err)
			}
			if got, err := get(t.Context(), s, "x"); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%s: %d of %d bytes came back, %v", location, len(got), len(content), err)
			}
			if err := s.Remove(t.Context(), "x"); err != nil {
				t.Error(err)
			}
		}
		w, err := s.Create(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("half")); err != nil {
			t.Error(err)
		}
		w.Abort()
		if _, err := s.Open(t.Context(), "x"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: what was aborted opens with %v", location, err)
		}
		one, err := s.Save(t.Context(), "m", []byte("one"), "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Save(t.Context(), "m", []byte("two"), one); err != nil {
			t.Error(err)
		}
		if content, _, err := s.Load(t.Context(), "m"); string(content) != "two" || err != nil {
			t.Errorf("%s: loaded %s, %v", location, content, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(p.dir, "a/b/*")); len(left) != 2 {
		t.Errorf("the prefix has %v, of a manifest and the probe", left)
	}
}

// Two who add to the same archive notice each other: the second Add is refused.
func TestOthersAreNoticed(t *testing.T) {
	serve(t)
	s := open(t, "s3://archives/log")
	id := uuid.New()
	if _, err := archive.Create(t.Context(), s, id, 4); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Create(t.Context(), s, id, 4); !errors.Is(err, fs.ErrExist) {
		t.Errorf("it begins anew with %v", err)
	}
	a, err := archive.Continue(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	b, err := archive.Continue(t.Context(), open(t, "s3://archives/log"))
	if err != nil {
		t.Fatal(err)
	}
	none := func(func(*archive.Record) error) error { return nil }
	f, err := a.Write(t.Context(), 0, 1, none)
	if err == nil {
		err = a.Add(t.Context(), f)
	}
	if err != nil {
		t.Fatal(err)
	}
	if f, err = b.Write(t.Context(), 1, 1, none); err != nil {
		t.Fatal(err)
	}
	if err := b.Add(t.Context(), f); !errors.Is(err, archive.ErrInUse) {
		t.Errorf("the second adds with %v", err)
	}
	if c, err := archive.OpenStore(t.Context(), s); err != nil || len(c.Files(0)) != 1 || len(c.Files(1)) != 0 {
		t.Errorf("the archive is %+v, %v", c, err)
	}
}

// A read resumes where the connection broke, and a write succeeds even if its response is lost. If
// the connection stays broken, the error says how much was read.
func TestCutLinks(t *testing.T) {
	p := serve(t)
	s := open(t, "s3://archives")
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	put(t, s, "x", content)

	var cuts atomic.Int32
	cut := func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		recorded := httptest.NewRecorder()
		p.to.ServeHTTP(recorded, r)
		for name, values := range recorded.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(recorded.Code)
		body := recorded.Body.Bytes()
		if cuts.Add(1) < 4 {
			body = body[:len(body)/3]
		}
		_, _ = w.Write(body) // fewer than announced: the server closes the connection
		return true
	}
	p.breakWith(cut)
	if got, err := get(t.Context(), s, "x"); err != nil || !bytes.Equal(got, content) || cuts.Load() != 4 {
		t.Errorf("%d of %d bytes over %d links, %v", len(got), len(content), cuts.Load(), err)
	}

	p.breakWith(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Range") != "" {
			panic(http.ErrAbortHandler)
		}
		cuts.Store(0)
		return cut(w, r)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := get(ctx, s, "x"); err == nil || !strings.Contains(err.Error(), "s3://archives/x: cut at byte ") {
		t.Errorf("a link that stays down ends with %v", err)
	}

	var lost atomic.Bool
	p.breakWith(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut || lost.Swap(true) {
			return false
		}
		p.to.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	})
	if _, err := s.Save(t.Context(), "m", []byte("one"), ""); err != nil || !lost.Load() {
		t.Errorf("an answer that was lost ends with %v", err)
	}
}

// A half upload is never visible, and the next attempt removes its parts.
func TestHalfUpload(t *testing.T) {
	p := serve(t)
	s := open(t, "s3://archives")
	parts := func() int {
		n := 0
		for u := range s.(*Bucket).client.ListIncompleteUploads(t.Context(), "archives", "x", true) {
			if u.Err != nil {
				t.Fatal(u.Err)
			}
			n++
		}
		return n
	}
	// As if the process were killed: nothing aborts the upload.
	p.breakWith(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete || r.Method == http.MethodPost && r.URL.Query().Has("uploadId") {
			panic(http.ErrAbortHandler)
		}
		return false
	})
	ctx, cancel := context.WithCancel(t.Context())
	w, err := s.Create(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 2*partSize)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := w.Commit(); err == nil {
		t.Fatal("half of it is committed")
	}
	p.breaks.Store(nil)
	if _, err := s.Open(t.Context(), "x"); !errors.Is(err, fs.ErrNotExist) || parts() != 1 {
		t.Errorf("half of it opens with %v, in %d uploads", err, parts())
	}
	put(t, s, "x", []byte("whole"))
	if got, err := get(t.Context(), s, "x"); string(got) != "whole" || err != nil || parts() != 0 {
		t.Errorf("then it is %s, %v, and %d uploads are left", got, err, parts())
	}
}

// Wrong settings are refused by name.
func TestRefusals(t *testing.T) {
	serve(t)
	for location, says := range map[string]string{
		"s3://":                  `"" is not the name of a bucket`,
		"s3://Archives/x":        `"Archives" is not the name of a bucket`,
		"gs://archives":          `an archive is a folder or s3://bucket/prefix, without user, query or fragment; is "gs://archives"`,
		"s3://me:pw@archives":    "without user",
		"s3://archives/a?x=1":    "without user, query",
		"https://host/archives/": "an archive is a folder or s3://",
	} {
		if err := Check(location); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", location, err)
		}
	}
	lock := func(location string) error {
		_, err := open(t, location).Lock(t.Context())
		return err
	}
	for _, tc := range []struct{ name, value, location, says string }{
		{"AWS_REGION", "us-east-1", "s3://absent/log", `write to s3://absent/log: the bucket "absent" does not exist: create it`},
		{"AWS_ACCESS_KEY_ID", "someone", "s3://archives", "the storage answers "},
		{"AWS_SECRET_ACCESS_KEY", "wrong", "s3://archives", "the storage refuses the credentials (SignatureDoesNotMatch)"},
	} {
		t.Run(tc.says, func(t *testing.T) {
			t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
			t.Setenv(tc.name, tc.value)
			if err := lock(tc.location); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("it ends with %v", err)
			}
			if _, err := archive.OpenStore(t.Context(), open(t, tc.location)); err == nil || !strings.Contains(err.Error(), tc.says[strings.Index(tc.says, "the "):]) {
				t.Errorf("reading ends with %v", err)
			}
		})
	}
	t.Setenv("AWS_ENDPOINT_URL", "storage.example")
	if _, err := Store("s3://archives"); err == nil || !strings.Contains(err.Error(), `must be like https://storage.example:9000, is "storage.example"`) {
		t.Errorf("an endpoint without a scheme: %v", err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	if _, err := Store("s3://archives"); err == nil || !strings.Contains(err.Error(), "AWS_ENDPOINT_URL") {
		t.Errorf("an endpoint without a scheme: %v", err)
	}
	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
	if _, err := Store("s3://archives"); err == nil || !strings.Contains(err.Error(), "set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or neither") {
		t.Errorf("half of the credentials: %v", err)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	if err := lock("s3://archives"); err == nil || !strings.Contains(err.Error(), "there are no credentials for the storage: set AWS_ACCESS_KEY_ID") {
		t.Errorf("no credentials: %v", err)
	}
}

// Storage that ignores conditions is refused: two who add would not notice each other.
func TestConditionsAreProbed(t *testing.T) {
	p := serve(t)
	p.breakWith(func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("ETag", `"0"`)
		w.WriteHeader(http.StatusOK)
		return true
	})
	if _, err := open(t, "s3://archives").Lock(t.Context()); err == nil || !strings.Contains(err.Error(), "does not support conditional writes") {
		t.Errorf("it ends with %v", err)
	}
}
