// Package tests tests badged from the outside: the built binary, over real sockets, with real
// Postgres and Redis servers that are private to the run, and with client libraries by other
// authors.
package tests

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/privateredis"
	"github.com/badged/badged/internal/devtest/schematest"
)

// binary is the path of the program under test, built once for the run.
var (
	binary string
	races  = flag.Bool("races", false, "build the program under test with the race detector")
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(built{m}).Run()) }

// built wraps the run of the tests: it builds the binary first.
type built struct{ *testing.M }

func (b built) Run() int {
	// A directory that any user may enter, since some tests run the binary as another
	// user.
	dir, err := os.MkdirTemp("", "badged-tests-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binary = filepath.Join(dir, "badged")
	flag.Parse()
	race := "-race=" + strconv.FormatBool(*races)
	build := exec.CommandContext(context.Background(), "go", "build", race, "-ldflags=-w", "-o", binary, "../cmd/badged")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the binary under test:", err)
		return 1
	}
	return b.M.Run()
}

// The credentials of every server under test.
const (
	publisherKey = "publisher-secret"
	jwtKeys      = "k1=HS256:0123456789abcdef0123456789abcdef"
)

// patience is how long a test waits for an event that must come.
const patience = 3 * time.Minute

// polls yields until the caller leaves the loop, and fails the test once patience has passed. It
// pauses between two polls for a twentieth of the time so far, since polling at full speed would
// take processor time from the processes that the test waits for.
func polls(t *testing.T, what string) func(yield func() bool) {
	return func(yield func() bool) {
		t.Helper()
		for start := time.Now(); yield(); {
			waited := time.Since(start)
			if waited > patience {
				t.Fatalf("waited in vain for %s", what)
			}
			<-time.After(min(max(waited/20, 10*time.Millisecond), 200*time.Millisecond))
		}
	}
}

// await waits until so returns true.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for range polls(t, what) {
		if so() {
			return
		}
	}
}

// restartable is a server of Postgres or Redis.
type restartable interface {
	Restart(ctx context.Context) error
}

// restart starts a server that was killed.
func restart(t *testing.T, server restartable) {
	t.Helper()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// process is a running binary.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	url string // once it is ready
	out *output
	// ready receives the URL once the process prints it, and is closed when the process
	// ends.
	ready chan string
	done  chan struct{}
	err   error // how it ended, once done is closed
}

// output collects the output of a process.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
	// grown, unless nil, is closed by the next Write.
	grown chan struct{}
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.grown != nil {
		close(o.grown)
		o.grown = nil
	}
	return o.buf.Write(b)
}

// has reports whether the output contains text. If not, the next output closes more.
func (o *output) has(text string) (ok bool, more <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.grown == nil {
		o.grown = make(chan struct{})
	}
	return bytes.Contains(o.buf.Bytes(), []byte(text)), o.grown
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// environment returns this process's environment without settings of badged, and with more.
func environment(more ...string) []string {
	// By default a binary with the race detector waits a second before it exits.
	env := []string{"GORACE=atexit_sleep_ms=10"}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "BADGED_") {
			env = append(env, v)
		}
	}
	return append(env, more...)
}

// launch starts the binary and waits until it is ready.
func launch(t *testing.T, change func(*exec.Cmd), args ...string) *process {
	t.Helper()
	p := start(t, change, args...)
	p.awaitReady()
	return p
}

// start starts the binary without waiting.
func start(t *testing.T, change func(*exec.Cmd), args ...string) *process {
	t.Helper()
	p := &process{
		t: t, cmd: exec.CommandContext(context.WithoutCancel(t.Context()), binary, withShards(args)...), out: &output{},
		ready: make(chan string, 1), done: make(chan struct{}),
	}
	p.cmd.Env = environment("BADGED_JWT_KEYS="+jwtKeys, "BADGED_PUBLISHER_KEYS=backend="+publisherKey)
	p.cmd.Stdout = p.out
	if change != nil {
		change(p.cmd)
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			_, _ = p.out.Write(append(lines.Bytes(), '\n'))
			if url, ok := strings.CutPrefix(lines.Text(), "badged: ready on "); ok {
				p.ready <- url
			}
		}
		p.err = p.cmd.Wait()
		close(p.ready)
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if out := p.out.String(); strings.Contains(out, "DATA RACE") || strings.Contains(out, "panic:") {
			t.Errorf("the server raced or panicked:\n%s", out)
		} else if t.Failed() {
			t.Logf("what %v said:\n%s", args, out)
		}
	})
	return p
}

// awaitSays waits until the process has printed text.
func (p *process) awaitSays(text string) {
	p.t.Helper()
	timeout := time.After(patience)
	for {
		ok, more := p.out.has(text)
		if ok {
			return
		}
		select {
		case <-more:
		case <-p.done:
			p.t.Fatalf("it ended and has not said %q:\n%s", text, p.out)
		case <-timeout:
			p.t.Fatalf("it has not said %q:\n%s", text, p.out)
		}
	}
}

// saysNoError fails the test if the process has logged an error.
func (p *process) saysNoError() {
	p.t.Helper()
	for line := range strings.Lines(p.out.String()) {
		if strings.Contains(line, "level=ERROR") {
			p.t.Errorf("it says %s", line)
		}
	}
}

// awaitReady waits until the process is ready.
func (p *process) awaitReady() {
	p.t.Helper()
	url, ok := <-p.ready
	if !ok {
		p.t.Fatalf("badged ended before it was ready: %v\n%s", p.err, p.out)
	}
	p.url = url
}

// signal sends a signal.
func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
}

// kill kills the process and waits until it has ended.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	<-p.done
}

// stop asks the process to end, waits for its end, and returns its error.
func (p *process) stop() error {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	<-p.done
	return p.err
}

