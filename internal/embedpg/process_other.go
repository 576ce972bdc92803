//go:build unix && !linux

package embedpg

import (
	"context"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

func startTethered(cmd *exec.Cmd, started chan<- error) error {
	return watch(cmd, started)
}

// awaitStopped does nothing: children returns none.
func awaitStopped(int) {}

// children returns none: the processes of a killed server end by themselves as
// soon as they wait.
func children(int) []int { return nil }

// servesFrom reports whether a live process is a PostgreSQL server; its data
// directory cannot be told.
func servesFrom(ctx context.Context, pid int, _ string) bool {
	out, err := exec.CommandContext(ctx, "ps", "-o", "comm=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return false
	}
	name := filepath.Base(strings.TrimSpace(string(out)))
	return name == "postgres" || name == "postmaster"
}
