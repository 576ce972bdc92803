package architecture

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// lostDecisions returns the references to decisions that lead nowhere: "ADR 54" in code, SQL,
// scripts and pages without a record of that number in docs/adr, links whose text names another
// number than their target, and records whose heading has another number than their name. It also
// returns how many references there are in files that are no pages.
func lostDecisions(tree fs.FS) (lost []string, inCode int, err error) {
	records, err := fs.Glob(tree, "docs/adr/0*.md")
	if err != nil {
		return nil, 0, err
	}
	exists := map[int]bool{}
	for _, name := range records {
		number, err := strconv.Atoi(path.Base(name)[:4])
		if err != nil {
			return nil, 0, fmt.Errorf("%s: the name of a record begins with four digits: %w", name, err)
		}
		exists[number] = true
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return nil, 0, err
		}
		if !strings.HasPrefix(string(text), fmt.Sprintf("# %d. ", number)) {
			lost = append(lost, fmt.Sprintf("%s: the heading must begin with %q", name, fmt.Sprintf("# %d. ", number)))
		}
	}
	reference := regexp.MustCompile(`\bADRs? ([0-9]+)`)
	link := regexp.MustCompile(`\[ADR ([0-9]+)\]\([^)]*?([0-9]{4})-`)
	err = walkTexts(tree, func(name, text string) {
		for _, match := range reference.FindAllStringSubmatch(text, -1) {
			if number, _ := strconv.Atoi(match[1]); !exists[number] {
				lost = append(lost, fmt.Sprintf("%s names ADR %s, which docs/adr does not have", name, match[1]))
			}
			if path.Ext(name) != ".md" {
				inCode++
			}
		}
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			named, _ := strconv.Atoi(match[1])
			if target, _ := strconv.Atoi(match[2]); named != target {
				lost = append(lost, fmt.Sprintf("%s links ADR %s to the record %s", name, match[1], match[2]))
			}
		}
	})
	return lost, inCode, err
}

// walkTexts calls visit with each file of the tree that people write: code, SQL, scripts and pages.
func walkTexts(tree fs.FS, visit func(name, text string)) error {
	extensions := []string{".go", ".sql", ".ts", ".tsx", ".mts", ".vue", ".js", ".sh", ".py", ".md", ".yml", ".yaml", ".java", ".swift"}
	return fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			hidden := strings.HasPrefix(d.Name(), ".") && name != "." && d.Name() != ".ci" && d.Name() != ".github"
			if hidden || d.Name() == "node_modules" || d.Name() == "dist" || d.Name() == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if !slices.Contains(extensions, path.Ext(name)) && !strings.HasPrefix(name, ".ci/") && name != "Makefile" {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err == nil {
			visit(name, string(text))
		}
		return err
	})
}

func TestReferencesToDecisionsLeadSomewhere(t *testing.T) {
	lost, inCode, err := lostDecisions(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lost {
		if !strings.HasPrefix(l, "internal/devtest/architecture/decisions_test.go") {
			t.Error(l)
		}
	}
	if inCode < 40 {
		t.Errorf("the code names decisions only %d times", inCode)
	}
}

func TestLostDecisionsAreFound(t *testing.T) {
	tree := fstest.MapFS{
		"docs/adr/0001-log.md":  {Data: []byte("# 1. The log\n")},
		"docs/adr/0002-fold.md": {Data: []byte("# 3. The fold\n")},
		"a.go":                  {Data: []byte("// See ADR 1 and ADR 7.\n")},
		"b.sql":                 {Data: []byte("-- ADR 8\n")},
		"web/c.ts":              {Data: []byte("// ADR 2\n")},
		".ci/run":               {Data: []byte("# ADR 9\n")},
		"docs/page.md":          {Data: []byte("[ADR 1](adr/0002-fold.md)\n")},
	}
	lost, inCode, err := lostDecisions(tree)
	want := []string{
		`docs/adr/0002-fold.md: the heading must begin with "# 2. "`,
		".ci/run names ADR 9, which docs/adr does not have",
		"a.go names ADR 7, which docs/adr does not have",
		"b.sql names ADR 8, which docs/adr does not have",
		"docs/page.md links ADR 1 to the record 0002",
	}
	if err != nil || !slices.Equal(lost, want) || inCode != 5 {
		t.Errorf("found %q, %d in code, %v; want %q, 5 in code", lost, inCode, err, want)
	}
}
