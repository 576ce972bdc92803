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
)

// interruptionHint says what to do after an interruption of a command that leaves something
// to do, "" for others.
func interruptionHint(command *kong.Node) string {
	if c, ok := command.Target.Addr().Interface().(interface{ AfterInterruption() string }); ok {
		return c.AfterInterruption()
	}
	return ""
}

// isTold reports whether the user of a command is told what it waits for when it was
// interrupted: a database may hang. Commands that log say themselves that they stop.
func isTold(command *kong.Node) bool {
	has := func(flag string) bool {
		return slices.ContainsFunc(command.Flags, func(f *kong.Flag) bool { return f.Name == flag })
	}
	return has("database-url") && !has("log-format")
}

// interruptedText is what a command that was interrupted says if it does not end soon.
const interruptedText = "interrupted; waiting for the databases to end what was begun (a second interrupt does not wait)"

// slowEnd is how long that is.
const slowEnd = 2 * time.Second

// tellOfInterruption tells that a command was interrupted if it goes on for a while, until
// ended is called: what it has begun in a database ends once that answers.
func tellOfInterruption(ctx context.Context, w io.Writer) (ended func()) {
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
