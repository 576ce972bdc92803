package architecture

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// Every relative link of a page must lead to a file and, if it has an anchor, to
// a heading.
func TestLinksOfPagesLeadSomewhere(t *testing.T) {
	tree := os.DirFS(root)
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	links := 0
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || d.Name() != "." && strings.HasPrefix(d.Name(), ".")) {
			return fs.SkipDir
		}
		if path.Ext(name) != ".md" {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		for _, match := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(match[1], ":") { // an external page
				continue
			}
			links++
			file, anchor, _ := strings.Cut(match[1], "#")
			target := path.Join(path.Dir(name), file)
			if file == "" {
				target = name
			}
			if !leadsTo(tree, target, anchor) {
				t.Errorf("%s: the link %s leads nowhere", name, match[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if links < 100 {
		t.Errorf("only %d links", links)
	}
}

// The list of decisions has all of them.
func TestDecisionsAreListed(t *testing.T) {
	tree := os.DirFS(path.Join(root, "docs/adr"))
	list, err := fs.ReadFile(tree, "README.md")
	if err != nil {
		t.Fatal(err)
	}
	decisions, err := fs.Glob(tree, "0*.md")
	if err != nil || len(decisions) == 0 {
		t.Fatalf("%d decisions, %v", len(decisions), err)
	}
	for _, name := range decisions {
		if !strings.Contains(string(list), "("+name+")") {
			t.Errorf("docs/adr/README.md does not list %s", name)
		}
	}
}

// The pages for contributors must name files and folders that exist.
func TestPagesNameExistingFiles(t *testing.T) {
	tree := os.DirFS(root)
	quoted := regexp.MustCompile("`([a-z.]+)(/[A-Za-z0-9_./*-]+)`")
	names := 0
	for _, page := range []string{"CONTRIBUTING.md", "docs/architecture.md", "docs/deploying.md"} {
		text, err := fs.ReadFile(tree, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range quoted.FindAllStringSubmatch(string(text), -1) {
			if _, err := fs.Stat(tree, match[1]); err != nil || match[1] == "bin" || strings.Contains(match[2], "NNNNN") {
				continue // a foreign package, a build result, or a pattern
			}
			names++
			if files, err := fs.Glob(tree, match[1]+strings.TrimSuffix(match[2], "/")); err != nil || len(files) == 0 {
				t.Errorf("%s names %s, which does not exist", page, match[1]+match[2])
			}
		}
	}
	if names < 40 {
		t.Errorf("only %d names of files", names)
	}
}

// leadsTo reports whether file exists and, unless anchor is empty, has a heading
// with that anchor.
func leadsTo(tree fs.FS, file, anchor string) bool {
	if _, err := fs.Stat(tree, file); err != nil {
		return false
	}
	if anchor == "" {
		return true
	}
	text, err := fs.ReadFile(tree, file)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if heading := strings.TrimLeft(line, "#"); heading != line && anchorOf(strings.TrimSpace(heading)) == anchor {
			return true
		}
	}
	return false
}

// anchorOf returns the anchor that GitHub makes of a heading.
func anchorOf(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r > 127 && r != '…' && r != '–':
			return r
		}
		return -1
	}, strings.ToLower(heading))
}
