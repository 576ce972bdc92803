package architecture

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"regexp"
	"testing"
	"testing/fstest"
)

// missingCalls returns the calls of the tables of a page whose file does not have them, and how
// many calls the page names. A row begins with a file and a function, or a method as Type.Method.
func missingCalls(tree fs.FS, page string) (missing []string, calls int, err error) {
	text, err := fs.ReadFile(tree, page)
	if err != nil {
		return nil, 0, err
	}
	row := regexp.MustCompile("(?m)^\\| `([a-z0-9_/.]+\\.go)` \\| `([A-Za-z.]+)` \\|")
	for _, match := range row.FindAllStringSubmatch(string(text), -1) {
		calls++
		source, err := fs.ReadFile(tree, match[1])
		if err != nil {
			missing = append(missing, fmt.Sprintf("%s: %v", page, err))
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), match[1], source, parser.SkipObjectResolution)
		if err != nil {
			return nil, 0, fmt.Errorf("parse a file that %s names: %w", page, err)
		}
		if !declares(file, match[2]) {
			missing = append(missing, fmt.Sprintf("%s: %s does not have %s", page, match[1], match[2]))
		}
	}
	return missing, calls, nil
}

// declares reports whether a file has a function with that name, or a method as Type.Method.
func declares(file *ast.File, name string) bool {
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		full := f.Name.Name
		if f.Recv != nil {
			receiver := f.Recv.List[0].Type
			if pointer, ok := receiver.(*ast.StarExpr); ok {
				receiver = pointer.X
			}
			if generic, ok := receiver.(*ast.IndexExpr); ok {
				receiver = generic.X
			}
			full = fmt.Sprintf("%s.%s", receiver, full)
		}
		if full == name {
			return true
		}
	}
	return false
}

func TestCallsOfTheArchitecturePageExist(t *testing.T) {
	missing, calls, err := missingCalls(os.DirFS(root), "docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range missing {
		t.Error(m)
	}
	if calls < 30 {
		t.Errorf("only %d calls", calls)
	}
}

func TestMissingCallsAreFound(t *testing.T) {
	tree := fstest.MapFS{
		"page.md": {Data: []byte("| `a.go` | `T.do` | x |\n| `a.go` | `run` | x |\n| `a.go` | `T.run` | x |\n| `b.go` | `do` | x |\n")},
		"a.go":    {Data: []byte("package a\n\ntype T struct{}\n\nfunc (t *T) do() {}\n\nfunc run() {}\n")},
	}
	missing, calls, err := missingCalls(tree, "page.md")
	if err != nil || calls != 4 || len(missing) != 2 || missing[0] != "page.md: a.go does not have T.run" {
		t.Errorf("%d calls, missing %q, %v; want T.run of a.go and b.go", calls, missing, err)
	}
}
