package tests

import (
	"context"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// Runs the tests in web/browser: the client and the demo's page in a real browser, since their
// unit tests use fakes. If BADGED_SCREENSHOTS names a folder, the tests write screenshots there.
func TestBrowser(t *testing.T) {
	t.Parallel()
	browse(t, "demo.test.mjs", "BADGED_BINARY="+binary, "BADGED_DATA_DIR="+pgtest.OpenDir(t))
}

// Runs the demo's page in a real browser with a room of many members, and while the database, the
// bus, the server or the app is unavailable.
func TestBrowserFaults(t *testing.T) {
	t.Parallel()
	browse(t, "demo-faults.test.mjs", "BADGED_BINARY="+binary, "BADGED_DATA_DIR="+pgtest.OpenDir(t))
}

// Runs the TypeScript client in test pages in a browser: several tabs, icons, frozen pages, and
// a proxy that accepts WebSockets but drops their frames.
func TestSDKBrowser(t *testing.T) {
	t.Parallel()
	browse(t, "sdk.test.mjs", "BADGED_BINARY="+binary, "BADGED_DATA_DIR="+pgtest.OpenDir(t))
}

// Runs the packages for React, Vue and pages without a framework: rendered on a server, hydrated
// in the browser, and updated live.
func TestPackagesBrowser(t *testing.T) {
	t.Parallel()
	browse(t, "packages.test.mjs", "BADGED_BINARY="+binary, "BADGED_DATA_DIR="+pgtest.OpenDir(t))
}

// browse runs a suite of web/browser. The suite's tests and hooks have their own time limits.
// browse ends a suite that hangs outside of them, and shows its output so far.
func browse(t *testing.T, suite string, environment ...string) {
	t.Helper()
	const limit, toEnd = 15 * time.Minute, time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "--test", "--test-reporter=spec", "browser/"+suite)
	cmd.Dir = "../web"
	cmd.Env = append(cmd.Environ(), environment...)
	// A process group, so that the browser and server can be ended if they do
	// not end by themselves.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = toEnd
	if out, err := cmd.CombinedOutput(); err != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // an error means that all its processes have ended
		if ctx.Err() != nil {
			t.Errorf("the suite did not end within %v", limit)
		}
		t.Errorf("%v\n%s", err, out)
	}
}
