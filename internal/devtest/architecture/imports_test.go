package architecture

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const (
	module = "github.com/badged/badged"
	// root is the module's directory.
	root = "../../.."
)

// rule forbids imports. Packages of the module are named by their directory,
// such as "./events", all others by their import path.
type rule struct {
	// why is part of the message when the rule is broken.
	why    string
	breaks func(from, to string) bool
}

// rooms are the top folders of the code, and those of internal, from the lowest on. A package
// imports rooms before its own only, and others of its own.
var rooms = [][]string{
	{"./internal/base"},
	{"./internal/pg", "./web", "./migrations"},
	{"./pubsub", "./internal/obs"},
	{"./events", "./internal/log"},
	{"./internal/fold"},
	{"./projector"},
	{"./internal/partition"},
	{"./internal/user"},
	{"./internal/notify", "./gateway", "./internal/cluster"},
	{"./internal/operations"},
	{"./internal/bridge"},
	{"./internal/server"},
	{"./internal/demo", "./internal/conformance"},
	{"./internal/cli"},
	{"./cmd"},
}

// floor returns the place of a package's room in rooms, -1 if it is in none.
func floor(pkg string) int {
	return slices.IndexFunc(rooms, func(same []string) bool { return in(pkg, same...) })
}

// rules returns what code outside of tests must not import. Data flows from
// events through projector and pubsub to gateway; imports go down only.
func rules() []rule {
	return []rule{
		{
			"Rooms stand on each other: a package imports those before its own in the list of rooms only, so that each can be read with what it stands on.",
			func(from, to string) bool {
				return floor(from) >= 0 && floor(to) > floor(from) && !forTests(from)
			},
		},
		{
			"Package events imports no other package of badged and no web server: a chat backend links events alone to publish in its own transaction.",
			func(from, to string) bool {
				return in(from, "./events") && in(to, ".", "net/http") && !in(to, "./events", "./internal/log", "./internal/base", "./internal/pg/pgfault", "./internal/pg/pgsession", "./internal/pg/sqlfile")
			},
		},
		{
			"The projector does not know its readers: it hands changes to the bus, and counts must not depend on how clients receive them.",
			func(from, to string) bool {
				return in(from, "./projector") && in(to, "./gateway", "net/http")
			},
		},
		{
			"The bus imports neither side: an Update holds all that the projector tells the gateway, and a bus that imported one would couple them.",
			func(from, to string) bool {
				return in(from, "./pubsub") && in(to, ".") && !in(to, "./pubsub", "./internal/base")
			},
		},
		{
			"The gateway reads badges through an interface that it declares, so it works with any store and can be tested without one.",
			func(from, to string) bool {
				return in(from, "./gateway") && in(to, ".") && !in(to, "./gateway", "./pubsub", "./internal/base", "./internal/pg/dbclock")
			},
		},
		{
			"Migrations import nothing of badged: they run on databases of any age, and code that they called would change under them.",
			func(from, to string) bool {
				return in(from, "./migrations") && in(to, ".") && !in(to, "./migrations")
			},
		},
		{
			"Package web only embeds built files: pages and server share nothing but the frames, which golden files pin on both sides.",
			func(from, to string) bool {
				return in(from, "./web") && in(to, ".") && !in(to, "./web")
			},
		},
		{
			"Programs only start internal/cli: no test can call code in main.",
			func(from, to string) bool {
				return in(from, "./cmd") && in(to, ".") && !in(to, "./internal/cli")
			},
		},
		{
			"What other modules can import stands on the lower rooms of internal only: its signatures have no types of theirs, which its users could not name.",
			func(from, to string) bool {
				return !in(from, "./internal", "./cmd", "./tests") && in(to, "./internal") && !in(to, "./internal/base", "./internal/pg", "./internal/log", "./internal/fold")
			},
		},
		{
			"Only internal/server/app puts the parts together, and only internal/cli calls it: another package that did so would be a second application.",
			func(from, to string) bool {
				const app, cli = "./internal/server/app", "./internal/cli"
				switch {
				case in(from, cli, "./cmd", "./tests"):
					return false
				case in(from, app):
					return in(to, cli)
				case in(to, "./internal/notify/push/webpush"):
					return false // pure functions: the phones of the demo decrypt with them
				}
				return in(from, "./internal") && in(to, app, cli, "./gateway", "./internal/server/httpapi")
			},
		},
		{
			"No package imports programs or black-box suites: these use badged as its users do and may change freely.",
			func(from, to string) bool {
				return in(to, "./cmd", "./tests") && !in(from, "./cmd", "./tests")
			},
		},
		{
			"Only tests import test helpers: these start servers, keep state and panic, and would end up in the binary.",
			func(from, to string) bool {
				return forTests(to) && !forTests(from) && !in(from, "./tests")
			},
		},
		{
			"The fold is pure: state and event in, state out. What reads tables, clocks or networks could not be shuffled by a property test.",
			func(from, to string) bool {
				return in(from, "./internal/fold/badge") &&
					(in(to, ".") && !in(to, "./events", "./internal/log/tombstones", "./internal/base/category", "./internal/fold/badge") || in(to, "context", "os", "net", "database", "github.com/jackc"))
			},
		},
		{
			"Folding again does not need folding to run: what works on partitions and users works on tables beside any projector.",
			func(from, to string) bool {
				return to == "./projector" && in(from, "./internal/partition", "./internal/user", "./internal/notify", "./internal/operations/deadletters")
			},
		},
		{
			"What reads a partition again is below what writes it anew: replay knows neither rebuilds nor archiving.",
			func(from, to string) bool {
				parts := []string{"./internal/partition/archive", "./internal/partition/replay", "./internal/partition/rebuild", "./internal/partition/archiving"}
				for i, part := range parts {
					if in(from, part) && in(to, parts[i+1:]...) {
						return true
					}
				}
				return false
			},
		},
		{
			"Scenarios are built from the other parts of the benchmarks: a part that knew a scenario, or one above it, could not be used by the others.",
			func(from, to string) bool {
				const bench = "./tests/bench/"
				parts := []string{bench + "contest", bench + "rig", bench + "load", bench + "scenarios"}
				for i, part := range parts {
					if in(from, part) && (to == "./tests/bench" || in(to, parts[i+1:]...)) {
						return true
					}
				}
				return false
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

// forTests reports whether a package is for tests only.
func forTests(pkg string) bool {
	return pkg == "testing" || strings.HasPrefix(pkg, "testing/") ||
		in(pkg, "./internal/devtest") || in(pkg, ".") && strings.HasSuffix(path.Base(pkg), "test")
}

// broken returns the reason of each rule that an import breaks.
func broken(from, to string) []string {
	var why []string
	for _, r := range rules() {
		if r.breaks(from, to) {
			why = append(why, r.why)
		}
	}
	return why
}

// imports returns what each package of the product and of the benchmarks imports
// outside of its tests.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, dir := range []string{root, root + "/tests/bench"} {
		maps.Copy(all, importsIn(t, dir))
	}
	return all
}

// importsIn returns the imports of a module's packages.
func importsIn(t *testing.T, dir string) map[string][]string {
	t.Helper()
	var stderr bytes.Buffer
	list := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "./...")
	list.Dir, list.Stderr = dir, &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list in %s: %v\n%s", dir, err, &stderr)
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
			t.Fatalf("go list in %s: %v", dir, err)
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
	for from := range all {
		if floor(from) < 0 && !forTests(from) && !in(from, "./tests", "./docs", "./internal/deploy") {
			t.Errorf("%s is in no room", from)
		}
	}
	for from, imported := range all {
		for _, to := range imported {
			for _, why := range broken(from, to) {
				t.Errorf("%s imports %s.\n%s", from, to, why)
			}
		}
	}
	// An empty list, or one with other names, would break no rule.
	for _, edge := range []struct{ from, to string }{
		{"./cmd/badged", "./internal/cli"},
		{"./internal/server/app", "./gateway"},
		{"./projector", "./events"},
		{"./gateway", "net/http"},
		{"./internal/devtest/pgtest", "testing"},
		{"./tests/bench/scenarios", "./projector"},
	} {
		found := false
		for _, to := range all[edge.from] {
			found = found || to == edge.to
		}
		if !found {
			t.Errorf("the list lacks the import of %[2]s by %[1]s; it has %[3]q", edge.from, edge.to, all[edge.from])
		}
	}
}

func TestRulesForbidWhatTheyShould(t *testing.T) {
	forbidden := []struct {
		rule int // of rules
		from string
		to   []string
	}{
		{0, "./internal/base/wait", []string{"./events", "./internal/pg/pgfault"}},
		{0, "./internal/fold/store", []string{"./projector", "./internal/partition/replay"}},
		{0, "./projector", []string{"./internal/partition/rebuild", "./internal/operations/deadletters"}},
		{0, "./internal/cluster", []string{"./internal/operations", "./internal/server/app"}},
		{1, "./events", []string{"./projector", "./gateway", "./pubsub", "./migrations", "./web", "./internal/obs", "./internal/pg/embedpg", ".", "net/http", "net/http/httputil"}},
		{2, "./projector", []string{"./gateway", "net/http"}},
		{2, "./projector/badges", []string{"./gateway"}},
		{3, "./pubsub", []string{"./events", "./projector", "./gateway", "./internal/obs"}},
		{3, "./pubsub/pubsubtest", []string{"./events", "./gateway"}},
		{4, "./gateway", []string{"./events", "./projector", "./internal/server/auth", "./migrations", "./web"}},
		{5, "./migrations", []string{"./events", "./internal/server/config"}},
		{6, "./web", []string{"./gateway", "./pubsub", "./internal/server/httpapi"}},
		{7, "./cmd/badged", []string{"./internal/server/app", "./internal/server/config", "./events", "./cmd/other"}},
		{8, "./events", []string{"./internal/obs"}},
		{8, "./projector", []string{"./internal/server/httpapi", "./internal/partition"}},
		{8, "./gateway", []string{"./internal/server/auth"}},
		{8, ".", []string{"./internal/server/app"}},
		{9, "./internal/server/httpapi", []string{"./gateway", "./internal/server/app"}},
		{9, "./internal/demo", []string{"./internal/server/app", "./internal/server/httpapi"}},
		{9, "./internal/server/app", []string{"./internal/cli"}},
		{10, "./internal/bridge/traffic", []string{"./tests/bench", "./cmd/badged"}},
		{10, "./events", []string{"./tests"}},
		{11, "./internal/cli", []string{"./internal/devtest/pgtest", "./internal/devtest/privateredis", "testing"}},
		{11, "./projector", []string{"./pubsub/pubsubtest", "testing", "testing/fstest"}},
		{12, "./internal/fold/badge", []string{"./pubsub", "./internal/fold/store", "context", "net/http", "github.com/jackc/pgx/v5"}},
		{13, "./internal/partition/replay", []string{"./projector"}},
		{13, "./internal/user/expiry", []string{"./projector"}},
		{13, "./internal/notify/outbound", []string{"./projector"}},
		{14, "./internal/partition/replay", []string{"./internal/partition/rebuild", "./internal/partition/archiving"}},
		{14, "./internal/partition/archive", []string{"./internal/partition/replay"}},
		{15, "./tests/bench/contest", []string{"./tests/bench", "./tests/bench/rig", "./tests/bench/scenarios"}},
		{15, "./tests/bench/load", []string{"./tests/bench/scenarios"}},
	}
	proven := map[int]bool{}
	all := rules()
	for _, f := range forbidden {
		for _, to := range f.to {
			if !all[f.rule].breaks(f.from, to) {
				t.Errorf("that %s imports %s does not break: %s", f.from, to, all[f.rule].why)
			}
			if len(broken(f.from, to)) == 0 {
				t.Errorf("no rule forbids that %s imports %s", f.from, to)
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
		"./events":                        {"context", "net", "github.com/jackc/pgx/v5", "github.com/badged/badgedtest"},
		"./projector":                     {"./events", "./pubsub", "net/url", "./internal/fold/store", "./internal/fold/lag", "./internal/pg/pgsession"},
		"./internal/partition/rebuild":    {"./internal/partition/replay", "./projector/badges"},
		"./internal/fold/store/storetest": {"./internal/devtest/foldtest", "./internal/fold/store"},
		"./pubsub/pubsubtest":             {"./pubsub", "testing", "go.uber.org/goleak"},
		"./gateway":                       {"./pubsub", "net/http", "github.com/gorilla/websocket"},
		"./cmd/badged":                    {"./internal/cli", "os"},
		"./internal/server/app":           {"./events", "./projector", "./pubsub", "./gateway", "./migrations", "./internal/server/httpapi", "net/http"},
		"./internal/cli":                  {"./internal/server/app", "./internal/demo", "./web", "./internal/pg/embedpg"},
		"./internal/server/httpapi":       {"./events", "./projector", "./pubsub", "./internal/server/auth", "net/http"},
		"./internal/devtest/pgtest":       {"./internal/pg/embedpg", "testing"},
		"./eventsource":                   {"./gateway"}, // a prefix of the name is not a match
		"./tests/bench/rig":               {"./internal/pg/embedpg", "./internal/devtest/privateredis", "./tests/bench/contest", "testing"},
		"./tests/bench/scenarios":         {"./internal/server/app", "./tests/bench/stream", "./tests/bench/load"},
	} {
		for _, to := range allowed {
			for _, why := range broken(from, to) {
				t.Errorf("%s must not import %s. %s", from, to, why)
			}
		}
	}
}
