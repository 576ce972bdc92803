package embedpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// wantError checks that err contains text.
func wantError(t *testing.T, err error, text string) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("no error, want one with %q", text)
	case !strings.Contains(err.Error(), text):
		t.Errorf("error %q does not say %q", err, text)
	}
}

// startFails checks that a start on dir fails as expected.
func startFails(t *testing.T, dir, text string) {
	t.Helper()
	s, err := Start(t.Context(), Config{DataDir: dir})
	if err == nil {
		mustStop(t, s)
	}
	wantError(t, err, text)
}

// postmasterIn returns the process id of the server of a data directory.
func postmasterIn(t *testing.T, dir string) (pid int) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "pgdata", "postmaster.pid"))
	if err == nil {
		_, err = fmt.Sscan(string(content), &pid)
	}
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// A server ends when its parent is killed, and the next server can use its data.
func TestServerEndsWithItsParent(t *testing.T) {
	dir := openDir(t)
	child, url := startInChild(t, dir)
	query(t, url, "CREATE TABLE kept AS SELECT 'yes' AS answer")
	pid := postmasterIn(t, dir)
	// Freeze the server, so that it cannot end before the checks below.
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Start(ctx, Config{DataDir: dir})
	wantError(t, err, "wait until the last server of "+dir)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}

	// Start waits for the old server to end.
	s := mustStart(t, Config{DataDir: dir})
	if slices.Contains(processes(s.pgdata), pid) {
		t.Error("the old server is still there")
	}
	if got := query(t, s.URL(), "SELECT answer FROM kept"); got != "yes" {
		t.Errorf("got %q from the next server", got)
	}
}

func TestDataDirInUse(t *testing.T) {
	dir := openDir(t)
	child, url := startInChild(t, dir)
	startFails(t, dir, dir+" is in use")
	if got := query(t, url, "SELECT 'alive'"); got != "alive" {
		t.Error("the first server was disturbed")
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	mustStart(t, Config{DataDir: dir})
	startFails(t, dir, dir+" is in use")
}

// stopped returns a cluster whose server has stopped.
func stopped(t *testing.T) (dir string, s *Server) {
	t.Helper()
	dir = openDir(t)
	s = mustStart(t, Config{DataDir: dir})
	mustStop(t, s)
	return dir, s
}

// pretend writes a postmaster.pid that names a live process of the server's
// user with the working directory cwd.
func pretend(t *testing.T, s *Server, cwd string) {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	cmd := s.account.command(t.Context(), cwd, sleep, "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	path := filepath.Join(s.pgdata, "postmaster.pid")
	content := fmt.Sprintf("%d\n%s\n1\n%s\n\n\n0 0\nready   \n", cmd.Process.Pid, s.pgdata, port)
	if err := errors.Join(os.WriteFile(path, []byte(content), 0o600), s.account.chown(path)); err != nil {
		t.Fatal(err)
	}
}

func TestProcessIDUsedAgain(t *testing.T) {
	dir, s := stopped(t)
	pretend(t, s, "/")
	mustStart(t, Config{DataDir: dir})
}

func TestForeignServer(t *testing.T) {
	dir, s := stopped(t)
	pretend(t, s, s.pgdata)
	startFails(t, dir, "Is another postmaster")
}

func TestOtherMajorVersion(t *testing.T) {
	dir, s := stopped(t)
	if err := os.WriteFile(filepath.Join(s.pgdata, "PG_VERSION"), []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	startFails(t, dir, s.pgdata+": no PostgreSQL 9 found")
}

func TestNotACluster(t *testing.T) {
	dir := openDir(t)
	pgdata := filepath.Join(dir, "pgdata")
	diary := filepath.Join(pgdata, "diary")
	if err := os.Mkdir(pgdata, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(diary, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	startFails(t, dir, pgdata)

	if err := os.Remove(diary); err != nil {
		t.Fatal(err)
	}
	mustStart(t, Config{DataDir: dir}) // an empty directory is no obstacle
}

func TestInitCutShort(t *testing.T) {
	dir := openDir(t)
	half := filepath.Join(dir, "pgdata.new")
	if err := os.Mkdir(half, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(half, "PG_VERSION"), []byte("15\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustStart(t, Config{DataDir: dir})
}

// As root, the server runs as the owner of the data. After restoring a backup the owner may be
// root; then the server gets another owner.
func TestRunsAsTheOwnerOfTheData(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it can only run as our user
	}
	dir := openDir(t)
	pgdata := filepath.Join(dir, "pgdata")
	if err := errors.Join(os.Mkdir(pgdata, 0o700), unprivileged.chown(pgdata)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time on the data of the first
		s := mustStart(t, Config{DataDir: dir})
		if owner := uidOf(t, filepath.Join(s.tempDir, socketName)); owner != unprivileged.Uid {
			t.Errorf("the server runs as the user with id %d", owner)
		}
		mustStop(t, s)
	}
	if err := (&account{"root", new(syscall.Credential)}).chown(pgdata); err != nil {
		t.Fatal(err)
	}
	s := mustStart(t, Config{DataDir: dir})
	if owner := uidOf(t, filepath.Join(s.tempDir, socketName)); owner != uidOf(t, pgdata) || owner == 0 {
		t.Errorf("on data of root the server runs as the user with id %d", owner)
	}
}

func uidOf(t *testing.T, path string) uint32 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

func TestClosedDirectory(t *testing.T) {
	dir := openDir(t)
	inner := filepath.Join(dir, "data")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	// As root the directory is closed to the server's user, otherwise to this process.
	mode := os.FileMode(0o700)
	if os.Geteuid() != 0 {
		mode = 0
	}
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	startFails(t, inner, inner)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestSweepTempDirs(t *testing.T) {
	base := openDir(t)
	left := filepath.Join(base, tempDirPrefix+"1")
	held := filepath.Join(base, tempDirPrefix+"2")
	other := filepath.Join(base, "other-3")
	for _, dir := range []string{left, held, other} {
		if err := os.MkdirAll(filepath.Join(dir, "pgdata"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	locked, err := lock(os.Open(held))
	if err != nil {
		t.Fatal(err)
	}
	defer locked.Close()

	sweepTempDirs(base, &account{"other", &syscall.Credential{Uid: uint32(os.Geteuid()) + 1}})
	if _, err := os.Stat(left); err != nil {
		t.Error("another user's directory was removed")
	}
	sweepTempDirs(base, nil)
	if _, err := os.Stat(left); err == nil {
		t.Error("a killed process's directory is still there")
	}
	for _, dir := range []string{held, other} {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("%s was removed", dir)
		}
	}
}

func TestLongTempDir(t *testing.T) {
	long := filepath.Join(openDir(t), strings.Repeat("long", 30))
	if err := os.Mkdir(long, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", long)
	s := mustStart(t, Config{DataDir: openDir(t)})
	if !strings.HasPrefix(s.tempDir, "/tmp/") {
		t.Errorf("the socket is in %s", s.tempDir)
	}
}
