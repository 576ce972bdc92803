package rig

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
	PublisherKey = "publisher-secret"
	JWTKeys      = "k1=HS256:0123456789abcdef0123456789abcdef"
)

// environment returns this process's environment with the credentials and without
// other settings of badged.
func environment() []string {
	env := []string{"BADGED_JWT_KEYS=" + JWTKeys, "BADGED_PUBLISHER_KEYS=backend=" + PublisherKey, "BADGED_PUBLISHER_KEY=" + PublisherKey}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "BADGED_") {
			env = append(env, v)
		}
	}
	return env
}

// Command prepares the binary; it is killed when ctx is done.
func (r *Rig) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, r.Binary, args...) //nolint:gosec // the binary that we have built
	cmd.Env = environment()
	return cmd
}

// RunBinary runs the binary to its end and returns its output and processor time.
func (r *Rig) RunBinary(ctx context.Context, args ...string) (stdout []byte, took time.Duration, err error) {
	cmd := r.Command(ctx, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return nil, 0, fmt.Errorf("badged %s: %w\n%s", args[0], err, errOut.Bytes())
	}
	return out.Bytes(), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

// Server is a running `badged serve`, or another program that prints its URL in
// the same form.
type Server struct {
	Cmd  *exec.Cmd
	URL  string
	out  *Output
	done chan struct{}
	err  error // how it ended, once done is closed
}

// Serve starts a server and returns once it is ready. It is killed when ctx is
// done.
func (r *Rig) Serve(ctx context.Context, args ...string) (*Server, error) {
	return StartServer(r.Command(ctx, append([]string{"serve", "--listen=127.0.0.1:0"}, args...)...))
}

// StartServer is serve for any program.
func StartServer(cmd *exec.Cmd) (*Server, error) {
	s := &Server{Cmd: cmd, out: &Output{}, done: make(chan struct{})}
	s.Cmd.Stdout = s.out
	stderr, err := s.Cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start a server: %w", err)
	}
	if err := s.Cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a server: %w", err)
	}
	ready := make(chan string, 1)
	go func() {
		s.listen(stderr, ready)
		s.err = s.Cmd.Wait()
		close(s.done)
	}()
	select {
	case s.URL = <-ready:
		return s, nil
	case <-s.done:
		return nil, fmt.Errorf("the server ended before it was ready: %w\n%s", s.err, s.out)
	}
}

// listen keeps the server's output and sends its URL to ready once it is
// printed.
func (s *Server) listen(stderr io.Reader, ready chan<- string) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		_, _ = s.out.Write(append(lines.Bytes(), '\n')) // never fails
		if url, ok := strings.CutPrefix(lines.Text(), "badged: ready on "); ok {
			ready <- url
		}
	}
	_, _ = io.Copy(s.out, stderr) // a line that was too long, and what follows
}

// ServerStop is longer than a server's graceful shutdown.
const ServerStop = 20 * time.Second

// Stop asks the server to end. It fails if the server does not exit cleanly.
func (s *Server) Stop() error {
	if err := s.Cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the server: %w", err)
	}
	timeout := time.NewTimer(ServerStop)
	defer timeout.Stop()
	select {
	case <-s.done:
	case <-timeout.C:
		_ = s.Cmd.Process.Kill() // it may have ended just now
		<-s.done
	}
	if s.err != nil {
		return fmt.Errorf("the server did not exit cleanly: %w\n%s", s.err, s.out)
	}
	return nil
}

// Output keeps the output of a process. It is safe for concurrent use.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer; it never fails.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

// String returns what was written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// UnderName returns a path at which the binary has the name of its program, since
// processor time and memory are read by the names of processes. The binary "" stays
// "".
func UnderName(dir, binary, program string) (string, error) {
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
