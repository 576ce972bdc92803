package architecture

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// unexplained returns the packages without a doc comment, and those of the product whose doc
// comment does not say what the package must not know.
func unexplained(tree fs.FS) ([]string, error) {
	docs := map[string]string{}
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if hidden := strings.HasPrefix(d.Name(), ".") && name != "."; hidden || d.Name() == "node_modules" || d.Name() == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			return fmt.Errorf("parse the package clause: %w", err)
		}
		docs[path.Dir(name)] += docOf(file)
		return nil
	})
	ignorance := regexp.MustCompile(`\bdo(es)? not\s+know\b`)
	var found []string
	for dir, doc := range docs {
		switch {
		case doc == "":
			found = append(found, dir+" has no doc comment")
		case ofProduct(dir) && !ignorance.MatchString(doc):
			found = append(found, dir+` does not say what it must not know: add a sentence "It does not know …" to its doc comment`)
		}
	}
	slices.Sort(found)
	return found, err
}

func docOf(file *ast.File) string {
	if file.Doc == nil {
		return ""
	}
	return file.Doc.Text()
}

// ofProduct reports whether a folder has a package that the program or its users link.
func ofProduct(dir string) bool {
	for _, other := range []string{"cmd", "docs", "tests", "internal/devtest"} {
		if dir == other || strings.HasPrefix(dir, other+"/") {
			return false
		}
	}
	return true
}

func TestEveryPackageSaysWhatItMustNotKnow(t *testing.T) {
	found, err := unexplained(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
}

func TestUnexplainedPackagesAreFound(t *testing.T) {
	tree := fstest.MapFS{
		"a/a.go":     {Data: []byte("package a\n")},
		"b/b.go":     {Data: []byte("// Package b does one thing.\npackage b\n")},
		"c/c.go":     {Data: []byte("// Package c does one thing. It does not\n// know tables.\npackage c\n")},
		"tests/t.go": {Data: []byte("// Package tests tests.\npackage tests\n")},
	}
	found, err := unexplained(tree)
	want := []string{
		"a has no doc comment",
		`b does not say what it must not know: add a sentence "It does not know …" to its doc comment`,
	}
	if err != nil || !slices.Equal(found, want) {
		t.Errorf("found %q, %v; want %q", found, err, want)
	}
}
