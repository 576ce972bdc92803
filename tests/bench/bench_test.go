package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/scenarios"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The whole program at a small scale: every side of every scenario counts
// correctly, and the printed report matches the files.
func TestRun(t *testing.T) {
	out := t.TempDir()
	base, err := rig.MakeDir("") // separate, so that no other run leaves files
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), []string{"-short", "-duration", "300ms", "-dir", base, "-out", out}, &stdout, &stderr); err != nil {
		t.Fatalf("%v:\n%s%s", err, stdout.String(), stderr.String())
	}
	for _, want := range []string{
		"the numbers say nothing", "fsync=on", "synchronous_commit=on", "fdatasync", "appendonly=no", "(" + base + ")",
		"| sustained | rate of badged / Redis Lua |", "### year",
	} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("%q is not in what it printed:\n%s", want, stdout.String())
		}
	}
	for _, scenario := range scenarios.All(nil, contest.Scale{Small: true}) {
		b, err := os.ReadFile(filepath.Join(out, scenario.Name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var got contest.Report
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Results) != 1 {
			t.Fatalf("%s: %d scenarios are reported", scenario.Name, len(got.Results))
		}
		r := got.Results[0]
		// Aims against a baseline or centrifugo are not judged without their binaries.
		unjudged := slices.DeleteFunc(slices.Clone(scenario.Aims), func(a contest.Aim) bool {
			return !strings.HasSuffix(a.Over, scenarios.OfBaseline) && !strings.HasSuffix(a.Over, scenarios.OfFan)
		})
		if want := len(scenario.Aims) - len(unjudged); len(r.Verdicts) != want {
			t.Errorf("%s: %d of %d aims are judged", r.Name, len(r.Verdicts), want)
		}
		for _, s := range r.Sides {
			// With this few connections, a server may free more garbage than they use:
			// the memory per connection is then negative. Processor time is counted in
			// ticks, and such a short run can end within one tick.
			m, ok := r.Series(s.Name, scenario.Main)
			nothing := m.Median == 0 && !strings.HasPrefix(scenario.Main, "CPU ")
			if !ok || nothing || m.Median < 0 && scenario.Name != "connections" {
				t.Errorf("%s: %s measured %+v", r.Name, s.Name, s.Measures)
			}
		}
	}
	if left, _ := filepath.Glob(filepath.Join(base, "*")); len(left) > 0 {
		t.Errorf("it left %v behind", left)
	}
}

func TestUsage(t *testing.T) {
	for args, want := range map[string]string{
		"-scenario smallrooms":          `no scenario matches "smallrooms"; there are single, single-rate, sustained, `,
		"-scenario (":                   "missing closing",
		"-side (":                       "missing closing",
		"-rounds -1":                    "invalid value",
		"-round 1":                      "not defined",
		"year":                          `unexpected argument "year"`,
		"-scenario year -dir /dev/null": "make the data directory",
	} {
		var stdout, stderr bytes.Buffer
		if err := run(t.Context(), strings.Fields(args), &stdout, &stderr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("bench %s: %v, want %q", args, err, want)
		}
	}
	var help bytes.Buffer
	if err := run(t.Context(), []string{"-help"}, &help, &help); err != nil || !strings.Contains(help.String(), "small-rooms") {
		t.Errorf("the help is %s: %v", help.String(), err)
	}
}
