package embedpg

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
)

// process is one run of the server.
type process struct {
	cmd *exec.Cmd
	log *serverLog
	// ordered is set before we send a signal that ends it.
	ordered atomic.Bool
	// done is closed when the server and all its processes have ended; err is
	// then the reason, unless we ended it.
	done chan struct{}
	err  error
}

// A tether starts cmd, sends the outcome, waits for cmd to end and returns the
// result of cmd.Wait. If this process dies first, in whatever way, the tether
// interrupts cmd, which makes PostgreSQL shut down fast.
type tether func(cmd *exec.Cmd, started chan<- error) error

// startProcess starts the server; it may not accept connections yet.
func startProcess(cmd *exec.Cmd, log *serverLog, tie tether) (*process, error) {
	p := &process{cmd: cmd, log: log, done: make(chan struct{})}
	// Every process of the server holds this pipe, and Wait waits for the end
	// of the output: so it returns when all have ended.
	cmd.Stdout, cmd.Stderr = log, log
	started := make(chan error, 1)
	go func() {
		defer close(p.done)
		err := tie(cmd, started)
		switch {
		case p.ordered.Load():
		case err != nil:
			p.err = fmt.Errorf("postgres ended by itself: %w\n%s", err, log.tail())
		default:
			p.err = fmt.Errorf("postgres ended by itself\n%s", log.tail())
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	return p, nil
}

// signal sends a signal that ends the server. It may have ended already.
func (p *process) signal(sig syscall.Signal) {
	p.ordered.Store(true)
	_ = p.cmd.Process.Signal(sig)
}

// kill kills the server and its processes, as a crash would, and waits until
// they have ended.
func (p *process) kill() {
	select {
	case <-p.done:
		return // its process id may be in use again
	default:
	}
	// A stopped server neither forks nor reacts to the end of its children. One that it forked
	// just before would wait for ever for a lock of another that was killed.
	p.signal(syscall.SIGSTOP)
	awaitStopped(p.cmd.Process.Pid)
	for _, pid := range children(p.cmd.Process.Pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	p.signal(syscall.SIGKILL)
	<-p.done
}

// signalAll sends a signal to the server and then to its processes, unless it has ended. It
// does not count as ordered.
func (p *process) signalAll(sig syscall.Signal) {
	select {
	case <-p.done:
		return // its process id may be in use again
	default:
	}
	_ = p.cmd.Process.Signal(sig)
	if sig == syscall.SIGSTOP {
		awaitStopped(p.cmd.Process.Pid)
	}
	for _, pid := range children(p.cmd.Process.Pid) {
		_ = syscall.Kill(pid, sig)
	}
}

// run runs a program. Its error includes the program's standard error.
func run(cmd *exec.Cmd) error {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	ended := make(chan error, 1)
	go func() { ended <- startTethered(cmd, make(chan error, 1)) }()
	if err := <-ended; err != nil {
		return fmt.Errorf("%s: %w %s", filepath.Base(cmd.Path), err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

// watch is the tether of systems without a better one: two shells and two
// pipes. The first shell becomes the server once it reads a line, which we
// send when the second is running. The second interrupts the server unless it
// reads a line, which we send when the server has ended. If this process dies
// at any point, its ends of the pipes close, and the shells read nothing.
func watch(cmd *exec.Cmd, started chan<- error) error {
	wait, err := startWatched(cmd)
	started <- err
	if err != nil {
		return err
	}
	return wait()
}

func startWatched(cmd *exec.Cmd) (wait func() error, err error) {
	gateRead, gate, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer gate.Close() // without the line, if the start fails
	defer gateRead.Close()
	leashRead, leash, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer leashRead.Close()

	const becomeServer = `read -r _ && exec "$@" </dev/null`
	cmd.Args = append([]string{"sh", "-c", becomeServer, "sh", cmd.Path}, cmd.Args[1:]...)
	cmd.Path, cmd.Stdin = "/bin/sh", gateRead
	if err := cmd.Start(); err != nil {
		_ = leash.Close()
		return nil, err
	}

	const interrupt = `read -r _ || kill -INT "$1"`
	watcher := exec.Command("/bin/sh", "-c", interrupt, "sh", fmt.Sprint(cmd.Process.Pid)) //nolint:gosec,noctx // lives as long as the server
	watcher.Dir, watcher.Stdin, watcher.SysProcAttr = "/", leashRead, cmd.SysProcAttr
	if err := watcher.Start(); err != nil {
		_ = leash.Close()
		_ = gate.Close()
		_ = cmd.Wait()
		return nil, err
	}
	if _, err := gate.WriteString("\n"); err != nil {
		_ = leash.Close()
		_ = cmd.Wait()
		return nil, err
	}
	return func() error {
		err := cmd.Wait()
		_, _ = leash.WriteString("\n")
		_ = watcher.Wait()
		_ = leash.Close()
		return err
	}, nil
}
