package rig

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestMountOf(t *testing.T) {
	const mountinfo = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
25 22 0:22 / /dev/shm rw,nosuid - tmpfs tmpfs rw
30 22 254:16 / /var/lib rw shared:2 master:1 - xfs /dev/vdb rw
31 30 254:32 / /var/lib rw - btrfs /dev/vdc rw
short line
`
	for path, want := range map[string]string{
		"/tmp": "ext4 on /dev/vda", "/": "ext4 on /dev/vda", "/dev/shm/x": "tmpfs on tmpfs",
		"/dev/shmx": "ext4 on /dev/vda", "/var/lib/badged": "btrfs on /dev/vdc",
	} {
		if got := mountOf(path, mountinfo); got != want {
			t.Errorf("%s is in %q, want %q", path, got, want)
		}
	}
}

// A data directory in memory is refused.
func TestMemoryIsRefused(t *testing.T) {
	const memory = "/dev/shm"
	if _, inMemory, err := filesystemOf(memory); err != nil || !inMemory {
		t.Fatalf("%s counts as a disk (%v)", memory, err)
	}
	if _, err := New(t.Context(), Config{Dir: memory, Log: Progress{t.Output()}}); err == nil {
		t.Error("a rig was made in memory")
	}
}

func TestParseStat(t *testing.T) {
	const line = "4242 (a (b) c) S 41 4242 4242 0 -1 4194560 1 2 3 4 150 50 30 20 20 0 1 0 100 1 2"
	got, ok := parseStat(line)
	want := Process{pid: 4242, parent: 41, program: "a (b) c", Used: 2 * time.Second, usedByChildren: time.Second / 2}
	if !ok || got != want {
		t.Errorf("parsed as %+v, want %+v", got, want)
	}
	for _, line := range []string{"", "4242 (a) S", "x (a) S 41 4242 4242 0 -1 4194560 1 2 3 4 150 50 30 20 20"} {
		if got, ok := parseStat(line); ok {
			t.Errorf("%q is parsed as %+v", line, got)
		}
	}
}

func TestDescent(t *testing.T) {
	processes := map[int]Process{
		10: {pid: 10, parent: 1}, 20: {pid: 20, parent: 10}, 30: {pid: 30, parent: 20}, 40: {pid: 40, parent: 39},
	}
	for pid, want := range map[int]bool{10: false, 20: true, 30: true, 40: false} {
		if got := processes[pid].descendsFrom(10, processes); got != want {
			t.Errorf("process %d descends from 10: %v", pid, got)
		}
	}
}

func TestReadCPU(t *testing.T) {
	now := ReadCPU()
	if now.busy <= 0 {
		t.Error("the machine has done nothing yet")
	}
	if _, ok := now.own[programClient]; !ok {
		t.Errorf("process %d is not in %v", os.Getpid(), now.own)
	}
}

func TestCPUMeasures(t *testing.T) {
	at := time.Unix(0, 0)
	from := CPU{at, 100 * time.Second, map[string]time.Duration{ProgramServer: time.Second, programClient: 0, programPostgres: 5 * time.Second}}
	to := CPU{at.Add(10 * time.Second), 110 * time.Second, map[string]time.Duration{ProgramServer: 3 * time.Second, programClient: 0, programPostgres: 6 * time.Second}}
	got := map[string]float64{}
	for _, m := range CPUMeasures(from, to, 2*time.Second, 1000) {
		got[m.Name] = m.Value
	}
	want := map[string]float64{"CPU badged": 2000, "CPU Postgres": 1000, "CPU bench": 2000, "CPU others": 0.5}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %v, want %v", name, got[name], value)
		}
	}
	if len(got) != len(want) {
		t.Errorf("measured are %v", got)
	}
}

func TestReadMemory(t *testing.T) {
	if bytes := readMemory()[programClient]; bytes < 1<<20 {
		t.Errorf("this process has %d bytes in memory", bytes)
	}
}

// Another binary of badged counts as badged, however its file is named.
func TestBinariesOfAnyNameAreMeasured(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	binary, err := UnderName(t.TempDir(), shell, ProgramServer)
	if err != nil {
		t.Fatal(err)
	}
	process := exec.CommandContext(t.Context(), binary, "-c", "read line")
	if _, err := process.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	if readMemory()[ProgramServer] == 0 {
		t.Errorf("%s is not measured as %s", binary, ProgramServer)
	}
	process.Process.Kill() //nolint:errcheck // Wait reports how it ended
	if err := process.Wait(); err == nil {
		t.Error("the process ended before it was killed")
	}
}
