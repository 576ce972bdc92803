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
	code := run(t.Context(), []string{"-short", "-duration", "300ms", "-dir", base, "-out", out}, &stdout, &stderr)
	if code != exitDone {
		t.Fatalf("exit %d:\n%s%s", code, stdout.String(), stderr.String())
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
			t.Errorf("%s: %d of %d aims are judged", r.Scenario, len(r.Verdicts), want)
		}
		for _, s := range r.Sides {
			// With this few connections, a server may free more garbage than they use:
			// the memory per connection is then negative. Processor time is counted in
			// ticks, and such a short run can end within one tick.
			m, ok := r.Series(s.Name, scenario.Main)
			nothing := m.Median == 0 && !strings.HasPrefix(scenario.Main, "CPU ")
			if !ok || nothing || m.Median < 0 && scenario.Name != "connections" {
				t.Errorf("%s: %s measured %+v", r.Scenario, s.Name, s.Measures)
			}
		}
	}
	if left, _ := filepath.Glob(filepath.Join(base, "*")); len(left) > 0 {
		t.Errorf("it left %v behind", left)
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"-help", exitDone, "small-rooms"},
		{"-scenario smallrooms", exitUsage, `no scenario matches "smallrooms"; there are single, single-rate, sustained, `},
		{"-scenario (", exitUsage, "missing closing"},
		{"-side (", exitUsage, "missing closing"},
		{"-rounds -1", exitUsage, "invalid value"},
		{"-round 1", exitUsage, "not defined"},
		{"year", exitUsage, `unexpected argument "year"`},
		{"-scenario year -dir /dev/null", exitFailed, "make the data directory"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(c.args), &stdout, &stderr); code != c.code || !strings.Contains(stderr.String(), c.says) {
			t.Errorf("bench %s: exit %d, want %d, and %q in\n%s", c.args, code, c.code, c.says, stderr.String())
		}
	}
}
