package embedpg

import (
	"archive/zip"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// installFake installs programs that only print a version.
func installFake(t *testing.T, dir, version string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\necho 'postgres (PostgreSQL) %s'\n", version)
	for _, name := range []string{"postgres", "initdb"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFind(t *testing.T) {
	root := t.TempDir()
	for _, version := range []string{"9.6.24", "13.21", "14.18 (Debian 14.18-0+deb12u1)", "16.9", "18beta1"} {
		major, _, _ := strings.Cut(version, ".")
		installFake(t, filepath.Join(root, "lib", major, "bin"), version)
	}
	installFake(t, filepath.Join(root, "devel"), "devel")
	write := func(path, script string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	installFake(t, filepath.Join(root, "broken"), "17.1")
	write(filepath.Join(root, "broken", "postgres"), "exit 3")
	write(filepath.Join(root, "config", "pg_config"), "echo "+installFake(t, filepath.Join(root, "configured"), "17.5"))
	if err := os.MkdirAll(filepath.Join(root, "path"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "lib", "14", "bin", "postgres"), filepath.Join(root, "path", "postgres")); err != nil {
		t.Fatal(err)
	}
	downloaded := installFake(t, filepath.Join(root, "downloaded"), "18.3")

	libs := []string{"lib/*/bin"}
	for name, tc := range map[string]struct {
		path  string // PATH
		dirs  []string
		fetch string
		major int
		want  string
		says  string
	}{
		"the newest":                           {dirs: libs, want: "lib/18beta1/bin"},
		"PATH before newer ones":               {path: "path", dirs: libs, want: "lib/14/bin"},
		"the data's version before PATH":       {path: "path", dirs: libs, major: 16, want: "lib/16/bin"},
		"by pg_config":                         {path: "config", want: "configured"},
		"one that does not run is passed over": {dirs: []string{"broken", "lib/16/bin"}, want: "lib/16/bin"},
		"downloaded":                           {fetch: downloaded, want: "downloaded"},
		"none":                                 {says: "apt-get install postgresql"},
		"too old":                              {dirs: []string{"lib/13/bin", "lib/9/bin"}, says: "has version 13"},
		"no server that runs":                  {dirs: []string{"broken"}, says: "exit status 3"},
		"no version":                           {dirs: []string{"devel"}, says: "no version of PostgreSQL"},
		"no server of the data's version":      {dirs: libs, major: 15, says: "no PostgreSQL 15 found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", filepath.Join(root, tc.path))
			var dirs []string
			for _, dir := range tc.dirs {
				dirs = append(dirs, filepath.Join(root, dir))
			}
			got, err := find(t.Context(), nil, tc.major, dirs, func(context.Context, int) (string, error) {
				if tc.fetch == "" {
					return "", errors.New("no network")
				}
				return tc.fetch, nil
			})
			if tc.says != "" {
				wantError(t, err, tc.says)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if want := filepath.Join(root, tc.want); got.dir != want {
				t.Errorf("found %s, want %s", got.dir, want)
			}
		})
	}
}

func TestNothingIsDownloadedAsRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		return // TestDownload tests the download
	}
	_, err := fetch(t.Context(), 0)
	wantError(t, err, "as root")
}

// archive has shell scripts in place of a build's programs; its postgres
// prints version 18.3.
//
//go:embed testdata/postgres.txz
var archive []byte

// repository serves the archive as the build for every machine, and counts the
// requests.
func repository(t *testing.T) (url string, asked *int) {
	t.Helper()
	var jar bytes.Buffer
	z := zip.NewWriter(&jar)
	w, err := z.Create("postgres-any.txz")
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(archive)
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	asked = new(int)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, ".jar") || !strings.Contains(r.URL.Path, "/18.") {
			http.NotFound(w, r)
			return
		}
		*asked++
		_, _ = w.Write(jar.Bytes())
	}))
	t.Cleanup(func() {
		server.Close()
		http.DefaultClient.CloseIdleConnections() // the library leaves some open
	})
	return server.URL, asked
}

func TestDownload(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // the library leaves a log there
	dir := t.TempDir()
	url, asked := repository(t)
	for range 2 {
		got, err := download(t.Context(), dir, url, 0)
		if err != nil {
			t.Fatal(err)
		}
		b, err := inspect(t.Context(), nil, got)
		if err != nil {
			t.Fatal(err)
		}
		if b.major != 18 {
			t.Errorf("downloaded version %d", b.major)
		}
	}
	if *asked != 1 {
		t.Errorf("downloaded %d times", *asked)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v %v", entries, err)
	}

	_, err := download(t.Context(), dir, url, 17)
	wantError(t, err, "download PostgreSQL 17")
	_, err = download(t.Context(), dir, url, 12)
	wantError(t, err, "PostgreSQL 12")
}

func TestServerLog(t *testing.T) {
	var out strings.Builder
	l := &serverLog{ready: make(chan struct{}), log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))}
	for _, part := range []string{"LOG:  a\nWARN", "ING:  b\nERROR:  c\n", "PANIC:  d\nrest"} {
		_, _ = fmt.Fprint(l, part)
	}
	want := `level=DEBUG msg=postgres line="LOG:  a"
level=WARN msg=postgres line="WARNING:  b"
level=DEBUG msg=postgres line="ERROR:  c"
level=ERROR msg=postgres line="PANIC:  d"
`
	if out.String() != want {
		t.Errorf("logged\n%s", out.String())
	}
	for i := range 2 * keptLines {
		_, _ = fmt.Fprintf(l, "%d\n", i)
	}
	if lines := strings.Split(l.tail(), "\n"); len(lines) != keptLines || lines[keptLines-1] != fmt.Sprint(2*keptLines-1) {
		t.Errorf("kept %q", lines)
	}
}

func TestDefaultDataDir(t *testing.T) {
	want := "/data/badged"
	if os.Geteuid() == 0 {
		want = "/var/lib/badged"
	}
	t.Setenv("XDG_DATA_HOME", "/data")
	if got, err := DefaultDataDir("badged"); err != nil || got != want {
		t.Errorf("got %s, %v", got, err)
	}
}
