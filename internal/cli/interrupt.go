package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/kong"

	"github.com/badged/badged/internal/base/wait"
)

// interruptionHint returns what the operator should do after a command was interrupted, or "" if
// there is nothing to do.
func interruptionHint(command *kong.Node) string {
	if c, ok := command.Target.Addr().Interface().(interface{ AfterInterruption() string }); ok {
		return c.AfterInterruption()
	}
	return ""
}

// announces reports whether a command must print, after an interrupt, that it waits for databases.
// Commands that use databases must print this, since databases may hang. Commands that write a log
// need not: they log that they are stopping.
func announces(command *kong.Node) bool {
	has := func(flag string) bool {
		return slices.ContainsFunc(command.Flags, func(f *kong.Flag) bool { return f.Name == flag })
	}
	return has("database-url") && !has("log-format")
}

// interruptedText is printed if a command has not ended within slowEnd after an interrupt.
const interruptedText = "interrupted; waiting until the databases end the running statements (interrupt again to end at once)"

const slowEnd = 2 * time.Second

// announceInterruption prints interruptedText if the command has not called `ended` within slowEnd
// after an interrupt, which cancels ctx. Such a command still waits for a statement, which ends
// only when the database answers.
func announceInterruption(ctx context.Context, w io.Writer) (ended func()) {
	over := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		select {
		case <-ctx.Done():
		case <-over:
			return
		}
		select {
		case <-time.After(slowEnd):
			_, _ = fmt.Fprintln(w, interruptedText)
		case <-over:
		}
	})
	return func() {
		close(over)
		telling.Wait()
	}
}

// parentPause is the pause between two checks whether the parent process still runs.
const parentPause = 500 * time.Millisecond

// endWithGoRun calls `end` when the parent process ends, if the parent is `go run`: a `go run` that
// is killed does not kill the program that it runs. With any other parent, such as a shell,
// endWithGoRun does nothing, since a process may outlive its parent.
func endWithGoRun(ctx context.Context, end func()) {
	parent := os.Getppid()
	if !isGo(ctx, parent) {
		return
	}
	for os.Getppid() == parent {
		if wait.For(ctx, parentPause) != nil {
			return
		}
	}
	end()
}

// isGo reports whether a process is the go command.
func isGo(ctx context.Context, pid int) bool {
	name, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	if err != nil { // without /proc, run ps
		if name, err = exec.CommandContext(ctx, "ps", "-o", "comm=", "-p", strconv.Itoa(pid)).Output(); err != nil { //nolint:gosec // a number
			return false
		}
	}
	return filepath.Base(strings.TrimSpace(string(name))) == "go"
}
