package privateredis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/badged/badged/internal/pg/leash"
)

// errPortTaken means that another process listens on the port.
var errPortTaken = errors.New("the port is taken")

// process is one run of the program redis-server.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended
	paused bool
}

// launch starts redis-server on s.port and returns once it accepts connections.
func (s *Server) launch(ctx context.Context) (*process, error) {
	args := append([]string{
		"--bind", host,
		"--port", strconv.Itoa(s.port),
		"--dir", s.dir,
		"--save", "",
		"--appendonly", "no",
		"--daemonize", "no",
		"--logfile", "",
	}, s.args...)
	path := filepath.Join(s.dir, "log")
	log, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("privateredis: %w", err)
	}
	defer log.Close()
	// The process must outlive ctx, which bounds only the start.
	cmd := exec.Command(s.binary, args...) //nolint:gosec,noctx // the binary found and the arguments of the test
	cmd.Stdout, cmd.Stderr = log, log
	wait, err := leash.Start(cmd, "KILL")
	if err != nil {
		return nil, fmt.Errorf("privateredis: run %s: %w", s.binary, err)
	}
	p := &process{cmd: cmd, exited: make(chan struct{})}
	go func() {
		defer close(p.exited)
		_ = wait() // cmd.ProcessState has the result
	}()
	for {
		text, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(text), "Ready to accept connections") {
			return p, nil
		}
		if err == nil && ctx.Err() != nil {
			err = fmt.Errorf("wait for %s: %w; it said:\n%s", s.binary, ctx.Err(), text)
		}
		if err != nil {
			p.kill()
			return nil, fmt.Errorf("privateredis: %w", err)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
		case <-p.exited:
			if text, err = os.ReadFile(path); strings.Contains(string(text), "Address already in use") {
				err = errPortTaken
			}
			return nil, errors.Join(err, fmt.Errorf("privateredis: %s on port %d ended before it was ready: %s; it said:\n%s", s.binary, s.port, cmd.ProcessState, text))
		}
	}
}

// kill kills the process, even if it is frozen, and waits until it has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // An error means that it is already gone.
	<-p.exited
}
