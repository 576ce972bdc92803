package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// writeTraffic writes a file of few messages, small enough to replay in no
// time.
func writeTraffic(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "traffic.txt")
	if err := generateTraffic(file, 1000); err != nil {
		t.Fatal(err)
	}
	return file
}

// The whole program, on little traffic: what it prints is what it writes.
func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bench.json")
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"-only", "replay,replay-redis", "-round", "2", "-traffic", writeTraffic(t), "-json", file}, &stdout, &stderr)
	if code != exitDone {
		t.Fatalf("exit %d:\n%s%s", code, stdout.String(), stderr.String())
	}
	for _, want := range []string{"fsync=on", "synchronous_commit=on", "fdatasync", "1,000 messages", "replay-redis: ", "published and folded"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("%q is not in what it printed:\n%s", want, stdout.String())
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got report
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Results) != 2 {
		t.Fatalf("%d cases are reported", len(got.Results))
	}
	for _, r := range got.Results {
		if r.Rounds != 2 || len(r.Measures) < 2 || len(r.Measures[1].Values) != 2 || r.Measures[1].Min <= 0 {
			t.Errorf("%s is reported as %+v", r.Case, r)
		}
	}
	if dir := got.Setting.Disk.Dir; dir == "" {
		t.Error("the report does not say where the data were")
	} else if left, _ := filepath.Glob(filepath.Join(dir, "bench-*", "postgres")); len(left) > 0 {
		t.Errorf("it left %v behind", left)
	}
}

// Every message of a small load arrives, in both topologies, and a total that
// is not what it must be fails the case it is found in.
func TestCases(t *testing.T) {
	rig, err := newRig(t.Context(), "", writeTraffic(t), progress{t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rig.close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	small := load{
		clients: 5, conversations: 2, connections: 2, rate: 200,
		warmUp: 100 * time.Millisecond, measured: 400 * time.Millisecond,
	}
	for _, topology := range []topology{oneProcess, threeProcesses} {
		r := latencyCase("latency", topology, small).run(t.Context(), rig, 1)
		if len(r.Failures) > 0 {
			t.Errorf("%s: %v", topology, r.Failures)
		}
		for _, m := range r.Measures {
			switch {
			case m.Name == "lost" && m.Max != 0:
				t.Errorf("%s: %v are lost", topology, m.Max)
			case (m.Name == "latency p50" || m.Name == "sent") && m.Min <= 0:
				t.Errorf("%s: %s is %v", topology, m.Name, m.Min)
			}
		}
	}

	rig.traffic.want.unread["1"]++
	rig.traffic.want.unread["2"]--
	r := replayCase("replay", oneProcess).run(t.Context(), rig, 1)
	if len(r.Failures) != 1 || !strings.Contains(r.Failures[0], "2 of ") || r.Rounds != 1 {
		t.Errorf("two totals are wrong, reported are %v", r.Failures)
	}
	rig.traffic.want.messages++
	r = replayCase("replay", oneProcess).run(t.Context(), rig, 1)
	if len(r.Failures) != 1 || !strings.Contains(r.Failures[0], "wrong") {
		t.Errorf("a message is missing, reported is %v", r.Failures)
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"-help", exitDone, "replay-redis"},
		{"-only replya", exitUsage, `there is no case "replya"; there are replay, `},
		{"-round -1", exitUsage, "-round must be 0 or more"},
		{"-rounds 1", exitUsage, "not defined"},
		{"replay", exitUsage, `unexpected argument "replay"`},
		{"-traffic /nowhere/traffic.txt", exitFailed, "open the traffic"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(c.args), &stdout, &stderr); code != c.code || !strings.Contains(stderr.String(), c.says) {
			t.Errorf("bench %s: exit %d, want %d, and %q in\n%s", c.args, code, c.code, c.says, stderr.String())
		}
	}
}

// A failed round is reported, and does not keep the others from being measured.
func TestFailures(t *testing.T) {
	rounds := 0
	c := comparison{name: "case", round: func(context.Context, *rig) ([]measure, error) {
		rounds++
		m := []measure{{name: "rate", unit: "events/s", value: float64(rounds), aim: aim{AtLeast: 3}}}
		switch rounds {
		case 1:
			return nil, errors.New("no Postgres")
		case 3:
			return m, errWrong
		}
		return m, nil
	}}
	rep := report{Results: []result{c.run(t.Context(), &rig{log: progress{t.Output()}}, 4)}}
	if rep.failures() != 1 {
		t.Errorf("%d cases failed", rep.failures())
	}
	var out bytes.Buffer
	if err := rep.write(&out, ""); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"rounds: 3", "events/s  3       2    4    ≥ 3 met", "FAILED round 1: no Postgres", "FAILED round 3: wrong"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
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
	for n, want := range map[float64]string{0: "0", 0.098: "0.10", 3: "3", 3.14159: "3.14", 42.66: "42.7", 60: "60", 100.4: "100", 59835: "59,835", 1234567: "1,234,567"} {
		if got := formatNumber(n); got != want {
			t.Errorf("%v is written %s, want %s", n, got, want)
		}
	}
}
