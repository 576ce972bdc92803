package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// conformanceRows returns the rows of the table in docs/conformance.md that says what each client
// passes, by the client's name and transport.
func conformanceRows(t *testing.T) map[string]string {
	t.Helper()
	page := readFile(t, "../docs/conformance.md")
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

// kitLimit is how long a run of the kit may take. On an idle machine it takes about ten seconds.
const kitLimit = 10 * time.Minute

// conforms runs a client of tests/clients against the conformance kit of the binary. The client
// must pass every scenario that it supports. conforms returns the client's row for the table in
// docs/conformance.md.
func conforms(t *testing.T, transport, name string, client ...string) (row string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.json")
	args := []string{"conformance", "--transport=" + transport, "--timeout=" + patience.String(), "--json=" + file, "--"}
	// With a client that does nothing, each scenario runs into its timeout. When the kit is
	// interrupted, it reports the scenarios that have ended.
	ctx, cancel := context.WithTimeout(t.Context(), kitLimit)
	defer cancel()
	kit := exec.CommandContext(ctx, binary, append(args, client...)...)
	kit.Dir = "clients"
	kit.Cancel = func() error { return kit.Process.Signal(os.Interrupt) }
	kit.WaitDelay = time.Minute
	if out, err := kit.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", client, err, out)
	}
	b := readFile(t, file)
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

// The clients of the repository, and small clients with libraries by other authors, pass the
// conformance kit, and docs/conformance.md says what each client does not support. A Go client is
// tested in internal/conformance, which also tests that clients with bugs fail.
func TestConformance(t *testing.T) {
	t.Parallel()
	rows := conformanceRows(t)
	check := func(transport, name string, client ...string) {
		t.Run(transport+" "+name, func(t *testing.T) {
			t.Parallel()
			row := conforms(t, transport, name, client...)
			if said := rows[clientOf(row)]; said != row {
				t.Errorf("docs/conformance.md has the row\n%s\nbut the client has\n%s", said, row)
			}
		})
	}
	// Starting some 400 clients takes most of the time. So a client in JavaScript runs in
	// one process for all scenarios.
	host := func(script ...string) (port string) {
		return next(t, newScript(t, append([]string{"node"}, script...)...)).Text
	}
	sdk, chromium := host("conformance-host.mjs", "conformance-sdk.mjs"), host("conformance-chromium.mjs")
	check("ws", "TypeScript SDK in Node", "./forward.sh", sdk)
	check("sse", "TypeScript SDK in Node", "./forward.sh", sdk)
	check("ws", "TypeScript SDK in Chromium", "./forward.sh", chromium)
	check("sse", "TypeScript SDK in Chromium", "./forward.sh", chromium)
	check("ws", "[Java client](../web/java/README.md)", oftenJava(t, "Conformance")...)
	check("ws", "Node with ws", "./forward.sh", host("conformance-host.mjs", "conformance-ws.mjs"))
	check("ws", "Python with websockets", pythonWith(t, "websockets"), "conformance.py")
	check("sse", "Node with eventsource", "./forward.sh", host("conformance-host.mjs", "conformance-eventsource.mjs"))
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
	// Two rows are those of the Go client, and .ci/swift checks one.
	if len(rows) != checked+3 {
		t.Errorf("docs/conformance.md has %d rows of clients, and %d are checked", len(rows), checked+3)
	}
}
