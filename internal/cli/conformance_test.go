package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/badged/badged/internal/conformance"
)

// A client that fails makes the command fail, after both reports were written.
func TestConformanceFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	r := badged(t, "conformance", "--only=ping,stale", "--json="+file, "--", "sh", "-c", "echo out of order >&2; exit 3")
	if r.code != exitFailed || r.err != "badged: the client fails 3 of 3 scenarios\n" {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	for _, want := range []string{
		"failed       ping  ", "    happened: the client's program ends: exit status 3\n", "stderr: out of order\n", "\n0 passed, 3 failed, 0 not supported\n",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the report lacks %q:\n%s", want, r.out)
		}
	}
	if b, err := os.ReadFile(file); err != nil || !strings.Contains(string(b), `"failed": 3`) {
		t.Errorf("%v: %s", err, b)
	}
	for _, test := range []struct{ args, want string }{
		{"--only=frobnicate -- true", `badged: no scenario is called "frobnicate"`},
		{"-- /nowhere/client", "badged: start the client: fork/exec /nowhere/client: no such file or directory"},
		{"--only=ping --json=/nowhere/report -- false", "badged: write the report: open /nowhere/report: no such file or directory"},
	} {
		r := badged(t, append([]string{"conformance"}, strings.Fields(test.args)...)...)
		if r.code != exitFailed || strings.TrimSpace(r.err) != test.want {
			t.Errorf("%s: exit code %d: %s", test.args, r.code, r.err)
		}
	}
}

// --list lists the scenarios of a transport.
func TestConformanceList(t *testing.T) {
	for _, transport := range []conformance.Transport{conformance.WebSockets, conformance.ServerSentEvents} {
		lines := strings.Split(strings.TrimSpace(mustDo(t, "conformance", "--list", "--transport="+string(transport))), "\n")
		scenarios := conformance.Scenarios(transport)
		if len(lines) != len(scenarios) {
			t.Fatalf("%s: %d scenarios are listed, want %d", transport, len(lines), len(scenarios))
		}
		for i, s := range scenarios {
			if name, story, _ := strings.Cut(lines[i], "  "); name != s.Name || strings.TrimSpace(story) != s.Story {
				t.Errorf("%s: %q, want %s and %s", transport, lines[i], s.Name, s.Story)
			}
		}
	}
}
