package architecture

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"strings"
	"testing"
)

const (
	module = "github.com/badged/badged"
	// root is the module's directory.
	root = "../.."
)

// rule forbids imports. Packages of the module are named by their directory,
// such as "./events", all others by their import path.
type rule struct {
	// why is told to whoever breaks the rule.
	why    string
	breaks func(from, to string) bool
}

// rules are what the code outside of tests must not import: data flows from
// events through projector and pubsub to gateway, and imports only go down.
func rules() []rule {
	return []rule{
		{
			"The log stands on nothing: a chat backend links events alone, to publish in its own transaction, and must not get the rest of badged or a web server with it.",
			func(from, to string) bool {
				return in(from, "./events") && (in(to, ".", "net/http") && !in(to, "./events"))
			},
		},
		{
			"Folding does not know who is told: the bus carries what changed, and whether WebSockets, HTTP or nobody hears of it must not matter to the counts.",
			func(from, to string) bool {
				return in(from, "./projector") && in(to, "./gateway", "net/http")
			},
		},
		{
			"The bus is between those that it connects: an Update says all that the projector has to tell the gateway, and a bus that knew either would tie one to the other.",
			func(from, to string) bool {
				return in(from, "./pubsub") && in(to, ".") && !in(to, "./pubsub")
			},
		},
		{
			"The gateway reads badges through the interface that it declares: so it can be put in front of any store, and be tested without one.",
			func(from, to string) bool {
				return in(from, "./gateway") && in(to, ".") && !in(to, "./gateway", "./pubsub")
			},
		},
		{
			"The schema is there before everything: migrations run on databases of any age, and code that they called would change under them.",
			func(from, to string) bool {
				return in(from, "./migrations") && in(to, ".") && !in(to, "./migrations")
			},
		},
		{
			"The pages share nothing with the server but the frames, which golden files pin on both sides: web only embeds what was built.",
			func(from, to string) bool {
				return in(from, "./web") && in(to, ".") && !in(to, "./web")
			},
		},
		{
			"Programs only start the command line: what main did itself no test could call.",
			func(from, to string) bool {
				return in(from, "./cmd") && in(to, ".") && !in(to, "./internal/cli")
			},
		},
		{
			"What other modules can import keeps to what they can import: an internal type in a public signature could not be named by its users, and internal packages change at will.",
			func(from, to string) bool {
				return !in(from, "./internal", "./cmd", "./tests") && in(to, "./internal")
			},
		},
		{
			"One place puts the parts together: internal/app knows them all and internal/cli calls it; any other package that did would be a second application.",
			func(from, to string) bool {
				const app, cli = "./internal/app", "./internal/cli"
				switch {
				case in(from, cli, "./cmd", "./tests"):
					return false
				case in(from, app):
					return in(to, cli)
				}
				return in(from, "./internal") && in(to, app, cli, "./gateway", "./internal/httpapi")
			},
		},
		{
			"Nothing is built on programs and black-box suites: they use badged as its users do, and are free to change.",
			func(from, to string) bool {
				return in(to, "./cmd", "./tests") && !in(from, "./cmd", "./tests")
			},
		},
		{
			"What is there for tests stays in tests: it starts servers, keeps state and panics, and the binary would carry it.",
			func(from, to string) bool {
				return forTests(to) && !forTests(from) && !in(from, "./tests")
			},
		},
	}
}

// in reports whether a package is one of dirs or below it; "." is the module.
func in(pkg string, dirs ...string) bool {
	for _, dir := range dirs {
		if pkg == dir || strings.HasPrefix(pkg, dir+"/") {
			return true
		}
	}
	return false
}

// forTests reports whether a package is of use to tests only.
func forTests(pkg string) bool {
	return pkg == "testing" || strings.HasPrefix(pkg, "testing/") ||
		in(pkg, "./internal/privateredis") || in(pkg, ".") && strings.HasSuffix(path.Base(pkg), "test")
}

// broken returns why an import is forbidden, by each rule that forbids it.
func broken(from, to string) []string {
	var why []string
	for _, r := range rules() {
		if r.breaks(from, to) {
			why = append(why, r.why)
		}
	}
	return why
}

// imports returns what each package of the module imports outside of its tests.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	var stderr bytes.Buffer
	list := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "./...")
	list.Dir, list.Stderr = root, &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	all := map[string][]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg struct {
			ImportPath string
			Imports    []string
		}
		err := dec.Decode(&pkg)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		from := relative(pkg.ImportPath)
		all[from] = []string{}
		for _, to := range pkg.Imports {
			all[from] = append(all[from], relative(to))
		}
	}
}

// relative returns the name of a package in rules.
func relative(importPath string) string {
	if rest, ok := strings.CutPrefix(importPath, module); ok && (rest == "" || rest[0] == '/') {
		return "." + rest
	}
	return importPath
}

