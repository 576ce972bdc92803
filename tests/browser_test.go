package tests

import (
	"context"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// The client and the demo's page in a real browser; their own tests use fakes.
// web/browser has the tests. They leave screenshots in the folder that
// BADGED_SCREENSHOTS names, if it is set.
func TestBrowser(t *testing.T) {
	t.Parallel()
	browse(t, "demo.test.mjs", "BADGED_BINARY="+binary, "BADGED_DATA_DIR="+dataDir(t))
}

// The TypeScript client in pages of its own: tabs, icons, frozen pages, and a
// proxy that swallows WebSockets.
func TestSDKBrowser(t *testing.T) {
	t.Parallel()
	browse(t, "sdk.test.mjs", "BADGED_BINARY="+binary, "BADGED_DATA_DIR="+dataDir(t))
}

// The packages for React, Vue and pages without a framework: rendered on a server,
// taken over in the browser, and live.
func TestPackagesBrowser(t *testing.T) {
	t.Parallel()
	browse(t, "packages.test.mjs", "BADGED_BINARY="+binary, "BADGED_DATA_DIR="+dataDir(t))
}

// browse runs a suite of web/browser. Its tests and hooks have limits of their own: the one
// here ends a suite that hangs between them, and shows what it said until then.
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
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // an error means that all have ended
		if ctx.Err() != nil {
			t.Errorf("the suite did not end within %v", limit)
		}
		t.Errorf("%v\n%s", err, out)
	}
}
