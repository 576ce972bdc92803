package privateredis

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// diesWithParent makes the kernel kill the process when the thread that started
// it ends, so that a killed test leaves no server behind. [Server.supervise]
// keeps that thread until the process is gone.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// isStopped reports whether every thread of the process has been stopped by a
// signal, which happens some time after kill(2) has returned.
func isStopped(pid int) (bool, error) {
	tasks := filepath.Join("/proc", strconv.Itoa(pid), "task")
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return false, fmt.Errorf("list the threads of process %d: %w", pid, err)
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(filepath.Join(tasks, thread.Name(), "stat")) //nolint:gosec // a path the kernel made
		if err != nil {
			return false, fmt.Errorf("read the state of process %d: %w", pid, err)
		}
		// The state letter follows the command, which is in parentheses and may
		// hold any character.
		if i := bytes.LastIndexByte(stat, ')'); i < 0 || len(stat) < i+3 || stat[i+2] != 'T' {
			return false, nil
		}
	}
	return true, nil
}
