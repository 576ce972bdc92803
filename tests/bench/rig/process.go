package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/tests/bench/contest"
)

// Credentials of every server here.
const (
	PublisherKey = "publisher-secret"
	AdminKey     = "admin-secret"
	JWTKeys      = "k1=HS256:0123456789abcdef0123456789abcdef"
)

// command returns a command of a binary of badged, with the credentials and without other
// settings from this process's environment.
func command(ctx context.Context, binary string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, args...) //nolint:gosec // a binary that we have built, or that the user names
	cmd.Env = []string{"BADGED_JWT_KEYS=" + JWTKeys, "BADGED_PUBLISHER_KEYS=backend=" + PublisherKey, "BADGED_ADMIN_KEYS=ops=" + AdminKey}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "BADGED_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	return cmd
}

// RunBinary runs a command of a binary of badged to its end.
func RunBinary(ctx context.Context, binary string, args ...string) error {
	if out, err := command(ctx, binary, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("badged %s: %w\n%s", args[0], err, out)
	}
	return nil
}

// Server is a running program.
type Server struct {
	URL    string
	Cmd    *exec.Cmd
	output bytes.Buffer  // to be read once done is closed
	done   chan struct{} // closed when the program has ended
	err    error         // how it ended, once done is closed
}

// Serve starts `badged serve` and returns once it is ready.
func Serve(run *contest.Run, binary string, env []string, args ...string) *Server {
	return Start(run, "/readyz", func(port int) *exec.Cmd {
		cmd := command(run.Context(), binary, append([]string{"serve", fmt.Sprintf("--listen=127.0.0.1:%d", port)}, args...)...)
		cmd.Env = append(cmd.Env, env...)
		return cmd
	})
}

// Start starts a program that listens on a port, and returns once the program answers requests
// for the path ready with 200. The program is killed when the context of its command is done,
// and stopped at the end of the run.
func Start(run *contest.Run, ready string, on func(port int) *exec.Cmd) *Server {
	ctx := run.Context()
	free := contest.Must(new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"))
	port := free.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // listens on TCP
	contest.Check(free.Close())
	s := &Server{URL: fmt.Sprintf("http://127.0.0.1:%d", port), Cmd: on(port), done: make(chan struct{})}
	s.Cmd.Stdout, s.Cmd.Stderr = &s.output, &s.output
	contest.Check(s.Cmd.Start())
	go func() {
		s.err = s.Cmd.Wait()
		close(s.done)
	}()
	run.Cleanup(func(context.Context) error { return s.Stop() })
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		ended, err := wait.Signal(ctx, s.done, 5*time.Millisecond)
		contest.Check(err)
		if ended {
			contest.Check(fmt.Errorf("%s ended before it was ready: %w\n%s", s.Cmd.Path, s.err, s.output.String()))
		}
		req := contest.Must(http.NewRequestWithContext(ctx, http.MethodGet, s.URL+ready, http.NoBody))
		if res, err := client.Do(req); err == nil {
			contest.Check(res.Body.Close())
			if res.StatusCode == http.StatusOK {
				return s
			}
		}
	}
}

// stopLimit is longer than a server's graceful shutdown.
const stopLimit = 20 * time.Second

// Stop asks the server to end, unless it has. It fails if the server does not exit cleanly.
func (s *Server) Stop() error {
	if err := s.Cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the server: %w", err)
	}
	timeout := time.AfterFunc(stopLimit, func() { _ = s.Cmd.Process.Kill() }) // it may have ended just now
	defer timeout.Stop()
	<-s.done
	if s.err != nil {
		return fmt.Errorf("the server did not exit cleanly: %w\n%s", s.err, s.output.String())
	}
	return nil
}
