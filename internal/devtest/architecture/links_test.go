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
