package embedpg

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"
)

// childDataDir makes the test binary start a server and wait to be killed; see
// startInChild.
const childDataDir = "EMBEDPG_TEST_DATA_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDataDir); dir != "" {
		serveUntilKilled(dir)
	}
	goleak.VerifyTestMain(m)
}

func serveUntilKilled(dir string) {
	s, err := Start(context.Background(), Config{DataDir: dir})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.URL())
	select {}
}

// startInChild starts a server in another process and returns the process and
// the server's URL.
func startInChild(t *testing.T, dir string) (child *exec.Cmd, url string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child = exec.CommandContext(t.Context(), exe)
	child.Env = append(os.Environ(), childDataDir+"="+dir)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	url, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the child started no server: %v", err)
	}
	return child, url[:len(url)-1]
}

// openDir returns a new directory that any user can enter, unlike t.TempDir.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(memoryDir(), "embedpg-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func mustStart(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mustStop(t, s) })
	return s
}

func mustStop(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// query runs a statement on a new connection and returns its single value as
// text.
func query(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var value string
	err = conn.QueryRow(t.Context(), sql, pgx.QueryExecModeSimpleProtocol).Scan(&value)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func TestDataSurviveStopAndStart(t *testing.T) {
	cfg := Config{DataDir: filepath.Join(openDir(t), "made", "on the way")}
	s := mustStart(t, cfg)
	query(t, s.URL(), "CREATE TABLE kept AS SELECT 'yes' AS answer")
	mustStop(t, s)
	if err := s.Err(); err != nil {
		t.Errorf("Err after Stop: %v", err)
	}
	if _, err := os.Stat(s.tempDir); err == nil {
		t.Errorf("the socket's directory is still there")
	}
	mustStop(t, s)

	s = mustStart(t, cfg)
	if got := query(t, s.URL(), "SELECT answer FROM kept"); got != "yes" {
		t.Errorf("got %q from the database started again", got)
	}
}

func TestTemporaryDataGoWithStop(t *testing.T) {
	s := mustStart(t, Config{})
	dir := s.tempDir
	if filepath.Dir(s.pgdata) != dir {
		t.Fatalf("the data are in %s, not in %s", s.pgdata, dir)
	}
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o700 {
		t.Errorf("the private directory has mode %o", mode)
	}
	mustStop(t, s)
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory is still there after Stop")
	}
}

func TestSeedIsCopied(t *testing.T) {
	dir := openDir(t)
	s := mustStart(t, Config{DataDir: dir})
	query(t, s.URL(), "CREATE TABLE t AS SELECT 42 AS n")
	mustStop(t, s)
	if version, err := Version(t.Context()); err != nil || version != s.programs.version {
		t.Errorf("the version is %q, %v", version, err)
	}
	for range 2 {
		s := mustStart(t, Config{Seed: s.pgdata})
		if got := query(t, s.URL(), "SELECT n FROM t"); got != "42" {
			t.Errorf("the table has %s", got)
		}
		query(t, s.URL(), "DROP TABLE t")
	}
	_, err := Start(t.Context(), Config{Seed: filepath.Join(dir, "missing")})
	wantError(t, err, "copy the cluster")
}

func TestSettings(t *testing.T) {
	t.Setenv("PGDATESTYLE", "German")
	t.Setenv("TZ", "Asia/Tokyo")
	s := mustStart(t, Config{Settings: map[string]string{"shared_buffers": "16MB", "application_name": "a b", "listen_addresses": "*"}})
	for setting, want := range map[string]string{
		"shared_buffers":     "16MB",
		"application_name":   "a b",
		"jit":                "off",
		"fsync":              "on",
		"full_page_writes":   "on",
		"synchronous_commit": "on",
		"listen_addresses":   "",
		"server_encoding":    "UTF8",
		"DateStyle":          "ISO, MDY",
		"timezone":           "UTC",
	} {
		if got := query(t, s.URL(), "SHOW "+setting); got != want {
			t.Errorf("%s is %q, not %q", setting, got, want)
		}
	}

	_, err := Start(t.Context(), Config{Settings: map[string]string{"no_such_setting": "1"}})
	wantError(t, err, "no_such_setting")
}

func TestKillAndRestart(t *testing.T) {
	s := mustStart(t, Config{})
	url := s.URL()
	query(t, url, "CREATE TABLE kept AS SELECT 'yes' AS answer")
	s.Kill()
	<-s.Done()
	if err := s.Err(); err != nil {
		t.Errorf("Err after Kill: %v", err)
	}
	if conn, err := pgx.Connect(t.Context(), url); err == nil {
		_ = conn.Close(t.Context())
		t.Fatal("a killed server answers")
	}

	for range 2 { // the second time while it runs
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := query(t, url, "SELECT answer FROM kept"); got != "yes" {
			t.Errorf("got %q after the restart", got)
		}
	}
	mustStop(t, s)
	if s.URL() != url {
		t.Errorf("the URL became %s", s.URL())
	}
	if err := s.Restart(t.Context()); err == nil {
		t.Error("a stopped server started again")
	}
}

func TestKillEndsBusyConnections(t *testing.T) {
	s := mustStart(t, Config{})
	cfg, err := pgx.ParseConfig(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	begun := make(chan struct{})
	cfg.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) { close(begun) }
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), "DO $$ BEGIN RAISE NOTICE 'begun'; LOOP NULL; END LOOP; END $$")
		ended <- err
	}()
	<-begun
	s.Kill()
	if err := <-ended; err == nil {
		t.Error("the query of a killed server ended well")
	}
}

