package architecture

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os/exec"
	"path"
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

// rules returns what code outside of tests must not import. Data flows from
// events through projector and pubsub to gateway; imports go down only.
func rules() []rule {
	return []rule{
		{
			"Package events imports no other package of badged and no web server: a chat backend links events alone to publish in its own transaction.",
			func(from, to string) bool {
				return in(from, "./events") && (in(to, ".", "net/http") && !in(to, "./events", "./internal/eventlog", "./internal/pgwire", "./internal/eventbatch", "./internal/pgsession", "./internal/sqlfile", "./internal/remains", "./internal/rfc3339", "./internal/wait", "./internal/category"))
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
				return in(from, "./pubsub") && in(to, ".") && !in(to, "./pubsub", "./internal/resp", "./internal/defaults", "./internal/wait", "./internal/category")
			},
		},
		{
			"The gateway reads badges through an interface that it declares, so it works with any store and can be tested without one.",
			func(from, to string) bool {
				return in(from, "./gateway") && in(to, ".") && !in(to, "./gateway", "./pubsub", "./internal/limit", "./internal/dbclock", "./internal/defaults", "./internal/wait", "./internal/category")
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
			"What other modules can import keeps to what they can import: an internal type in a public signature could not be named by its users. How the log works inside, how arrays go to Postgres, how rows of the log are packed, how sessions hold locks, where statements are kept, how clients are limited, how clocks are compared, how times are read, how loops wait, how defaults are filled in, how badged appends for itself and how answers of Redis are bounded are in no signature; what categories add up to has a name in pubsub.",
			func(from, to string) bool {
				return !in(from, "./internal", "./cmd", "./tests") && in(to, "./internal") && !in(to, "./internal/eventlog", "./internal/pgwire", "./internal/eventbatch", "./internal/pgsession", "./internal/sqlfile", "./internal/remains", "./internal/resp", "./internal/limit", "./internal/dbclock", "./internal/rfc3339", "./internal/appending", "./internal/defaults", "./internal/wait", "./internal/category") &&
					(!forTests(from) || !in(from, "./projector/internal")) // other modules cannot import it
			},
		},
		{
			"Only internal/app puts the parts together, and only internal/cli calls it: another package that did so would be a second application.",
			func(from, to string) bool {
				const app, cli = "./internal/app", "./internal/cli"
				switch {
				case in(from, cli, "./cmd", "./tests"):
					return false
				case in(from, app):
					return in(to, cli)
				case in(to, "./gateway/push/webpush"):
					return false // pure functions: the phones of the demo decrypt with them
				}
				return in(from, "./internal") && in(to, app, cli, "./gateway", "./internal/httpapi")
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
			"Publishers link events: how a restored log is renumbered is none of their business.",
			func(from, to string) bool {
				return in(from, "./events") && !in(from, "./events/renumber") && in(to, "./events/renumber")
			},
		},
		{
			"The fold is pure: state and event in, state out. What reads tables, clocks or networks could not be shuffled by a property test.",
			func(from, to string) bool {
				return in(from, "./projector/internal/badge") &&
					(in(to, ".") && !in(to, "./events", "./internal/remains", "./internal/category", "./projector/internal/badge") || in(to, "context", "os", "net", "database", "github.com/jackc"))
			},
		},
		{
			"The store writes what the fold says: the fold is below it, and whatever runs batches, replays or reads is above.",
			func(from, to string) bool {
				return in(from, "./projector/internal/store") &&
					in(to, "./projector") && !in(to, "./projector/internal")
			},
		},
		{
			"Folding again does not need folding to run: replay, and rebuild and archiving above it, work on tables beside any projector.",
			func(from, to string) bool {
				rooms := []string{"./projector/archive", "./projector/replay", "./projector/rebuild", "./projector/archiving"}
				if to == "./projector" && in(from, append(rooms, "./projector/badges", "./projector/lag", "./projector/logview", "./projector/erasure", "./projector/merging", "./projector/deadletters", "./projector/expiry", "./projector/outbound")...) {
					return true
				}
				for i, room := range rooms {
					if in(from, room) && in(to, rooms[i+1:]...) {
						return true
					}
				}
				return false
			},
		},
		{
			"The loop that all badges wait for depends on nothing that only operators need.",
			func(from, to string) bool {
				return from == "./projector" && in(to, "./projector/replay", "./projector/rebuild", "./projector/archiving", "./projector/expiry", "./projector/deadletters", "./projector/outbound", "./projector/erasure", "./projector/merging")
			},
		},
		{
			"Scenarios are built from the other parts of the benchmarks: a part that knew a scenario, or one above it, could not be used by the others.",
			func(from, to string) bool {
				const bench = "./tests/bench/"
				parts := []string{bench + "measure", bench + "rig", bench + "contest", bench + "load", bench + "ways", bench + "scenarios"}
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
		{"./internal/app", "./gateway"},
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
		{10, "./internal/cli", []string{"./internal/devtest/pgtest", "./internal/devtest/privateredis", "testing"}},
		{10, "./projector", []string{"./pubsub/pubsubtest", "testing", "testing/fstest"}},
		{11, "./events", []string{"./events/renumber"}},
		{12, "./projector/internal/badge", []string{"./pubsub", "./projector/internal/store", "context", "net/http", "github.com/jackc/pgx/v5"}},
		{13, "./projector/internal/store", []string{"./projector", "./projector/replay"}},
		{14, "./projector/replay", []string{"./projector", "./projector/rebuild", "./projector/archiving"}},
		{14, "./projector/archive", []string{"./projector/replay"}},
		{14, "./projector/expiry", []string{"./projector"}},
		{14, "./projector/outbound", []string{"./projector"}},
		{15, "./projector", []string{"./projector/replay", "./projector/rebuild", "./projector/deadletters"}},
		{16, "./tests/bench/rig", []string{"./tests/bench", "./tests/bench/contest", "./tests/bench/scenarios"}},
		{16, "./tests/bench/load", []string{"./tests/bench/ways"}},
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
		"./events":                             {"context", "net", "github.com/jackc/pgx/v5", "github.com/badged/badgedtest"},
		"./projector":                          {"./events", "./pubsub", "net/url", "./projector/internal/store", "./projector/lag", "./internal/pgsession"},
		"./projector/rebuild":                  {"./projector/replay", "./projector/badges"},
		"./projector/internal/store/storetest": {"./internal/devtest/foldtest", "./projector/internal/store"},
		"./pubsub/pubsubtest":                  {"./pubsub", "testing", "go.uber.org/goleak"},
		"./gateway":                            {"./pubsub", "net/http", "github.com/gorilla/websocket"},
		"./cmd/badged":                         {"./internal/cli", "os"},
		"./internal/app":                       {"./events", "./projector", "./pubsub", "./gateway", "./migrations", "./internal/httpapi", "net/http"},
		"./internal/cli":                       {"./internal/app", "./internal/demo", "./web", "./internal/embedpg"},
		"./internal/httpapi":                   {"./events", "./projector", "./pubsub", "./internal/auth", "net/http"},
		"./internal/devtest/pgtest":            {"./internal/embedpg", "testing"},
		"./eventsource":                        {"./gateway"}, // a prefix of the name is not a match
		"./tests/bench/rig":                    {"./internal/embedpg", "./internal/devtest/privateredis", "./tests/bench/measure", "testing"},
		"./tests/bench/scenarios":              {"./internal/app", "./tests/bench/stream", "./tests/bench/ways"},
	} {
		for _, to := range allowed {
			for _, why := range broken(from, to) {
				t.Errorf("%s must not import %s. %s", from, to, why)
			}
		}
	}
}
