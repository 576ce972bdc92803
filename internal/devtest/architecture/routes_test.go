package architecture

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Routes must come from tables that describe them, or /openapi.json would lack
// them. Only the prefix of a table, a fallback and the files of the admin page may
// be passed to a mux by pattern. The private API of the demo page is exempt.
func TestRoutesAreInTables(t *testing.T) {
	byName := regexp.MustCompile(`\.Handle(?:Func)?\("([^"]*)"`)
	allowed := map[string][]string{
		"internal/app/app.go":        {"/v1/", "/admin/v1/"},
		"internal/app/operations.go": {"/admin/"},
		"internal/httpapi/api.go":    {"/"},
		"internal/cli/demo.go":       {"/"},
	}
	found := map[string][]string{}
	tree := os.DirFS(root)
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") ||
			in("./"+path.Dir(name), "./internal/demo", "./tests") {
			return err
		}
		text, err := fs.ReadFile(tree, name)
		for _, match := range byName.FindAllSubmatch(text, -1) {
			found[name] = append(found[name], string(match[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, patterns := range found {
		if !slices.Equal(patterns, allowed[name]) {
			t.Errorf("%s registers the patterns %q, want only %q: put the route into a table of describe.Route", name, patterns, allowed[name])
		}
	}
	if len(found) != len(allowed) {
		t.Errorf("found the patterns %v, want %d files with some: does this test look in the wrong place?", found, len(allowed))
	}
}
