package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/snippets"
	"github.com/badged/badged/internal/devtest/source"
)

// programs are the programs that pages call. The words that a page passes to badged, curl, make
// and go are checked.
var programs = []string{
	"badged", "curl", "make", "go",
	"base64", "createdb", "cut", "date", "docker", "helm", "install", "jar", "javac", "kubectl", "mmctl", "mongoexport",
	"npm", "openssl", "pip", "redis-cli", "sha256sum", "sleep", "source", "systemctl", "tail", "timeout", "tr",
}

// calls runs a script in which each program only records the words that it is called with.
// It returns these words, beginning with the name of the program.
func calls(t *testing.T, dir, script string) (all [][]string) {
	t.Helper()
	record := filepath.Join(t.TempDir(), "calls")
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), sh, "-c", script)
	cmd.Env = []string{"PATH=" + dir, "RECORD=" + record, "BADGED_PUBLISHER_KEY=secret"}
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	recorded, err := os.ReadFile(record)
	if err != nil {
		t.Fatalf("it calls no program: %v", err)
	}
	const end = "\x00\n\x00" // of a call
	for call := range strings.SplitSeq(strings.TrimSuffix(string(recorded), end), end) {
		all = append(all, strings.Split(call, "\x00"))
	}
	return all
}

// recorders returns a folder with programs that record how they are called.
func recorders(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range programs {
		// In one write, since a script may run a program in the background.
		script := "#!/bin/sh\nprintf '%s\\0' " + name + " \"$@\" '\n' >>\"$RECORD\"\n"
		if name == "date" { // a page passes its output on
			script += "echo 2026-01-31T00:00:00Z\n"
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Every command of the pages exists as they call it: commands and flags of badged, routes and
// bodies of requests, targets of make with scenarios of benchmarks, and tests with their flags.
func TestShellInDocs(t *testing.T) {
	dir := recorders(t)
	for _, block := range snippets.Blocks(t, "sh") {
		t.Run(block.String(), func(t *testing.T) {
			for _, words := range calls(t, dir, strings.ReplaceAll(block.Text, " …\n", "\n")) { // other flags
				switch words[0] {
				case "badged":
					checkCommand(t, words[1:])
				case "curl":
					checkRequest(t, words[1:])
				case "make":
					checkTarget(t, dir, words[1:])
				case "go":
					checkGo(t, words[1:])
				}
			}
		})
	}
}

// What other programs are told to run exists, too: the steps of a workflow, and the server of an
// assistant.
func TestCommandsInFilesOfDocs(t *testing.T) {
	var steps []struct{ Run string }
	block := snippets.With(t, "docs/testing.md", "- run:", "yaml")
	if err := yaml.Unmarshal([]byte(block.Text), &steps); err != nil || len(steps) == 0 {
		t.Fatalf("%s: %v", block, err)
	}
	dir := recorders(t)
	for _, step := range steps {
		for _, words := range calls(t, dir, step.Run) {
			if words[0] == "badged" {
				checkCommand(t, words[1:])
			}
		}
	}
	var assistant struct {
		MCPServers map[string]struct {
			Command string
			Args    []string
			Env     map[string]string
		}
	}
	block = snippets.With(t, "docs/assistants.md", "mcpServers", "json")
	if err := json.Unmarshal([]byte(block.Text), &assistant); err != nil {
		t.Fatal(err)
	}
	if server := assistant.MCPServers["badged"]; server.Command != "badged" || server.Env["BADGED_DATABASE_URL"] == "" {
		t.Errorf("%s: %+v", block, assistant)
	} else {
		checkCommand(t, append(server.Args, "--database-url="+server.Env["BADGED_DATABASE_URL"]))
	}
}

// Commands above their output, and in sentences, have flags that exist. Sentences may leave out
// arguments.
func TestCommandsInDocs(t *testing.T) {
	dir := recorders(t)
	shown := regexp.MustCompile("(?m)^\\$ (badged .*)$|`(badged [^`\n]+)`")
	for page, text := range snippets.Pages(t) {
		for _, found := range shown.FindAllStringSubmatch(text, -1) {
			switch {
			case strings.Contains(found[0], "--help"): // see TestHelpInDocs
				continue
			case found[2] == "badged expiry": // a name in pg_stat_activity
				continue
			}
			command, isWhole := found[1]+found[2], found[1] != "" && !strings.Contains(found[1], "…")
			if !isWhole {
				command = strings.NewReplacer("…", "", "(", "\\(", ")", "\\)", "<", "\\<").Replace(command)
			}
			t.Run(page+" "+command, func(t *testing.T) {
				for _, words := range calls(t, dir, command) {
					if err := refusal(t, words[1:]); err != nil && (isWhole || isUnknown(err)) {
						t.Errorf("%q: %v", words, err)
					}
				}
			})
		}
	}
}

// isUnknown reports whether an error means that a command or flag does not exist.
func isUnknown(err error) bool {
	return strings.Contains(err.Error(), "unknown flag") || strings.Contains(err.Error(), "unexpected argument")
}

// refusal returns why the command line refuses some words, without running them.
func refusal(t *testing.T, words []string) error {
	t.Helper()
	for name, value := range map[string]string{
		"BADGED_DATABASE_URL": "postgres://localhost/chat", "BADGED_OUTBOX_URL": "postgres://localhost/chat", "BADGED_REDIS_URL": "redis://localhost",
		"BADGED_JWT_KEYS": "dev=HS256:dev-secret-of-user-tokens-32-bytes", "BADGED_PUBLISHER_KEYS": "chat=sha256:ab",
	} {
		t.Setenv(name, value)
	}
	if slices.Contains(words, "--url") { // in place of a database
		t.Setenv("BADGED_DATABASE_URL", "")
		if err := os.Unsetenv("BADGED_DATABASE_URL"); err != nil {
			t.Fatal(err)
		}
	}
	if at := slices.Index(words, "--config"); at >= 0 { // it would be read
		words = slices.Delete(words, at, at+2)
	}
	parser, err := newParser(t.Context(), &commands{}, Streams{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = parser.Parse(words)
	return err
}

func checkCommand(t *testing.T, words []string) {
	t.Helper()
	if err := refusal(t, words); err != nil {
		t.Errorf("badged %q: %v", words, err)
	}
}

// checkRequest checks a call of curl: the route exists, and events are valid.
func checkRequest(t *testing.T, words []string) {
	t.Helper()
	method, path, body := "GET", "", ""
	for i := 0; i < len(words); i++ {
		switch words[i] {
		case "-H", "-o":
			i++
		case "-X":
			i++
			method = words[i]
		case "-d":
			i++
			method, body = "POST", words[i]
		default:
			if url, ok := strings.CutPrefix(words[i], "http://"); ok {
				path = url[strings.Index(url, "/"):]
			}
		}
	}
	path, _, _ = strings.Cut(path, "?")
	reference, err := os.ReadFile(source.Path("docs/reference/http.md"))
	if err != nil {
		t.Fatal(err)
	}
	exists := strings.HasPrefix(path, "/debug/pprof/")
	for _, route := range regexp.MustCompile("(?m)^### `([A-Z]+) (.*)`$").FindAllStringSubmatch(string(reference), -1) {
		pattern := "^" + regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(route[2]), "[^/]+") + "$"
		exists = exists || route[1] == method && regexp.MustCompile(pattern).MatchString(path)
	}
	if !exists {
		t.Errorf("there is no route %s %s", method, path)
	}
	if path != "/v1/events" {
		return
	}
	all := []json.RawMessage{json.RawMessage(body)}
	if strings.HasPrefix(body, "[") {
		if err := json.Unmarshal([]byte(body), &all); err != nil {
			t.Fatal(err)
		}
	}
	for _, one := range all {
		event, err := events.Decode(one)
		if err == nil {
			err = event.Validate()
		}
		if err != nil {
			t.Errorf("%s: %v", one, err)
		}
	}
}

// checkTarget checks a call of make: the target exists, and each scenario of a benchmark.
func checkTarget(t *testing.T, dir string, words []string) {
	t.Helper()
	makefile, err := os.ReadFile(source.Path("Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range words {
		name, value, isVariable := strings.Cut(word, "=")
		pattern := `(?m)^` + regexp.QuoteMeta(name) + `:`
		if isVariable {
			pattern = `\b` + regexp.QuoteMeta(name) + `\b`
		}
		if !regexp.MustCompile(pattern).Match(makefile) {
			t.Errorf("the Makefile has no %s", name)
		}
		if name != "BENCH" {
			continue
		}
		options := calls(t, dir, "badged "+value)[0]
		checkScenario(t, options)
	}
}

// checkScenario checks that a scenario of benchmarks matches the option -scenario.
func checkScenario(t *testing.T, options []string) {
	t.Helper()
	at := slices.Index(options, "-scenario")
	if at < 0 {
		t.Fatalf("%q selects no scenario", options)
	}
	pattern, err := regexp.Compile(options[at+1])
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(source.Path("tests/bench/scenarios/*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	names := regexp.MustCompile(`\bName:\s+"([^"]+)"`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names.FindAllStringSubmatch(string(text), -1) {
			if pattern.MatchString(name[1]) {
				return
			}
		}
	}
	t.Errorf("no scenario matches %s", pattern)
}

// checkGo checks a call of go: the packages and the tests exist, with their flags.
func checkGo(t *testing.T, words []string) {
	t.Helper()
	if words[0] == "-C" {
		checkScenario(t, words)
		words = words[2:]
	}
	var tests string
	for _, word := range words {
		if dir, ok := strings.CutPrefix(word, "./"); ok {
			files, err := filepath.Glob(source.Path(dir + "/*.go"))
			if err != nil || len(files) == 0 {
				t.Errorf("there is no package %s", word)
			}
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				tests += string(text)
			}
		}
	}
	if words[0] != "test" {
		return
	}
	for i, word := range words {
		name, _, _ := strings.Cut(strings.TrimPrefix(word, "-"), "=")
		switch {
		case word == "-run":
			test := regexp.MustCompile(`^\^?(\w+)`).FindStringSubmatch(words[i+1])[1]
			if !strings.Contains(tests, "\nfunc "+test+"(") {
				t.Errorf("there is no %s", test)
			}
		case word == "-v" || name == "timeout" || !strings.HasPrefix(word, "-"):
		default:
			if !strings.Contains(tests, `"`+name+`"`) {
				t.Errorf("the tests have no flag -%s", name)
			}
		}
	}
}
