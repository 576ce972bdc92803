package privateredis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// errPortTaken means that another process listens on the port.
var errPortTaken = errors.New("the port is taken")

// process is one run of redis-server.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process is gone and was waited for
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
	// The process outlives ctx, which bounds only the starting.
	cmd := exec.Command(s.binary, args...) //nolint:gosec,noctx // the binary found and the arguments of the test
	cmd.SysProcAttr = diesWithParent()
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in

	p := &process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error, 1)
	go p.supervise(started, in)
	log := watchLog(out)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("privateredis: run %s: %w", s.binary, err)
	}

	select {
	case <-log.ready:
		return p, nil
	case <-p.exited:
		<-log.ended
		text := log.String()
		if strings.Contains(text, "Address already in use") {
			return nil, fmt.Errorf("privateredis: start on port %d: %w", s.port, errPortTaken)
		}
		return nil, fmt.Errorf("privateredis: %s ended before it was ready: %s; it said:\n%s",
			s.binary, cmd.ProcessState, text)
	case <-ctx.Done():
		p.kill()
		return nil, fmt.Errorf("privateredis: wait for %s: %w; it said:\n%s", s.binary, ctx.Err(), log)
	}
}

// supervise starts the process and returns when it is gone. It locks its thread:
// the kernel treats the end of the thread that forked as the end of the parent,
// and the Go runtime ends idle threads.
func (p *process) supervise(started chan<- error, log *io.PipeWriter) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.exited)
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait() // ProcessState has the result.
	}
	_ = log.Close()
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("send %s to process %d: %w", sig, p.pid(), err)
	}
	return nil
}

// kill ends the process, also a stopped one, and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // An error means that it is already gone.
	<-p.exited
}

// serverLog is the server's output until it was ready.
type serverLog struct {
	ready chan struct{} // closed when the server reports that it accepts connections
	ended chan struct{} // closed at the end of the output

	mu   sync.Mutex
	text strings.Builder
}

// watchLog reads the server's output until it ends.
func watchLog(r io.Reader) *serverLog {
	l := &serverLog{ready: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			l.add(lines.Text())
			if strings.Contains(lines.Text(), "Ready to accept connections") {
				close(l.ready)
				break
			}
		}
		_, _ = io.Copy(io.Discard, r) // A server that cannot write its log blocks.
	}()
	return l
}

func (l *serverLog) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.WriteString(line + "\n")
}

func (l *serverLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
