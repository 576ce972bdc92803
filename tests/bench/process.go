package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Credentials of every server here.
const (
	publisherKey = "publisher-secret"
	jwtKeys      = "k1=HS256:0123456789abcdef0123456789abcdef"
)

// environment returns this process's environment with the credentials and without
// other settings of badged.
func environment() []string {
	env := []string{"BADGED_JWT_KEYS=" + jwtKeys, "BADGED_PUBLISHER_KEYS=backend=" + publisherKey, "BADGED_PUBLISHER_KEY=" + publisherKey}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "BADGED_") {
			env = append(env, v)
		}
	}
	return env
}

// command prepares the binary; it is killed when ctx is done.
func (r *rig) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, r.binary, args...) //nolint:gosec // the binary that we have built
	cmd.Env = environment()
	return cmd
}

// runBinary runs the binary to its end and returns its output and processor time.
func (r *rig) runBinary(ctx context.Context, args ...string) (stdout []byte, took time.Duration, err error) {
	cmd := r.command(ctx, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return nil, 0, fmt.Errorf("badged %s: %w\n%s", args[0], err, errOut.Bytes())
	}
	return out.Bytes(), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

// server is a running `badged serve`, or another program that prints its URL in
// the same form.
type server struct {
	cmd  *exec.Cmd
	url  string
	out  *output
	done chan struct{}
	err  error // how it ended, once done is closed
}

// serve starts a server and returns once it is ready. It is killed when ctx is
// done.
func (r *rig) serve(ctx context.Context, args ...string) (*server, error) {
	return startServer(r.command(ctx, append([]string{"serve", "--listen=127.0.0.1:0"}, args...)...))
}

// startServer is serve for any program.
func startServer(cmd *exec.Cmd) (*server, error) {
	s := &server{cmd: cmd, out: &output{}, done: make(chan struct{})}
	s.cmd.Stdout = s.out
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start a server: %w", err)
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a server: %w", err)
	}
	ready := make(chan string, 1)
	go func() {
		s.listen(stderr, ready)
		s.err = s.cmd.Wait()
		close(s.done)
	}()
	select {
	case s.url = <-ready:
		return s, nil
	case <-s.done:
		return nil, fmt.Errorf("the server ended before it was ready: %w\n%s", s.err, s.out)
	}
}

// listen keeps the server's output and sends its URL to ready once it is
// printed.
func (s *server) listen(stderr io.Reader, ready chan<- string) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		_, _ = s.out.Write(append(lines.Bytes(), '\n')) // never fails
		if url, ok := strings.CutPrefix(lines.Text(), "badged: ready on "); ok {
			ready <- url
		}
	}
	_, _ = io.Copy(s.out, stderr) // a line that was too long, and what follows
}

// serverStop is longer than a server's graceful shutdown.
const serverStop = 20 * time.Second

// stop asks the server to end. It fails if the server does not exit cleanly.
func (s *server) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the server: %w", err)
	}
	timeout := time.NewTimer(serverStop)
	defer timeout.Stop()
	select {
	case <-s.done:
	case <-timeout.C:
		_ = s.cmd.Process.Kill() // it may have ended just now
		<-s.done
	}
	if s.err != nil {
		return fmt.Errorf("the server did not exit cleanly: %w\n%s", s.err, s.out)
	}
	return nil
}

// output keeps the output of a process. It is safe for concurrent use.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer; it never fails.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// underName returns a path at which the binary has the name of its program, since
// processor time and memory are read by the names of processes. The binary "" stays
// "".
func underName(dir, binary, program string) (string, error) {
	if binary == "" || filepath.Base(binary) == program {
		return binary, nil
	}
	binary, err := filepath.Abs(binary)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", binary, err)
	}
	if dir, err = os.MkdirTemp(dir, "other-"); err != nil {
		return "", fmt.Errorf("make a directory for %s: %w", binary, err)
	}
	named := filepath.Join(dir, program)
	if err := os.Symlink(binary, named); err != nil {
		return "", fmt.Errorf("give %s the name %s: %w", binary, program, err)
	}
	return named, nil
}
