package architecture

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// limit is the limit on lines per file. A longer file has more than one subject
// and should be split.
const limit = 600

// tooLong returns the source files with more lines than limit, without built and
// third-party files.
func tooLong(tree fs.FS) ([]string, error) {
	var long []string
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if hidden := strings.HasPrefix(d.Name(), ".") && name != "."; hidden || d.Name() == "node_modules" || d.Name() == "dist" {
				return fs.SkipDir
			}
			return nil
		}
		if !slices.Contains([]string{".go", ".ts", ".sql"}, path.Ext(name)) {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		if lines := bytes.Count(text, []byte("\n")); lines > limit {
			long = append(long, fmt.Sprintf("%s has %d lines", name, lines))
		}
		return nil
	})
	return long, err
}

// mostFiles is the limit on files of a Go package without its tests. A package with more
// has more than one subject.
const mostFiles = 22

// crowded returns the folders with more Go files than mostFiles.
func crowded(tree fs.FS) ([]string, error) {
	files := map[string]int{}
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			files[path.Dir(name)]++
		}
		return err
	})
	var found []string
	for dir, n := range files {
		if n > mostFiles {
			found = append(found, fmt.Sprintf("%s has %d Go files", dir, n))
		}
	}
	slices.Sort(found)
	return found, err
}

// misplaced returns the entries at the top of a tree that do not belong there.
// It ignores hidden files and those that .gitignore names.
func misplaced(tree fs.FS) ([]string, error) {
	allowed := []string{
		"cmd", "events", "projector", "gateway", "pubsub", "migrations", "web", "tests", "internal", "docs", "deploy",
		"go.mod", "go.sum", "README.md", "SECURITY.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile",
	}
	ignored, err := fs.ReadFile(tree, ".gitignore")
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(tree, ".")
	if err != nil {
		return nil, err
	}
	var strange []string
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") || slices.Contains(allowed, name) || isIgnored(string(ignored), name) {
			continue
		}
		strange = append(strange, name)
	}
	return strange, nil
}

// isIgnored reports whether a pattern of a .gitignore matches a name at the top.
func isIgnored(gitignore, name string) bool {
	for line := range strings.Lines(gitignore) {
		pattern := strings.Trim(strings.TrimSpace(line), "/")
		if matched, err := path.Match(pattern, name); err == nil && matched {
			return true
		}
	}
	return false
}

func TestNoFileIsTooLong(t *testing.T) {
	long, err := tooLong(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range long {
		t.Errorf("%s, more than %d: split it so that each file has one subject", file, limit)
	}
}

func TestNoPackageIsCrowded(t *testing.T) {
	found, err := crowded(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range found {
		t.Errorf("%s, more than %d: split it by subject", dir, mostFiles)
	}
}

func TestCrowdedFindsPackages(t *testing.T) {
	tree := fstest.MapFS{}
	for i := range mostFiles + 1 {
		tree[fmt.Sprintf("full/%d.go", i)] = &fstest.MapFile{}
		tree[fmt.Sprintf("tests/%d_test.go", i)] = &fstest.MapFile{}
		if i > 0 {
			tree[fmt.Sprintf("room/%d.go", i)] = &fstest.MapFile{}
		}
	}
	found, err := crowded(tree)
	if want := []string{"full has 23 Go files"}; err != nil || !slices.Equal(found, want) {
		t.Errorf("found %q, %v; want %q", found, err, want)
	}
}

func TestTopHasNoStrayFiles(t *testing.T) {
	strange, err := misplaced(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strange {
		t.Errorf("%s does not belong at the top: move it below internal, docs or deploy", name)
	}
}

func TestMainIsShort(t *testing.T) {
	text, err := os.ReadFile(root + "/cmd/badged/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(text, []byte("\n")); lines >= 50 {
		t.Errorf("main.go has %d lines, want fewer than 50: no test can call main; move code to internal/cli", lines)
	}
}

func TestTooLongFindsLongFiles(t *testing.T) {
	lines := func(n int) *fstest.MapFile { return &fstest.MapFile{Data: bytes.Repeat([]byte("x\n"), n)} }
	long, err := tooLong(fstest.MapFS{
		"ok.go":                      lines(limit),
		"long.go":                    lines(limit + 1),
		"deep/er/long.ts":            lines(limit + 1),
		"migrations/long.sql":        lines(limit + 1),
		"README.md":                  lines(limit + 1),
		"web/node_modules/a/long.ts": lines(limit + 1),
		"web/dist/long.ts":           lines(limit + 1),
		".cache/long.go":             lines(limit + 1),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"deep/er/long.ts has 601 lines", "long.go has 601 lines", "migrations/long.sql has 601 lines"}
	if !slices.Equal(long, want) {
		t.Errorf("found %q, want %q", long, want)
	}
}

func TestMisplacedFindsStrayFiles(t *testing.T) {
	file := &fstest.MapFile{}
	strange, err := misplaced(fstest.MapFS{
		".gitignore":    {Data: []byte("# Built\n/bin/\n*.test\n/coverage.out\n")},
		".editorconfig": file, "go.mod": file, "events/log.go": file,
		"bin/badged": file, "events.test": file, "coverage.out": file,
		"util/strings.go": file, "notes.md": file, "main.go": file,
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"main.go", "notes.md", "util"}; !slices.Equal(strange, want) {
		t.Errorf("found %q, want %q", strange, want)
	}
}