func TestPauseAndResume(t *testing.T) {
	s := mustStart(t, Config{})
	conn, err := pgx.Connect(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	s.Resume() // which is not paused
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if other, err := pgx.Connect(ctx, s.URL()); err == nil {
		_ = other.Close(t.Context())
		t.Error("a paused server takes a connection")
	}
	answered := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), "SELECT")
		answered <- err
	}()
	s.Resume()
	if err := <-answered; err != nil {
		t.Errorf("after the pause: %v", err)
	}
	s.Pause()
	s.Kill()
	if err := s.Restart(t.Context()); err != nil {
		t.Errorf("after it was killed in a pause: %v", err)
	}
	mustStop(t, s)
}

func TestServerThatCrashes(t *testing.T) {
	s := mustStart(t, Config{})
	if err := s.Err(); err != nil {
		t.Fatalf("Err of a server that runs: %v", err)
	}
	if err := s.process.Load().cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	wantError(t, s.Err(), "postgres ended by itself: signal: killed")
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Err(); err != nil {
		t.Errorf("Err after the restart: %v", err)
	}
}

// Ctrl-C signals the terminal's process group. It must not stop the database
// while its clients still write.
func TestServerHasItsOwnSession(t *testing.T) {
	s := mustStart(t, Config{})
	pid := s.process.Load().cmd.Process.Pid
	if group, err := syscall.Getpgid(pid); err != nil || group != pid {
		t.Errorf("the server %d is in process group %d, %v", pid, group, err)
	}
}

func TestStopDeadline(t *testing.T) {
	cfg := Config{DataDir: openDir(t)}
	s := mustStart(t, cfg)
	query(t, s.URL(), "CREATE TABLE kept AS SELECT 'yes' AS answer")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantError(t, s.Stop(ctx), "was killed during its shutdown")

	s = mustStart(t, cfg)
	if got := query(t, s.URL(), "SELECT answer FROM kept"); got != "yes" {
		t.Errorf("got %q after an immediate shutdown", got)
	}
}

func TestStartGivesUpWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Start(ctx, Config{DataDir: openDir(t)})
	wantError(t, err, context.Canceled.Error())
}

// As root, runs the tests of the data directory and of the server's end once more as an
// unprivileged user.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		return // we are unprivileged
	}
	dir := openDir(t)
	exe := filepath.Join(dir, "embedpg.test")
	copyExecutable(t, exe)
	tmp := filepath.Join(dir, "tmp")
	if err := errors.Join(os.Mkdir(tmp, 0o700), unprivileged.chown(tmp)); err != nil {
		t.Fatal(err)
	}
	cmd := unprivileged.command(t.Context(), "/", exe, "-test.timeout=5m", "-test.count=1",
		"-test.run=^(TestDataSurviveStopAndStart|TestTemporaryDataGoWithStop|TestServerEndsWithItsParent|TestRunsAsTheOwnerOfTheData|TestClosedDirectory|TestSweepTempDirs|TestDownload)$")
	cmd.Env = append(cmd.Env, "TMPDIR="+tmp, "HOME="+tmp, "GOCOVERDIR="+tmp)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}

// unprivileged is the user nobody.
var unprivileged = &account{"nobody", &syscall.Credential{Uid: 65534, Gid: 65534}}

func copyExecutable(t *testing.T, path string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	src, err := os.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(dst, src)
	if err := errors.Join(err, dst.Close()); err != nil {
		t.Fatal(err)
	}
}
