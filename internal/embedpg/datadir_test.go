package embedpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// wantError checks that err wraps want, unless that is nil, and contains text.
func wantError(t *testing.T, err, want error, text string) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("no error, want one with %q", text)
	case want != nil && !errors.Is(err, want):
		t.Errorf("error %q does not wrap %q", err, want)
	case !strings.Contains(err.Error(), text):
		t.Errorf("error %q does not say %q", err, text)
	}
}

// startFails checks that a start on dir fails as expected.
func startFails(t *testing.T, dir string, want error, text string) {
	t.Helper()
	s, err := Start(t.Context(), Config{DataDir: dir})
	if err == nil {
		mustStop(t, s)
	}
	wantError(t, err, want, text)
}

// A server ends when its parent is killed, and its data can be used by the
// next.
func TestServerEndsWithItsParent(t *testing.T) {
	for name := range tethers {
		t.Run(name, func(t *testing.T) {
			dir := openDir(t)
			child, url := startInChild(t, dir, name)
			query(t, url, "CREATE TABLE kept AS SELECT 'yes' AS answer")
			pm, found := readPostmaster(filepath.Join(dir, "pgdata"))
			if !found {
				t.Fatal("no postmaster.pid")
			}
			// Frozen, it cannot end before we look.
			if err := syscall.Kill(pm.pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = child.Wait()
			_, err := lockDir(dir)
			wantError(t, err, errLocked, dir)
			if err := syscall.Kill(pm.pid, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}

			// Start waits for the old server to end.
			s := mustStart(t, Config{DataDir: dir})
			if servesFrom(t.Context(), pm.pid, s.pgdata) {
				t.Error("the old server is still there")
			}
			if got := query(t, s.URL(), "SELECT answer FROM kept"); got != "yes" {
				t.Errorf("got %q from the next server", got)
			}
		})
	}
}

func TestDataDirInUse(t *testing.T) {
	dir := openDir(t)
	child, url := startInChild(t, dir, "death signal")
	startFails(t, dir, ErrInUse, dir)
	if got := query(t, url, "SELECT 'alive'"); got != "alive" {
		t.Error("the first server was disturbed")
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	mustStart(t, Config{DataDir: dir})
	startFails(t, dir, ErrInUse, dir)
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
	if err := errors.Join(os.WriteFile(path, []byte(content), 0o600), s.account.own(path)); err != nil {
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
	startFails(t, dir, ErrInUse, "stop that first")
}

func TestOtherMajorVersion(t *testing.T) {
	dir, s := stopped(t)
	if err := os.WriteFile(filepath.Join(s.pgdata, "PG_VERSION"), []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	startFails(t, dir, ErrVersion, "made by PostgreSQL 9")
}

func TestNotACluster(t *testing.T) {
	dir := openDir(t)
	pgdata := filepath.Join(dir, "pgdata")
	as, err := accountFor(pgdata)
	if err != nil {
		t.Fatal(err)
	}
	diary := filepath.Join(pgdata, "diary")
	if err := errors.Join(os.Mkdir(pgdata, 0o700), as.own(pgdata)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(diary, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	startFails(t, dir, ErrNotCluster, pgdata)

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

func TestForeignOwner(t *testing.T) {
	dir := openDir(t)
	// The directory is root's: another user, or the one that PostgreSQL
	// refuses to run as.
	if err := os.Symlink("/usr", filepath.Join(dir, "pgdata")); err != nil {
		t.Fatal(err)
	}
	startFails(t, dir, ErrOwner, "belongs to")
}

// As root, the server runs as the owner of the data.
func TestRunsAsTheOwnerOfTheData(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it can only run as our user
	}
	as := unprivileged(t)
	dir := openDir(t)
	pgdata := filepath.Join(dir, "pgdata")
	if err := errors.Join(os.Mkdir(pgdata, 0o700), as.own(pgdata)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time on the data of the first
		s := mustStart(t, Config{DataDir: dir})
		owner, _, err := ownerOf(filepath.Join(s.tempDir, socketName))
		if err != nil || owner != as.uid {
			t.Errorf("the server runs as %s, %v", userName(owner), err)
		}
		mustStop(t, s)
	}
}

func TestClosedDirectory(t *testing.T) {
	dir := openDir(t)
	inner := filepath.Join(dir, "data")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	// Closed to the server's user if we are root, else to us.
	mode := os.FileMode(0o700)
	if os.Geteuid() != 0 {
		mode = 0
	}
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	startFails(t, inner, ErrOwner, inner)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestSweepTempDirs(t *testing.T) {
	base := openDir(t)
	as := account{uid: uint32(os.Geteuid())}
	left := filepath.Join(base, tempDirPrefix+"1")
	held := filepath.Join(base, tempDirPrefix+"2")
	other := filepath.Join(base, "other-3")
	for _, dir := range []string{left, held, other} {
		if err := os.MkdirAll(filepath.Join(dir, "pgdata"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := lockDir(held)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()

	sweepTempDirs(base, account{uid: as.uid + 1})
	if _, err := os.Stat(left); err != nil {
		t.Error("another user's directory was removed")
	}
	sweepTempDirs(base, as)
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

// A server that stops slowly is waited for.
func TestClaimWaitsForStoppingServer(t *testing.T) {
	dir := openDir(t)
	pgdata := filepath.Join(dir, "pgdata")
	if err := os.Mkdir(pgdata, 0o700); err != nil {
		t.Fatal(err)
	}
	content := "1\n\n\n\n\n\n\nstopping\n"
	if err := os.WriteFile(filepath.Join(pgdata, "postmaster.pid"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	old, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	// Longer than the grace for a server that does not report that it is
	// stopping.
	ctx, cancel := context.WithTimeout(t.Context(), 2*stoppingGrace)
	defer cancel()
	_, err = claimDataDir(ctx, dir)
	wantError(t, err, context.DeadlineExceeded, "process id 1:")

	claimed := make(chan error, 1)
	go func() {
		lock, err := claimDataDir(t.Context(), dir)
		if err == nil {
			err = lock.Close()
		}
		claimed <- err
	}()
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-claimed; err != nil {
		t.Error(err)
	}
}

func TestReadPostmaster(t *testing.T) {
	for name, tc := range map[string]struct {
		content string
		want    postmaster
		found   bool
	}{
		"ready":       {"812\n/data\n1700000000\n5432\n/tmp\n\n 1 2\nready   \n", postmaster{812, "ready"}, true},
		"starting":    {"812\n/data\n1700000000\n5432\n/tmp\n", postmaster{812, ""}, true},
		"single user": {"-812\n/data\n", postmaster{812, ""}, true},
		"empty":       {"", postmaster{}, false},
		"garbage":     {"x\n", postmaster{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "postmaster.pid"), []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if got, found := readPostmaster(dir); got != tc.want || found != tc.found {
				t.Errorf("got %+v, %v", got, found)
			}
		})
	}
}
