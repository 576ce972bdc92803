package cli

import (
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/snippets"
)

func TestSize(t *testing.T) {
	out := mustDo(t, "size", "--users=1e6", "--messages-per-day=20e6")
	want := snippets.Output(t, "docs/cli.md", "badged size --users=1e6 --messages-per-day=20e6")
	if out != want {
		t.Errorf("it prints\n%swant\n%s", out, want)
	}
	if out := mustDo(t, "size", "--users=100e6", "--messages-per-day=5e12"); !strings.Contains(out, "This does not fit 1,024 shards") {
		t.Errorf("it prints\n%s", out)
	}
	if out := mustDo(t, "size", "--users=100e6", "--messages-per-day=5e9", "--members=20", "--push=0.5"); !strings.Contains(out, " shards, for their disk") || !strings.Contains(out, "pushes ") {
		t.Errorf("it prints\n%s", out)
	}
	if out := mustDo(t, "size", "--users=1e6", "--messages-per-day=20e6", "--json"); !strings.Contains(out, `"shards": 1,`) {
		t.Errorf("it prints\n%s", out)
	}
	expectUsage(t, map[string]string{
		"size":                                "--users must be from 1 to 1e+11, is 0",
		"size --users=0 --messages-per-day=1": "--users must be from 1 to 1e+11, is 0",
		"size --users=many --messages-per-day=1e6": "--users",
	})
}
