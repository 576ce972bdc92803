package rig

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"go.uber.org/goleak"

	"github.com/badged/badged/tests/bench/contest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A data directory in memory is refused.
func TestMemoryIsRefused(t *testing.T) {
	err := contest.Do(t.Context(), "memory", func(run *contest.Run) { (&Rig{Dir: "/dev/shm"}).Open(run, contest.Progress{W: t.Output()}) })
	if err == nil || !strings.Contains(err.Error(), "is in memory") {
		t.Errorf("a rig in memory: %v", err)
	}
}

func TestDescent(t *testing.T) {
	all := map[int]procfs.ProcStat{10: {PPID: 1}, 20: {PPID: 10}, 30: {PPID: 20}, 40: {PPID: 39}}
	for pid, want := range map[int]bool{10: false, 20: true, 30: true, 40: false} {
		if got := descends(pid, 10, all); got != want {
			t.Errorf("process %d descends from 10: %v", pid, got)
		}
	}
}

func TestCPUMeasures(t *testing.T) {
	at := time.Unix(0, 0)
	from := cpu{at, 100, map[string]float64{ProgramServer: 1, programClient: 0, programPostgres: 5}}
	to := cpu{at.Add(10 * time.Second), 110, map[string]float64{ProgramServer: 3, programClient: 2, programPostgres: 6}}
	got := map[string]float64{}
	for _, m := range cpuMeasures(from, to, 1000) {
		got[m.Name] = m.Value
	}
	want := map[string]float64{"CPU badged": 2000, "CPU Postgres": 1000, "CPU bench": 2000, contest.CPUOthers: 0.5}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %v, want %v", name, got[name], value)
		}
	}
	if len(got) != len(want) {
		t.Errorf("measured are %v", got)
	}
}

// This process is measured. Another binary counts as badged, whatever the name of its file.
func TestProcessesAreMeasured(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	binary := (&Rig{dir: t.TempDir()}).UnderName(shell, ProgramServer)
	process := exec.CommandContext(t.Context(), binary, "-c", "read line")
	if _, err := process.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	if memory := residentMemory(); memory[ProgramServer] == 0 || memory[programClient] < 1<<20 {
		t.Errorf("the memory of %s and of this process is %v", binary, memory)
	}
	now := readCPU()
	_, badged := now.own[ProgramServer]
	if _, bench := now.own[programClient]; !badged || !bench || now.busy <= 0 {
		t.Errorf("%s and process %d are not in %+v", binary, os.Getpid(), now)
	}
	process.Process.Kill() //nolint:errcheck // Wait reports how it ended
	if err := process.Wait(); err == nil {
		t.Error("the process ended before it was killed")
	}
}

// The profile of a side whose name has a slash is in the folder itself, not in a folder below.
func TestProfilesOfSidesWithSlashes(t *testing.T) {
	path := profilePath(t.TempDir(), "calls-badged/room-1")
	if err := os.WriteFile(path+".pprof", nil, 0o600); err != nil {
		t.Error(err)
	}
}
