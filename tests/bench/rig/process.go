package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Credentials of every server here.
const (
	PublisherKey = "publisher-secret"
	AdminKey     = "admin-secret"
	JWTKeys      = "k1=HS256:0123456789abcdef0123456789abcdef"
)

// environment returns this process's environment with the credentials and without
// other settings of badged.
func environment() []string {
	env := []string{"BADGED_JWT_KEYS=" + JWTKeys, "BADGED_PUBLISHER_KEYS=backend=" + PublisherKey, "BADGED_ADMIN_KEYS=ops=" + AdminKey}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "BADGED_") {
			env = append(env, v)
		}
	}
	return env
}

// RunBinary runs a command of a binary of badged to its end.
func RunBinary(ctx context.Context, binary string, args ...string) error {
	cmd := exec.CommandContext(ctx, binary, args...) //nolint:gosec // a binary that we have built, or that the user names
	cmd.Env = environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("badged %s: %w\n%s", args[0], err, out)
	}
	return nil
}

// Server is a running program.
type Server struct {
	// URL is where a `badged serve` answers.
	URL    string
	Cmd    *exec.Cmd
	output *output // to be read once done is closed
	ready  <-chan string
	done   chan struct{}
	err    error // how it ended, once done is closed
}

// output keeps the output of a program and sends the URL in it. It embeds no buffer, whose
// ReadFrom os/exec would call in place of Write.
type output struct {
	text  bytes.Buffer
	ready chan<- string // nil once the URL is sent
}

// Write implements io.Writer; it never fails.
func (o *output) Write(b []byte) (int, error) {
	o.text.Write(b)
	if o.ready == nil {
		return len(b), nil
	}
	_, rest, _ := strings.Cut(o.String(), "badged: ready on ")
	if url, _, found := strings.Cut(rest, "\n"); found {
		o.ready <- url
		o.ready = nil
	}
	return len(b), nil
}

// String returns the output.
func (o *output) String() string { return o.text.String() }

// Start starts a program, which is killed when the context of cmd is done.
func Start(cmd *exec.Cmd) (*Server, error) {
	ready := make(chan string, 1)
	s := &Server{Cmd: cmd, output: &output{ready: ready}, ready: ready, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = s.output, s.output
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a server: %w", err)
	}
	go func() {
		s.err = cmd.Wait()
		close(s.done)
	}()
	return s, nil
}

// Serve starts `badged serve` and returns once it is ready.
func Serve(ctx context.Context, binary string, env []string, args ...string) (*Server, error) {
	cmd := exec.CommandContext(ctx, binary, append([]string{"serve", "--listen=127.0.0.1:0"}, args...)...) //nolint:gosec // as above
	cmd.Env = append(environment(), env...)
	s, err := Start(cmd)
	if err != nil {
		return nil, err
	}
	select {
	case s.URL = <-s.ready:
		return s, nil
	case <-s.done:
		return nil, fmt.Errorf("the server ended before it was ready: %w\n%s", s.err, s.output)
	}
}

// stopLimit is longer than a server's graceful shutdown.
const stopLimit = 20 * time.Second

// Stop asks the server to end. It fails if the server does not exit cleanly.
func (s *Server) Stop() error {
	if err := s.Cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the server: %w", err)
	}
	timeout := time.NewTimer(stopLimit)
	defer timeout.Stop()
	select {
	case <-s.done:
	case <-timeout.C:
		_ = s.Cmd.Process.Kill() // it may have ended just now
		<-s.done
	}
	if s.err != nil {
		return fmt.Errorf("the server did not exit cleanly: %w\n%s", s.err, s.output)
	}
	return nil
}
