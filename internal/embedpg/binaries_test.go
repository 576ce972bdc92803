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
	"os/exec"
	"path/filepath"
	"slices"
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

func TestFindBinaries(t *testing.T) {
	root := t.TempDir()
	for _, version := range []string{"9.6.24", "13.21", "14.18", "16.9", "18beta1"} {
		major, _, _ := strings.Cut(version, ".")
		installFake(t, filepath.Join(root, "lib", major, "bin"), version)
	}
	installFake(t, filepath.Join(root, "broken"), "17.1")
	if err := os.WriteFile(filepath.Join(root, "broken", "postgres"), []byte("#!/bin/sh\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	inPath := filepath.Join(root, "path")
	if err := os.Mkdir(inPath, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "lib", "14", "bin", "postgres"), filepath.Join(inPath, "postgres")); err != nil {
		t.Fatal(err)
	}
	configured := installFake(t, filepath.Join(root, "configured"), "17.5")
	config := filepath.Join(root, "pg_config")
	if err := os.WriteFile(config, []byte("#!/bin/sh\necho "+configured+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	downloaded := installFake(t, filepath.Join(root, "downloaded"), "18.3")

	nothing := func(context.Context, int) (string, error) { return "", errors.New("no network") }
	libs := []string{filepath.Join(root, "lib", "*", "bin")}
	for name, tc := range map[string]struct {
		path  map[string]string // programs in PATH
		globs []string
		fetch func(context.Context, int) (string, error)
		major int
		want  string
		err   error
		says  string
	}{
		"the newest": {
			globs: libs, want: "lib/18beta1/bin",
		},
		"PATH before newer ones": {
			path: map[string]string{"postgres": filepath.Join(inPath, "postgres")}, globs: libs, want: "lib/14/bin",
		},
		"a data directory's version before PATH": {
			path: map[string]string{"postgres": filepath.Join(inPath, "postgres")}, globs: libs, major: 16, want: "lib/16/bin",
		},
		"by pg_config": {
			path: map[string]string{"pg_config": config}, want: "configured",
		},
		"one that does not run is passed over": {
			globs: []string{filepath.Join(root, "broken"), filepath.Join(root, "lib", "16", "bin")}, want: "lib/16/bin",
		},
		"downloaded": {
			fetch: func(context.Context, int) (string, error) { return downloaded, nil }, want: "downloaded",
		},
		"none": {
			err: ErrNoBinaries, says: "apt-get install postgresql",
		},
		"too old": {
			globs: []string{filepath.Join(root, "lib", "13", "bin"), filepath.Join(root, "lib", "9", "bin")},
			err:   ErrNoBinaries, says: "has version 13",
		},
		"no server that runs": {
			globs: []string{filepath.Join(root, "broken")}, err: ErrNoBinaries, says: "exit status 3",
		},
		"no server of the data directory's version": {
			globs: libs, major: 15, err: ErrVersion, says: "made by PostgreSQL 15",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := places{
				lookPath: func(name string) (string, error) {
					if path, ok := tc.path[name]; ok {
						return path, nil
					}
					return "", exec.ErrNotFound
				},
				globs: tc.globs,
				fetch: nothing,
			}
			if tc.fetch != nil {
				p.fetch = tc.fetch
			}
			got, err := p.find(t.Context(), account{}, tc.major)
			if tc.err != nil {
				wantError(t, err, tc.err, tc.says)
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
	_, err := fetchBinaries(t.Context(), 0)
	wantError(t, err, nil, "as root")
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
		b, err := inspect(t.Context(), account{}, got)
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
	wantError(t, err, nil, "download PostgreSQL 17")
	_, err = download(t.Context(), dir, url, 12)
	wantError(t, err, nil, "PostgreSQL 12")
}

func TestParseMajor(t *testing.T) {
	for text, want := range map[string]int{
		"postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n": 15,
		"postgres (PostgreSQL) 18beta1":                          18,
		"17\n":                                                   17,
		"9.6":                                                    9,
	} {
		if got, err := parseMajor(text); err != nil || got != want {
			t.Errorf("%q is version %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "postgres", "postgres (PostgreSQL) devel"} {
		if _, err := parseMajor(text); err == nil {
			t.Errorf("%q has a version", text)
		}
	}
}

func TestEnvironment(t *testing.T) {
	got := environment([]string{"PATH=/bin", "PGPORT=1", "PGOPTIONS=-c x=y", "LANG=de_DE", "LC_TIME=fr", "TZ=Mars", "HOME=/h"})
	want := []string{"LC_ALL=C", "TZ=UTC", "PATH=/bin", "HOME=/h"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestServerLog(t *testing.T) {
	var out strings.Builder
	l := &serverLog{log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
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
