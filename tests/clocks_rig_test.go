package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"
)

// clockShift is added to the package time of the standard library. It maps the file that
// CLOCK_SHIFT names into memory; the file has the number of seconds by which time.Now is wrong.
const clockShift = `package time

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

var clockShift = mapClockShift()

func mapClockShift() *int64 {
	name, ok := syscall.Getenv("CLOCK_SHIFT")
	if !ok {
		return new(int64)
	}
	fd, err := syscall.Open(name, syscall.O_RDONLY, 0)
	if err != nil {
		panic("open " + name + ": " + err.Error())
	}
	shared, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("map " + name + ": " + err.Error())
	}
	return (*int64)(unsafe.Pointer(&shared[0]))
}

func shifted(sec int64, nsec int32, mono int64) (int64, int32, int64) {
	if clockShift != nil { // this package is initialized
		sec += atomic.LoadInt64(clockShift)
	}
	return sec, nsec, mono
}
`

// wrongBinary builds the program under test with a clock that tests set. Elapsed time is measured
// correctly, as on a machine whose clock is set.
var wrongBinary = sync.OnceValues(func() (string, error) {
	dir := filepath.Dir(binary)
	root, err := exec.CommandContext(context.Background(), "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find the standard library: %w", err)
	}
	library := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	source, err := os.ReadFile(filepath.Join(library, "time.go"))
	if err != nil {
		return "", err
	}
	const now = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()"
	if strings.Count(string(source), now) != 1 {
		return "", fmt.Errorf("%s has changed: time.Now does not begin as the tests expect", library)
	}
	patched := strings.Replace(string(source), now, "func Now() Time {\n\tsec, nsec, mono := shifted(runtimeNow())", 1)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(library, "time.go"):  filepath.Join(dir, "time.go"),
		filepath.Join(library, "shift.go"): filepath.Join(dir, "shift.go"),
	}})
	if err != nil {
		return "", err
	}
	for name, content := range map[string]string{"time.go": patched, "shift.go": clockShift, "overlay.json": string(overlay)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return "", err
		}
	}
	to := filepath.Join(dir, "badged-wrong-clock")
	build := exec.CommandContext(context.Background(), "go", "build", "-overlay="+filepath.Join(dir, "overlay.json"), "-ldflags=-w", "-o", to, "../cmd/badged")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program with a clock that tests set: %w\n%s", err, out)
	}
	return to, nil
})

// wrongClock is a clock that a test sets.
type wrongClock struct {
	t    *testing.T
	file string
	set  func(file string, ahead time.Duration) error
}

// is makes the clock wrong by a whole number of seconds; 0 makes it right.
func (c *wrongClock) is(ahead time.Duration) {
	c.t.Helper()
	if err := c.set(c.file, ahead); err != nil {
		c.t.Fatal(err)
	}
}

// newServerClock returns a clock for servers.
func newServerClock(t *testing.T) *wrongClock {
	t.Helper()
	c := &wrongClock{t, filepath.Join(t.TempDir(), "shift"), func(file string, ahead time.Duration) error {
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o600) // written in place, since processes have mapped it
		if err != nil {
			return err
		}
		n := int64(ahead / time.Second)
		if _, err := f.Write(unsafe.Slice((*byte)(unsafe.Pointer(&n)), unsafe.Sizeof(n))); err != nil {
			return err
		}
		return f.Close()
	}}
	c.is(0)
	return c
}

// on makes a process, which must not be started yet, use the clock.
func (c *wrongClock) on(cmd *exec.Cmd) {
	c.t.Helper()
	path, err := wrongBinary()
	if err != nil {
		c.t.Fatal(err)
	}
	cmd.Path = path
	cmd.Env = append(cmd.Env, "CLOCK_SHIFT="+c.file)
}
