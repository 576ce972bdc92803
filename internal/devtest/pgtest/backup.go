package pgtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
)

// BaseBackup makes a base backup of a server. The returned function restores the server from the
// backup, like an operator who restores a snapshot of the server's disk: the server stays on the
// same timeline. All its sessions end.
func (s *Server) BaseBackup(t testing.TB) (putBack func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var data string
	if err := conn.QueryRow(t.Context(), `SELECT current_setting('data_directory')`).Scan(&data); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(t.TempDir(), "kept")
	s.Run(t, nil, "pg_basebackup", "--dbname="+s.URL(), "--pgdata="+kept, "--checkpoint=fast", "--wal-method=stream", "--no-manifest", "--no-sync")
	return func() {
		t.Helper()
		s.Kill()
		if err := os.RemoveAll(data); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "cp", "-a", kept, data).CombinedOutput(); err != nil { //nolint:gosec // directories of the test
			t.Fatalf("cp: %v\n%s", err, out)
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// OpenDir returns a directory that every user can enter, unlike t.TempDir. If the tests run as
// root, Postgres runs as another user. The directory is removed after the test.
func OpenDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgtest-dir-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // see above
		t.Fatal(err)
	}
	return dir
}
