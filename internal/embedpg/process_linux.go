package embedpg

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startTethered is the tether of Linux: the kernel signals the child when the
// thread that forked it ends, so we keep that thread while the child lives.
func startTethered(cmd *exec.Cmd, started chan<- error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr.Pdeathsig = syscall.SIGINT
	err := cmd.Start()
	started <- err
	if err != nil {
		return err
	}
	return cmd.Wait()
}

// awaitStopped waits until a process that got SIGSTOP has stopped, or ended: until then it
// may still fork.
func awaitStopped(pid int) {
	for {
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return
		}
		// The state follows the name, which is in parentheses and may contain some.
		_, state, _ := strings.Cut(string(content[bytes.LastIndexByte(content, ')')+1:]), " ")
		if state != "" && strings.ContainsRune("TtZX", rune(state[0])) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// children lists the child processes of pid that the kernel shows us.
func children(pid int) []int {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	var pids []int
	for field := range strings.FieldsSeq(string(content)) {
		if child, err := strconv.Atoi(field); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}

// servesFrom reports whether a live process works in pgdata, as every process
// of a server does.
func servesFrom(_ context.Context, pid int, pgdata string) bool {
	cwd, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid), "cwd"))
	if err != nil {
		return false // ended, or another user's process, so not this server
	}
	dir, err := os.Stat(pgdata)
	return err == nil && os.SameFile(cwd, dir)
}
