// Package privates3 runs a real server that implements S3, the Versity S3 Gateway, for a test. The
// server has a folder of its own and listens on a free loopback port.
package privates3

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/source"
)

// The credentials of all servers of this package.
const (
	AccessKey = "badged-tests"
	SecretKey = "not-a-secret-0123456789"
)

// Server is a running server.
type Server struct {
	// URL is its endpoint, such as http://127.0.0.1:21345.
	URL string
	// Dir has a folder for each bucket, with the bucket's objects as files.
	Dir string
}

// Start builds and starts a server with one empty bucket. The server ends with the test. The first
// build on a machine takes minutes.
func Start(t testing.TB, bucket string) *Server {
	t.Helper()
	// go tool builds the program, stores it in its cache, and prints the path.
	build := exec.CommandContext(t.Context(), "go", "tool", "-n", "versitygw")
	build.Dir = source.Path("internal/devtest/tools/s3")
	var stderr bytes.Buffer
	build.Stderr = &stderr
	out, err := build.Output()
	if err != nil {
		t.Fatalf("build the S3 server: %v\n%s", err, &stderr)
	}
	binary := strings.TrimSpace(string(out))
	dir := t.TempDir()
	s := &Server{Dir: dir}
	if err := os.Mkdir(filepath.Join(dir, bucket), 0o700); err != nil {
		t.Fatal(err)
	}
	for attempt := 1; ; attempt++ {
		err := s.start(t, binary)
		if err == nil {
			return s
		}
		if attempt == 5 { // another process may take the port first
			t.Fatal(err)
		}
	}
}

func (s *Server) start(t testing.TB, binary string) error {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return err
	}
	cmd := exec.Command(binary, "--quiet", "--port", addr, "--access", AccessKey, "--secret", SecretKey, "posix", //nolint:gosec,noctx // the program built above; the cleanup ends it
		"--sidecar", t.TempDir(), s.Dir)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the S3 server: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the test kills it
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // the process may have ended
		<-ended
	})
	s.URL = "http://" + addr
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err == nil {
			return answer.Body.Close()
		}
		select {
		case <-ended:
			return fmt.Errorf("the S3 server ended at once, on %s", addr)
		case <-ctx.Done():
			return fmt.Errorf("the S3 server does not answer on %s: %w", addr, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Env returns the environment variables that make badged use the server.
func (s *Server) Env() []string {
	return []string{
		"AWS_ENDPOINT_URL=" + s.URL, "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=" + AccessKey, "AWS_SECRET_ACCESS_KEY=" + SecretKey,
		"AWS_SESSION_TOKEN=", "AWS_PROFILE=", "AWS_ENDPOINT_URL_S3=", "AWS_EC2_METADATA_DISABLED=true",
	}
}
