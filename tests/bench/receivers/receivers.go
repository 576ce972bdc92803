// Package receivers has what badged tells beside its sockets: the vendors of pushes,
// with a phone for each user, and the endpoint of a webhook. All of them use TLS and
// check what they get as the real ones do.
package receivers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// AdminKey is the key of an admin that Receiver.Env gives to the server.
const AdminKey = "admin-secret"

// Told is a number that a receiver was told.
type Told struct {
	User    string
	Number  int64
	Version int64
	At      time.Time
}

// Hook is a webhook: Fails is set if its endpoint is to fail each call.
type Hook struct {
	Name, State string
	Batch       int
	Fails       bool
}

// Call makes a request to the server, and fails unless it succeeds.
type Call func(ctx context.Context, method, path, body string) error

// Receiver is a vendor or an endpoint. Its methods are safe for concurrent use.
type Receiver struct {
	// Args are arguments of the server, and Env is for its environment.
	Args, Env []string
	// Register makes the server tell of a user. If AtOnce is set, the first user
	// suffices for all.
	Register func(ctx context.Context, call Call, user string) error
	AtOnce   bool
	// Put stores a webhook; nil for vendors.
	Put func(ctx context.Context, call Call, h Hook) error
	// Take returns what was told since the last call.
	Take func() []Told
	// Violations returns what the server did that is not allowed.
	Violations func() []string

	life *life
}

// Close ends the receiver and removes its files.
func (r *Receiver) Close() error { return r.life.end() }

// open makes a receiver whose parts begin with start. They need what belongs to a test.
func open(ctx context.Context, start func(l *life, r *Receiver)) (_ *Receiver, err error) {
	r := &Receiver{}
	if r.life, err = newLife(ctx); err != nil {
		return nil, err
	}
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case fatal:
			err = errors.Join(errors.New(string(cause)), r.life.end())
		default:
			panic(cause)
		}
	}()
	start(r.life, r)
	return r, nil
}

// life implements vendors.TB for a program.
type life struct {
	ctx    context.Context //nolint:containedctx // as that of a test
	dir    string
	ending []func()
}

// fatal is what ended a life early.
type fatal string

func newLife(ctx context.Context) (*life, error) {
	dir, err := os.MkdirTemp("", "receivers-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for keys and certificates: %w", err)
	}
	return &life{ctx: ctx, dir: dir}, nil
}

func (l *life) end() error {
	for _, f := range slices.Backward(l.ending) {
		f()
	}
	return os.RemoveAll(l.dir)
}

// Helper implements vendors.TB.
func (l *life) Helper() {}

// Fatal implements vendors.TB.
func (l *life) Fatal(args ...any) { panic(fatal(fmt.Sprint(args...))) }

// Cleanup implements vendors.TB.
func (l *life) Cleanup(f func()) { l.ending = append(l.ending, f) }

// TempDir implements vendors.TB.
func (l *life) TempDir() string {
	dir, err := os.MkdirTemp(l.dir, "")
	if err != nil {
		l.Fatal(err)
	}
	return dir
}

// Context implements vendors.TB.
func (l *life) Context() context.Context { return l.ctx }

// write writes a file and returns its path.
func (l *life) write(name string, text []byte) string {
	file := filepath.Join(l.dir, name)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		l.Fatal(err)
	}
	return file
}

// text returns JSON.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // of our own types
	}
	return string(b)
}
