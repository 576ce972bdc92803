package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/badged/badged/tests/bench/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// writeTraffic writes a file of a few messages that loads quickly.
func writeTraffic(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "traffic.txt")
	if err := generateTraffic(file, 1000); err != nil {
		t.Fatal(err)
	}
	return file
}

// The whole program at a small scale: every side of every scenario counts
// correctly, and the printed report matches the files.
func TestRun(t *testing.T) {
	out := t.TempDir()
	base, err := makeDir("") // separate, so that no other run leaves files
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"-short", "-duration", "300ms", "-dir", base, "-traffic", writeTraffic(t), "-out", out}, &stdout, &stderr)
	if code != exitDone {
		t.Fatalf("exit %d:\n%s%s", code, stdout.String(), stderr.String())
	}
	for _, want := range []string{
		"the numbers say nothing", "fsync=on", "synchronous_commit=on", "fdatasync", "appendonly=no", "1,000 messages",
		"| sustained | rate of badged / Redis Lua |", "### load",
	} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("%q is not in what it printed:\n%s", want, stdout.String())
		}
	}
	for _, scenario := range scenarios() {
		b, err := os.ReadFile(filepath.Join(out, scenario.name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var got report
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Results) != 1 {
			t.Fatalf("%s: %d scenarios are reported", scenario.name, len(got.Results))
		}
		r := got.Results[0]
		if dir := got.Setting.Disk.Dir; dir != base {
			t.Errorf("%s: the report says that the data were in %q", scenario.name, dir)
		}
		// Aims against a baseline or centrifugo are not judged without their binaries.
		unjudged := slices.DeleteFunc(slices.Clone(scenario.aims), func(a aim) bool {
			return !strings.HasSuffix(a.Over, ofBaseline) && !strings.HasSuffix(a.Over, ofFan)
		})
		if want := len(scenario.aims) - len(unjudged); len(r.Verdicts) != want {
			t.Errorf("%s: %d of %d aims are judged", r.Scenario, len(r.Verdicts), want)
		}
		for _, s := range r.Sides {
			// With this few connections, garbage that a server frees can
			// outweigh them: the memory per connection is then negative.
			if m, ok := r.series(s.Name, r.Main); !ok || m.Min == 0 || m.Min < 0 && scenario.name != "connections" {
				t.Errorf("%s: %s measured %+v", r.Scenario, s.Name, s.Measures)
			}
		}
		svg, err := os.ReadFile(filepath.Join(out, r.Scenario+".svg"))
		if err != nil {
			t.Error(err)
		} else if err := xml.Unmarshal(svg, new(struct{})); err != nil || strings.Count(string(svg), "<rect") != len(r.Sides) {
			t.Errorf("%s: the plot (%v) is\n%s", r.Scenario, err, svg)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(base, "*")); len(left) > 0 {
		t.Errorf("it left %v behind", left)
	}
}

// forgetful is a way that sometimes loses an event.
type forgetful struct {
	totals map[string]int64
	lose   int
	seen   map[int64]bool
}

func (f *forgetful) Apply(_ context.Context, events []stream.Event) error {
	for _, e := range events {
		if f.seen[e.N] {
			continue
		}
		f.seen[e.N] = true
		if e.N != int64(f.lose) {
			f.totals[e.UserID()]++
		}
	}
	return nil
}

func (f *forgetful) Settle(context.Context) error { return nil }

func (f *forgetful) Totals(_ context.Context, users []string) (totals []int64, err error) {
	for _, u := range users {
		totals = append(totals, f.totals[u])
	}
	return totals, nil
}

func (f *forgetful) Close(context.Context) error { return nil }

// A way that loses one event is detected.
func TestWaysAreChecked(t *testing.T) {
	cfg := stream.Config{Users: 10, Conversations: 2, Repeats: 0.1, Seed: 1}
	for _, c := range []struct {
		lose  int
		right bool
	}{{-1, true}, {3, false}} {
		w, s := &forgetful{totals: map[string]int64{}, lose: c.lose, seen: map[int64]bool{}}, stream.New(cfg)
		n, err := driver{workers: 1, batch: 10}.drive(t.Context(), w, s, time.Millisecond)
		if err != nil || n == 0 {
			t.Fatalf("%d events are driven: %v", n, err)
		}
		if err := checkTotals(t.Context(), w, s); (err == nil) != c.right || !c.right && !errors.Is(err, errWrong) {
			t.Errorf("losing event %d: %v", c.lose, err)
		}
	}
}

// A load or a client with wrong totals fails.
func TestWrongTotalsFail(t *testing.T) {
	rig, err := newRig(t.Context(), options{traffic: writeTraffic(t)}, progress{t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rig.close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	rig.traffic.want.unread["1"]++
	rig.traffic.want.unread["2"]--
	if _, err := loadRound(t.Context(), rig, oneProcess); !errors.Is(err, errWrong) || !strings.Contains(err.Error(), "2 of ") {
		t.Errorf("two totals are wrong, reported is %v", err)
	}
	rig.traffic.want.messages++
	if _, err := loadRound(t.Context(), rig, oneProcess); !errors.Is(err, errWrong) {
		t.Errorf("a message is missing, got %v", err)
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"-help", exitDone, "hot-users"},
		{"-scenario hotusers", exitUsage, `no scenario matches "hotusers"; there are single, single-rate, sustained, `},
		{"-scenario (", exitUsage, "missing closing"},
		{"-side (", exitUsage, "missing closing"},
		{"-rounds -1", exitUsage, "must not be negative"},
		{"-round 1", exitUsage, "not defined"},
		{"load", exitUsage, `unexpected argument "load"`},
		{"-traffic /nowhere/traffic.txt", exitFailed, "open the traffic"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(c.args), &stdout, &stderr); code != c.code || !strings.Contains(stderr.String(), c.says) {
			t.Errorf("bench %s: exit %d, want %d, and %q in\n%s", c.args, code, c.code, c.says, stderr.String())
		}
	}
}

// Sides take turns. A failed round counts for no side and does not stop the
// next. Aims are judged round by round.
func TestScenario(t *testing.T) {
	var turns []string
	values := map[string][]float64{"a": {10, 20, 60}, "b": {5, 4, 20}}
	of := func(name string) side {
		round := 0
		return side{name: name, run: func(context.Context) ([]measure, error) {
			turns = append(turns, name)
			round++
			if name == "b" && round == 2 {
				return nil, errWrong
			}
			return []measure{{"rate", "events/s", values[name][round-1]}}, nil
		}}
	}
	closed := false
	s := scenario{
		name: "story", says: "a against b", main: "rate",
		aims: []aim{
			{Measure: "rate", Of: "a", Over: "b", AtLeast: 2.5},
			{Measure: "rate", Of: "a", Over: "b", AtLeast: 5},
			{Measure: "rate", Of: "b", AtMost: 10},
			{Measure: "rate", Of: "c", AtLeast: 1},
		},
		open: func(context.Context, *rig, scale) (*contest, error) {
			return &contest{sides: []side{of("a"), of("b")}, close: func(context.Context) error { closed = true; return nil }}, nil
		},
	}
	rep := report{Results: []result{s.run(t.Context(), &rig{log: progress{t.Output()}}, scale{rounds: 3})}}
	if got := strings.Join(turns, ""); got != "ababab" || !closed {
		t.Errorf("the turns are %s, closed: %t", got, closed)
	}
	if rep.failures() != 1 {
		t.Errorf("%d scenarios failed", rep.failures())
	}
	alone := s.run(t.Context(), &rig{log: progress{t.Output()}}, scale{rounds: 0, sides: regexp.MustCompile("^a")})
	if len(alone.Sides) != 1 || len(alone.Verdicts) != 0 {
		t.Errorf("one side has %+v", alone)
	}
	text := rep.markdown()
	for _, want := range []string{
		"| story | rate of a / b | 2.50 × | 2 × | 3 × | ≥ 2.50 × | reached |",
		"| story | rate of a / b | 2.50 × | 2 × | 3 × | ≥ 5 × | **missed by 50 %** |",
		"| story | rate of b | 12.5 | 5 | 20 | ≤ 10 | **missed by 25 %** |",
		"| rate | events/s | 35 (10–60) | 12.5 (5–20) |",
		"FAILED b, round 2: wrong",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

func TestStatistics(t *testing.T) {
	if got := median([]float64{5, 1, 3}); got != 3 {
		t.Errorf("the median of 1 3 5 is %v", got)
	}
	if got := median([]float64{4, 1, 2, 3}); got != 2.5 {
		t.Errorf("the median of 1 2 3 4 is %v", got)
	}
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	for _, c := range []struct {
		sorted []float64
		p      float64
		want   float64
	}{
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 100, 100},
		{hundred, 0, 1},
		{hundred[:10], 99, 10},
		{hundred[:3], 50, 2},
		{hundred[:1], 50, 1},
		{nil, 50, 0},
	} {
		if got := percentile(c.sorted, c.p); got != c.want {
			t.Errorf("percentile %v of 1 to %d is %v, want %v", c.p, len(c.sorted), got, c.want)
		}
	}
	for n, want := range map[float64]string{0: "0", 0.098: "0.098", 0.00123: "0.0012", 3: "3", 3.14159: "3.14", 42.66: "42.7", 60: "60", 100.4: "100", 59835: "59,835", 1234567: "1,234,567"} {
		if got := formatNumber(n); got != want {
			t.Errorf("%v is written %s, want %s", n, got, want)
		}
	}
}
