package embedpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/badged/badged/internal/pg/leash"
)

// process is one run of the server.
type process struct {
	cmd *exec.Cmd
	log serverLog
	// ordered is set before this package sends a signal that ends the server. If ordered is true,
	// the end of the server is not an error.
	ordered atomic.Bool
	// done is closed when all processes of the server have ended. Then err is the reason; it is
	// nil if ordered is true.
	done chan struct{}
	err  error
}

// start starts a program of PostgreSQL, such as initdb or the server. When this process ends, the
// program gets SIGINT, on which a server does a fast shutdown.
func (s *Server) start(cmd *exec.Cmd) (wait func() error, err error) {
	cmd.ExtraFiles = s.locks
	wait, err = leash.Start(cmd, "INT")
	if err != nil {
		err = fmt.Errorf("run PostgreSQL in %s: %w", cmd.Dir, err)
	}
	if s.account != nil && errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w: choose a directory that the user %s may enter, such as one in /var/lib", err, s.account.name)
	}
	return wait, err
}

// launch runs the server and waits until it accepts connections.
func (s *Server) launch(ctx context.Context) error {
	if err := errors.Join(s.account.chown(s.pgdata), s.clearStalePID()); err != nil {
		return fmt.Errorf("prepare the start in %s: %w", s.pgdata, err)
	}
	p := &process{log: serverLog{log: s.cfg.Log, ready: make(chan struct{})}, done: make(chan struct{})}
	// The server must continue to run when ctx is done.
	p.cmd = s.account.command(context.WithoutCancel(ctx), s.pgdata, s.Program("postgres"), s.arguments()...)
	// wait returns at the end of the output. Each process of the server has the write end of the
	// output pipe open, so wait returns only after all processes of the server have ended.
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	wait, err := s.start(p.cmd)
	if err != nil {
		return err
	}
	go func() {
		defer close(p.done)
		_ = wait() // ProcessState has more details than the error
		if !p.ordered.Load() {
			p.err = fmt.Errorf("postgres ended by itself: %s\n%s", p.cmd.ProcessState, p.log.tail())
		}
	}()
	s.process.Store(p)
	select {
	case <-p.log.ready:
		return nil
	case <-p.done:
		return p.err
	case <-ctx.Done():
		_ = s.shutdown(ctx)
		return fmt.Errorf("wait for postgres to be ready: %w\n%s", context.Cause(ctx), p.log.tail())
	}
}

// clearStalePID removes postmaster.pid, which remains if a server was killed, for example by a
// power loss. PostgreSQL refuses to start if another process of its user now has the process id
// in this file. This is likely in containers, where process ids start at 1 again. On systems
// other than Linux, clearStalePID cannot list processes; the file remains, and PostgreSQL decides
// whether it is stale.
func (s *Server) clearStalePID() error {
	if runtime.GOOS != "linux" || len(processes(s.pgdata)) > 0 {
		return nil
	}
	if err := os.Remove(filepath.Join(s.pgdata, "postmaster.pid")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// signal sends a signal that ends the server. It fails if the server has ended already.
func (p *process) signal(sig syscall.Signal) error {
	p.ordered.Store(true)
	return p.cmd.Process.Signal(sig)
}

// signalAll sends a signal to the server and its child processes. On systems other than Linux only
// the server gets the signal; if the server is killed, its child processes end when they next wait
// for an event.
func (s *Server) signalAll(sig syscall.Signal) {
	_ = s.process.Load().cmd.Process.Signal(sig)
	for range 2 { // twice, since the server may fork a child while the first list is made
		for _, pid := range processes(s.pgdata) {
			_ = syscall.Kill(pid, sig)
		}
	}
}

// processes returns the ids of the processes whose working directory is dir. The working
// directory of each process of a server is its data directory.
func processes(dir string) (pids []int) {
	at, err := os.Stat(dir)
	if err != nil {
		return nil
	}
	links, _ := filepath.Glob("/proc/[0-9]*/cwd") // the only error is a bad pattern
	for _, link := range links {
		if cwd, err := os.Stat(link); err == nil && os.SameFile(cwd, at) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(link)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// keptLines is the number of last log lines that an error includes.
const keptLines = 12

// serverLog receives the output of a server. It writes each line to log, and stores the last
// lines for error messages.
type serverLog struct {
	log *slog.Logger
	// ready is closed when the server accepts connections.
	ready   chan struct{}
	isReady bool

	partial string
	last    []string
}

// Write implements io.Writer; it never fails.
func (l *serverLog) Write(p []byte) (int, error) {
	lines := strings.Split(l.partial+string(p), "\n")
	for _, line := range lines[:len(lines)-1] {
		if l.last = append(l.last, line); len(l.last) > keptLines {
			l.last = l.last[1:]
		}
		l.log.Log(context.Background(), severity(line), "postgres", "line", line)
		if !l.isReady && strings.HasPrefix(line, "LOG:  database system is ready to accept") {
			l.isReady = true
			close(l.ready)
		}
	}
	l.partial = lines[len(lines)-1]
	return len(p), nil
}

// tail returns the last lines of the log. Call it after the server has ended.
func (l *serverLog) tail() string { return strings.Join(l.last, "\n") }

// severity returns the level at which a line of the server's log is logged. ERROR and FATAL are
// logged at debug, since they end only a statement or a connection, and since the client gets the
// error too.
func severity(line string) slog.Level {
	switch name, _, _ := strings.Cut(line, ":"); name {
	case "PANIC":
		return slog.LevelError
	case "WARNING":
		return slog.LevelWarn
	default:
		return slog.LevelDebug
	}
}