// mustStop fails the test unless the process ends without an error when it is asked to.
func (p *process) mustStop() {
	p.t.Helper()
	if err := p.stop(); err != nil {
		p.t.Errorf("it ended with %v:\n%s", err, p.out)
	}
}

// serve launches a server on a database. Its pools are small: tests need few sessions at once, and
// the start of a session takes as much CPU time as many events.
func serve(t *testing.T, databaseURL string, args ...string) *process {
	t.Helper()
	return launch(t, nil, append([]string{
		"serve", "--listen=127.0.0.1:0", "--migrate", "--database-url=" + withPools(databaseURL, 2),
	}, args...)...)
}

// withPools limits each pool of a server on a database, unless the URL does so already.
func withPools(databaseURL string, conns int) string {
	u, err := url.Parse(databaseURL)
	if err != nil || u.Scheme == "" || u.Query().Has("pool_max_conns") {
		return databaseURL
	}
	query := u.Query()
	query.Set("pool_max_conns", strconv.Itoa(conns))
	u.RawQuery = query.Encode()
	return u.String()
}

// command runs the binary and returns its output.
func command(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, withShards(args)...)
	cmd.Env = environment("BADGED_JWT_KEYS=" + jwtKeys)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return unsharded(out.String()), errOut.String(), cmd.ProcessState.ExitCode()
}

// must runs the binary and fails the test if that fails.
func must(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, code := command(t, args...)
	if code != 0 {
		t.Fatalf("badged %v exited with %d:\n%s%s", args, code, stdout, stderr)
	}
	return stdout
}

// prints fails the test unless the binary succeeds and prints a text.
func prints(t *testing.T, want string, args ...string) {
	t.Helper()
	if out := must(t, args...); !strings.Contains(out, want) {
		t.Errorf("badged %v does not print %q:\n%s", args, want, out)
	}
}

// contains fails the test unless a text has all wanted parts.
func contains(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// fails fails the test unless the binary exits with a code and an error that contains a text.
func fails(t *testing.T, exits int, want string, args ...string) {
	t.Helper()
	stdout, stderr, code := command(t, args...)
	if code != exits || !strings.Contains(stderr, want) {
		t.Errorf("badged %v exits with %d, want %d and %q:\n%s%s", args, code, exits, want, stdout, stderr)
	}
}

// partitions is the number of partitions of test databases: enough to have users in different
// partitions.
const partitions = 8

// migrated returns the template of a migrated database with that many partitions.
func migrated() pgtest.Template {
	return pgtest.Template{Name: fmt.Sprint("migrated, partitions: ", partitions), Version: binaryHash(), Build: func(ctx context.Context, urls []string) error {
		cmd := exec.CommandContext(ctx, binary, "migrate", "up", fmt.Sprintf("--partitions=%d", partitions), "--database-url="+urls[0])
		cmd.Env = environment()
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("badged migrate up: %w\n%s", err, out)
		}
		return schematest.Publish(ctx, urls[0])
	}, Adopt: schematest.Adopt}
}

// binaryHash identifies the program under test.
var binaryHash = sync.OnceValue(func() string { return pgtest.Hash(binary) })

// newDatabase returns the URL of a migrated database. With -shards it creates a cluster, and returns
// the URL of the first shard, which represents the cluster: see withShards.
func newDatabase(t *testing.T) string {
	t.Helper()
	if *shardCount > 1 {
		return stack(pgtest.NewDBs(t, sharded(*shardCount)))
	}
	return pgtest.NewDB(t, migrated())
}

// newRedis returns a new Redis for this test.
func newRedis(t *testing.T) *privateredis.Server {
	t.Helper()
	s, err := privateredis.Start(t.Context(), privateredis.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// request sends a request with the publisher's key and returns the answer.
func request(t *testing.T, method, url, contentType, body string) (status int, header http.Header, answer string) {
	t.Helper()
	return requestAs(t, publisherKey, method, url, contentType, body)
}

// requestAs is like request, with any key or token, or with none if key is "".
func requestAs(t *testing.T, key, method, url, contentType, body string) (status int, header http.Header, answer string) {
	t.Helper()
	status, header, answer, err := exchange(t.Context(), key, method, url, contentType, body)
	if err != nil {
		t.Fatal(err)
	}
	return status, header, answer
}

// wantStatus fails the test unless a request with a key or token is answered with a status.
func wantStatus(t *testing.T, key, method, url, contentType, body string, want int) {
	t.Helper()
	if status, _, answer := requestAs(t, key, method, url, contentType, body); status != want {
		t.Errorf("%s %s is answered with %d %s, want %d", method, url, status, answer, want)
	}
}

// requestOnce is like requestAs, but does not repeat the request.
func requestOnce(t *testing.T, key, method, url, contentType, body string) (status int, header http.Header, answer string) {
	t.Helper()
	status, header, answer, err := exchangeOnce(t.Context(), key, method, url, contentType, body)
	if err != nil {
		t.Fatal(err)
	}
	return status, header, answer
}

// exchange sends a request and returns the answer. As clients do, it repeats a request whose answer
// asks for it: on a busy machine, Postgres may not answer in time.
func exchange(ctx context.Context, key, method, url, contentType, body string) (status int, header http.Header, answer string, err error) {
	for start := time.Now(); ; <-time.After(50 * time.Millisecond) {
		status, header, answer, err = exchangeOnce(ctx, key, method, url, contentType, body)
		if status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" || time.Since(start) > patience {
			return status, header, answer, err
		}
	}
}

// exchangeOnce is like exchange, but does not repeat the request.
func exchangeOnce(ctx context.Context, key, method, url, contentType, body string) (status int, header http.Header, answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, nil, "", err
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, res.Header, string(b), err
}