func TestImportsGoDown(t *testing.T) {
	all := imports(t)
	for from, imported := range all {
		for _, to := range imported {
			for _, why := range broken(from, to) {
				t.Errorf("%s imports %s.\n%s", from, to, why)
			}
		}
	}
	// Had the list been empty or otherwise named, all would seem well.
	for _, edge := range []struct{ from, to string }{
		{"./cmd/badged", "./internal/cli"},
		{"./internal/app", "./gateway"},
		{"./projector", "./events"},
		{"./gateway", "net/http"},
		{"./internal/pgtest", "testing"},
	} {
		found := false
		for _, to := range all[edge.from] {
			found = found || to == edge.to
		}
		if !found {
			t.Errorf("the list does not have that %s imports %s, only %q", edge.from, edge.to, all[edge.from])
		}
	}
}

func TestRulesForbidWhatTheyShould(t *testing.T) {
	forbidden := []struct {
		rule int // of rules
		from string
		to   []string
	}{
		{0, "./events", []string{"./projector", "./gateway", "./pubsub", "./migrations", "./web", "./internal/obs", ".", "net/http", "net/http/httputil"}},
		{1, "./projector", []string{"./gateway", "net/http"}},
		{1, "./projector/explain", []string{"./gateway"}},
		{2, "./pubsub", []string{"./events", "./projector", "./gateway", "./internal/obs"}},
		{2, "./pubsub/pubsubtest", []string{"./events", "./gateway"}},
		{3, "./gateway", []string{"./events", "./projector", "./internal/auth", "./migrations", "./web"}},
		{4, "./migrations", []string{"./events", "./internal/config"}},
		{5, "./web", []string{"./gateway", "./pubsub", "./internal/httpapi"}},
		{6, "./cmd/badged", []string{"./internal/app", "./internal/config", "./events", "./cmd/other"}},
		{7, "./events", []string{"./internal/obs"}},
		{7, "./projector", []string{"./internal/httpapi"}},
		{7, "./gateway", []string{"./internal/auth"}},
		{7, ".", []string{"./internal/app"}},
		{8, "./internal/httpapi", []string{"./gateway", "./internal/app"}},
		{8, "./internal/demo", []string{"./internal/app", "./internal/httpapi"}},
		{8, "./internal/app", []string{"./internal/cli"}},
		{9, "./internal/traffic", []string{"./tests/bench", "./cmd/badged"}},
		{9, "./events", []string{"./tests"}},
		{10, "./internal/cli", []string{"./internal/pgtest", "./internal/privateredis", "testing"}},
		{10, "./projector", []string{"./pubsub/pubsubtest", "testing", "testing/fstest"}},
	}
	proven := map[int]bool{}
	all := rules()
	for _, f := range forbidden {
		for _, to := range f.to {
			if !all[f.rule].breaks(f.from, to) {
				t.Errorf("that %s imports %s does not break: %s", f.from, to, all[f.rule].why)
			}
			if len(broken(f.from, to)) == 0 {
				t.Errorf("%s may import %s", f.from, to)
			}
		}
		proven[f.rule] = true
	}
	for i, r := range all {
		if !proven[i] {
			t.Errorf("no example breaks: %s", r.why)
		}
		if !strings.HasSuffix(r.why, ".") {
			t.Errorf("not a sentence: %s", r.why)
		}
	}
}

func TestRulesAllowWhatTheyShould(t *testing.T) {
	for from, allowed := range map[string][]string{
		"./events":            {"context", "net", "github.com/jackc/pgx/v5", "github.com/badged/badgedtest"},
		"./projector":         {"./events", "./pubsub", "net/url"},
		"./pubsub/pubsubtest": {"./pubsub", "testing", "go.uber.org/goleak"},
		"./gateway":           {"./pubsub", "net/http", "github.com/gorilla/websocket"},
		"./cmd/badged":        {"./internal/cli", "os"},
		"./internal/app":      {"./events", "./projector", "./pubsub", "./gateway", "./migrations", "./internal/httpapi", "net/http"},
		"./internal/cli":      {"./internal/app", "./internal/demo", "./web", "./internal/embedpg"},
		"./internal/httpapi":  {"./events", "./projector", "./pubsub", "./internal/auth", "net/http"},
		"./internal/pgtest":   {"./internal/embedpg", "testing"},
		"./eventsource":       {"./gateway"}, // whose name only starts alike
		"./tests/bench":       {"./internal/embedpg", "./internal/privateredis", "./tests/bench/load", "testing"},
	} {
		for _, to := range allowed {
			for _, why := range broken(from, to) {
				t.Errorf("%s must not import %s. %s", from, to, why)
			}
		}
	}
}
