package architecture

import (
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// Routes must come from tables that describe them, or /openapi.json would lack them. So
// each place that gives a handler to a mux is known here, by what it passes as the pattern:
// that of a route of a table, the prefix of a table, a fallback, or the files of the admin
// page. The private API of the demo page and that of badged dev are exempt.
func TestRoutesAreInTables(t *testing.T) {
	want := map[string][]string{
		"internal/server/app/app.go":        {`"/admin/v1/"`, `"/v1/"`, "pattern"}, // pattern is of App.Handle, which the demo page calls
		"internal/server/app/operations.go": {`"/admin/"`},
		"internal/server/app/routes.go":     {"httpapi.ProfilesPath", "r.Pattern()", "r.Pattern()", "r.Pattern()"},
		"internal/cli/demo.go":              {`"/"`},
		"internal/cli/dev.go":               {`"GET /dev/folded"`},
		"internal/server/httpapi/api.go":    {`"/"`, "r.Pattern()"},
		"internal/obs/repeats.go":           {"context.Background()", "ctx"}, // handlers of logs
	}
	found := map[string][]string{}
	tree := os.DirFS(root)
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") ||
			in("./"+path.Dir(name), "./internal/demo", "./tests") {
			return err
		}
		patterns, err := patternsIn(tree, name)
		if len(patterns) > 0 {
			found[name] = patterns
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if !slices.Equal(found[name], want[name]) {
			t.Errorf("%s gives a mux handlers of %q, want only of %q: put the route into a table of describe.Route", name, found[name], want[name])
		}
	}
	if len(found) != len(want) {
		t.Errorf("found the patterns %v, want %d files with some: does this test look in the wrong place?", found, len(want))
	}
}

// patternsIn returns the patterns that a file passes to muxes, as they are written, in
// order.
func patternsIn(tree fs.FS, name string) (patterns []string, err error) {
	text, err := fs.ReadFile(tree, name)
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 2 {
			return true
		}
		if method, ok := call.Fun.(*ast.SelectorExpr); ok && (method.Sel.Name == "Handle" || method.Sel.Name == "HandleFunc") {
			var pattern strings.Builder
			if err = printer.Fprint(&pattern, files, call.Args[0]); err != nil {
				return false
			}
			patterns = append(patterns, pattern.String())
		}
		return true
	})
	slices.Sort(patterns)
	return patterns, err
}
