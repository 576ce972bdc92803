package cli

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
)

// TestMain clears the settings in the environment of the test run.
func TestMain(m *testing.M) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "BADGED_") {
			_ = os.Unsetenv(name) // the name comes from the environment
		}
	}
	goleak.VerifyTestMain(pgtest.Main(m))
}

// partitions is the number of partitions of the test databases.
const partitions = 2

func migrated() pgtest.Template {
	return schematest.Migrated(partitions)
}

// result is the output and exit code of a command.
type result struct {
	code     int
	out, err string
}

// badged runs a command.
func badged(t *testing.T, args ...string) result {
	t.Helper()
	return badgedWith(t.Context(), "", args...)
}

// badgedWith runs a command that reads input.
func badgedWith(ctx context.Context, input string, args ...string) result {
	var out, err bytes.Buffer
	code := run(ctx, args, Streams{In: strings.NewReader(input), Out: &out, Err: &err})
	return result{code, out.String(), err.String()}
}

// mustDo runs a command that must succeed and returns its output.
func mustDo(t *testing.T, args ...string) string {
	t.Helper()
	r := badged(t, args...)
	if r.code != exitDone {
		t.Fatalf("badged %s exits with %d:\n%s", strings.Join(args, " "), r.code, r.err)
	}
	if r.err != "" {
		t.Errorf("badged %s prints to stderr:\n%s", strings.Join(args, " "), r.err)
	}
	return r.out
}

// output is a stream on which tests wait for a line.
type output struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{} // closed and replaced with every write
}

func newOutput() *output { return &output{changed: make(chan struct{})} }

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.changed)
	o.changed = make(chan struct{})
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// after waits for a line with a prefix and returns the rest of it, or "" if
// over is closed first.
func (o *output) after(prefix string, over <-chan struct{}) string {
	for {
		o.mu.Lock()
		text, changed := o.text.String(), o.changed
		o.mu.Unlock()
		for line := range strings.Lines(text) {
			if rest, ok := strings.CutPrefix(line, prefix); ok && strings.HasSuffix(rest, "\n") {
				return strings.TrimSuffix(rest, "\n")
			}
		}
		select {
		case <-changed:
		case <-over:
			return ""
		}
	}
}

// service is a command that runs until it is interrupted.
type service struct {
	url       string
	err       *output
	interrupt context.CancelFunc
	done      chan struct{} // closed once it has exited
	code      int           // valid after that
}

// start runs a command until it is ready.
func start(t *testing.T, args ...string) *service {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &service{err: newOutput(), interrupt: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.code = run(ctx, args, Streams{In: strings.NewReader(""), Out: io.Discard, Err: s.err})
	}()
	t.Cleanup(func() { s.stop() })
	if s.url = s.err.after("badged: ready on ", s.done); s.url == "" {
		t.Fatalf("badged %s exits with %d:\n%s", strings.Join(args, " "), s.code, s.err)
	}
	return s
}

// stop interrupts the command and returns how it exits.
func (s *service) stop() int {
	s.interrupt()
	<-s.done
	return s.code
}

// fetch sends a request and returns the answer.
func fetch(t *testing.T, method, url, key, contentType, body string) (status int, header http.Header, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true // no connection outlives the request
	r.Header.Set("Content-Type", contentType)
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(b)
}
