package architecture

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/badged/badged/internal/pg/sqlfile"
)

// misnamed returns the statements of files for sqlfile that the Go files of
// their directory do not use, and the names that those use and no file has. A
// package keeps its statements in a variable called statements.
func misnamed(tree fs.FS) (wrong []string, named int, err error) {
	defined, used := map[string]bool{}, map[string]bool{}
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{"node_modules", "dist", ".git"}, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		dir := path.Dir(name)
		switch path.Ext(name) {
		case ".sql":
			text, err := fs.ReadFile(tree, name)
			if err == nil && strings.Contains(string(text), "-- name: ") {
				for statement := range sqlfile.Parse(string(text)) {
					defined[dir+": "+statement] = true
					used[dir+": "+statement] = used[dir+": "+statement] || strings.Contains(string(text), "{"+statement+"}")
				}
			}
			return err
		case ".go":
			text, err := fs.ReadFile(tree, name)
			if err != nil {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				method, ok := call.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if of, ok := method.X.(*ast.Ident); !ok || of.Name != "statements" {
					return true
				}
				literal, ok := call.Args[len(call.Args)-1].(*ast.BasicLit)
				if !ok {
					wrong = append(wrong, name+" names a statement that is no literal")
					return true
				}
				statement, err := strconv.Unquote(literal.Value)
				if err == nil {
					used[dir+": "+statement] = true
				}
				return true
			})
		}
		return nil
	})
	for statement := range defined {
		if !used[statement] {
			wrong = append(wrong, fmt.Sprintf("%s: no Go file uses the statement", statement))
		}
	}
	for statement, is := range used {
		if is && !defined[statement] {
			wrong = append(wrong, fmt.Sprintf("%s: no .sql file has the statement", statement))
		}
	}
	slices.Sort(wrong)
	return wrong, len(defined), err
}

func TestStatementsAreNamedAndUsed(t *testing.T) {
	wrong, named, err := misnamed(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wrong {
		t.Error(w)
	}
	if named == 0 {
		t.Error("no statement was found")
	}
}

func TestMisnamedStatementsAreFound(t *testing.T) {
	wrong, named, err := misnamed(fstest.MapFS{
		"a/a.sql":           {Data: []byte("-- name: read\nSELECT {part}\n-- name: write\nSELECT 2\n-- name: part\n1\n")},
		"a/a.go":            {Data: []byte("package a\n\nvar _ = statements.Of(1, \"read\") + statements.Get(\"drop\") + statements.Get(name)\n")},
		"migrations/00.sql": {Data: []byte("-- +goose Up\nSELECT 1\n")},
	})
	want := []string{
		"a/a.go names a statement that is no literal",
		"a: drop: no .sql file has the statement",
		"a: write: no Go file uses the statement",
	}
	if err != nil || named != 3 || !slices.Equal(wrong, want) {
		t.Errorf("of %d statements it finds %q, %v", named, wrong, err)
	}
}
