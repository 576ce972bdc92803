package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// conformanceRows returns the table of docs/conformance.md that says what each client
// passes: its row by its name and transport.
func conformanceRows(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "\n| client | over | passes | does not support |\n|---|---|---|---|\n")
	if !found {
		t.Fatal("no table of clients in docs/conformance.md")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	rows := map[string]string{}
	for row := range strings.Lines(table) {
		row = strings.TrimSpace(row)
		rows[clientOf(row)] = row
	}
	return rows
}

// clientOf returns the beginning of a row: the client and the transport.
func clientOf(row string) string { return strings.Join(strings.Split(row, " | ")[:2], " | ") }

// conforms runs a client, in tests/clients, against the kit of the binary. It must
// pass every scenario but those that it does not support. It returns the client's row
// of the table in docs/conformance.md.
func conforms(t *testing.T, transport, name string, environment []string, client ...string) (row string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.json")
	args := []string{"conformance", "--transport=" + transport, "--timeout=" + patience.String(), "--json=" + file, "--"}
	kit := exec.CommandContext(t.Context(), binary, append(args, client...)...)
	kit.Dir = "clients"
	kit.Env = append(os.Environ(), environment...)
	if out, err := kit.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", client, err, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Passed    int
		Scenarios []struct{ Name, Result string }
	}
	if err := json.Unmarshal(b, &report); err != nil {
		t.Fatal(err)
	}
	var lacks []string
	for _, s := range report.Scenarios {
		if s.Result == "unsupported" {
			lacks = append(lacks, "`"+s.Name+"`")
		}
	}
	return conformanceRow(name, transport, report.Passed, len(report.Scenarios), strings.Join(lacks, ", "))
}

func conformanceRow(name, transport string, passed, scenarios int, lacks string) string {
	over := map[string]string{"ws": "WebSockets", "sse": "server-sent events"}[transport]
	return strings.TrimSuffix(fmt.Sprintf("| %s | %s | %d of %d | %s", name, over, passed, scenarios, lacks), " ") + " |"
}

// The clients of the repository, and small ones with libraries by other authors,
// pass the conformance kit, and docs/conformance.md says what each does not support. A
// Go client does so in internal/conformance, where others fail.
func TestConformance(t *testing.T) {
	t.Parallel()
	rows := conformanceRows(t)
	check := func(transport, name string, environment []string, client ...string) {
		t.Run(transport+" "+name, func(t *testing.T) {
			t.Parallel()
			row := conforms(t, transport, name, environment, client...)
			if said := rows[clientOf(row)]; said != row {
				t.Errorf("docs/conformance.md has the row\n%s\nbut the client has\n%s", said, row)
			}
		})
	}
	java, python := compileJavaClient(t), pythonWith(t, "websockets")
	chromium := []string{"BROWSER=" + next(t, newScript(t, "node", "conformance-chromium.mjs", "browser")).Text}
	check("ws", "TypeScript SDK in Node", nil, "node", "conformance-sdk.mjs")
	check("sse", "TypeScript SDK in Node", nil, "node", "conformance-sdk.mjs")
	check("ws", "TypeScript SDK in Chromium", chromium, "node", "conformance-chromium.mjs")
	check("sse", "TypeScript SDK in Chromium", chromium, "node", "conformance-chromium.mjs")
	check("ws", "[Java client](../web/java/README.md)", nil, "java", "-cp", java, "Conformance")
	check("ws", "Node with ws", nil, "node", "conformance-ws.mjs")
	check("ws", "Python with websockets", nil, python, "conformance.py")
	check("sse", "Node with eventsource", nil, "node", "conformance-eventsource.mjs")
	const checked = 8
	for _, transport := range []string{"ws", "sse"} {
		out, err := exec.CommandContext(t.Context(), binary, "conformance", "--list", "--transport="+transport).Output()
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Count(string(out), "\n")
		row := conformanceRow("Go with coder/websocket and net/http", transport, all, all, "")
		if said := rows[clientOf(row)]; said != row {
			t.Errorf("docs/conformance.md has the row\n%s\nin place of\n%s", said, row)
		}
	}
	if len(rows) != checked+2 {
		t.Errorf("docs/conformance.md has %d rows of clients, and the test has %d", len(rows), checked+2)
	}
}

// compileJavaClient compiles the Java client with its adapter, and returns the class
// path.
func compileJavaClient(t *testing.T) (classPath string) {
	t.Helper()
	return compileJava(t, t.TempDir(), "clients/java/Conformance.java")
}

// compileJava compiles the Java client and other sources for Java 8 into a folder, and
// returns the class path.
func compileJava(t *testing.T, dir string, more ...string) (classPath string) {
	t.Helper()
	sources, err := filepath.Glob("../web/java/src/com/badged/client/*.java")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources of the Java client: %v", err)
	}
	classPath = javaClassPath(t, dir)
	// Later compilers warn that they will not know Java 8 forever.
	args := []string{"--release", "8", "-Xlint:all,-options", "-Werror", "-d", dir, "-cp", classPath}
	if out, err := exec.CommandContext(t.Context(), "javac", slices.Concat(args, sources, more)...).CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	return classPath
}
