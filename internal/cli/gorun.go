package cli

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// parentPause is how often the parent is checked.
const parentPause = 500 * time.Millisecond

// endWithGoRun calls end once the `go run` that started this process is gone.
// `go run` does not forward a kill to the program. Under any other parent it
// does nothing: outliving a shell is legitimate.
func endWithGoRun(ctx context.Context, end func()) {
	parent := os.Getppid()
	if !isGo(ctx, parent) {
		return
	}
	tick := time.NewTicker(parentPause)
	defer tick.Stop()
	for os.Getppid() == parent {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	end()
}

// isGo reports whether a process is the go command.
func isGo(ctx context.Context, pid int) bool {
	name, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	if err != nil { // no /proc: ask ps
		if name, err = exec.CommandContext(ctx, "ps", "-o", "comm=", "-p", strconv.Itoa(pid)).Output(); err != nil { //nolint:gosec // a number
			return false
		}
	}
	return filepath.Base(strings.TrimSpace(string(name))) == "go"
}
