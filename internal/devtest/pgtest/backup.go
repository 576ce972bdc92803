package pgtest

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// BaseBackup makes a base backup of a server. The function that it returns puts the server
// back to it, as an operator does who restores a snapshot of its disk: on the same timeline.
// All sessions end.
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
		info, err := os.Stat(data)
		if err != nil {
			t.Fatal(err)
		}
		owner, _ := info.Sys().(*syscall.Stat_t)
		entries, err := os.ReadDir(data)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if err := os.RemoveAll(filepath.Join(data, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := exec.CommandContext(t.Context(), "cp", "-a", kept+"/.", data).CombinedOutput(); err != nil { //nolint:gosec // directories of the test
			t.Fatalf("cp: %v\n%s", err, out)
		}
		if err := filepath.WalkDir(data, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(path, int(owner.Uid), int(owner.Gid)) //nolint:gosec // only the test changes it
		}); err != nil {
			t.Fatal(err)
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
