package rig

import (
	"os"
	"time"

	"github.com/prometheus/procfs"

	"github.com/badged/badged/tests/bench/contest"
)

// Names of programs, as processes have them.
const (
	programClient   = "client" // this process
	ProgramServer   = "badged"
	programPostgres = "postgres"
	programRedis    = "redis-server"
	ProgramFan      = "centrifugo"
)

// parts are the measured programs and their names in reports.
func parts() []struct{ name, program string } {
	return []struct{ name, program string }{
		{"badged", ProgramServer},
		{"Postgres", programPostgres},
		{"Redis", programRedis},
		{"centrifugo", ProgramFan},
		{"bench", programClient},
	}
}

// processes returns this process and its live descendants, by program. Systems without
// /proc have none.
func processes() map[string][]procfs.ProcStat {
	running, _ := procfs.AllProcs()
	all := map[int]procfs.ProcStat{}
	for _, p := range running {
		if stat, err := p.Stat(); err == nil { // else it has ended
			all[p.PID] = stat
		}
	}
	self := os.Getpid()
	ours := map[string][]procfs.ProcStat{}
	for pid, stat := range all {
		if pid == self {
			ours[programClient] = append(ours[programClient], stat)
		} else if descends(pid, self, all) {
			ours[stat.Comm] = append(ours[stat.Comm], stat)
		}
	}
	return ours
}

// descends reports whether a process descends from an ancestor.
func descends(pid, ancestor int, all map[int]procfs.ProcStat) bool {
	for pid > 1 {
		if pid = all[pid].PPID; pid == ancestor { // 0 if the parent has ended
			return true
		}
	}
	return false
}

// ResidentMemory returns the resident bytes of a process that are not shared, 0 if it has
// ended.
func ResidentMemory(pid int) int64 {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0
	}
	pages, err := p.Statm()
	if err != nil {
		return 0
	}
	return int64(pages.Resident-pages.Shared) * int64(os.Getpagesize()) //nolint:gosec // far from overflow
}

// residentMemory returns the sum for each program. It leaves out shared memory, such as the
// buffers of Postgres.
func residentMemory() map[string]int64 {
	sums := map[string]int64{}
	for program, all := range processes() {
		for _, p := range all {
			sums[program] += ResidentMemory(p.PID)
		}
	}
	return sums
}

// cpu is the processor time used up to a moment, in seconds.
type cpu struct {
	at time.Time
	// busy is the time of the whole machine, including time taken by the hypervisor.
	busy float64
	// own is the time of each program.
	own map[string]float64
}

// readCPU reads processor times.
func readCPU() cpu {
	now := cpu{at: time.Now(), own: map[string]float64{}}
	if fs, err := procfs.NewDefaultFS(); err == nil {
		stat, _ := fs.Stat() // zero on systems without it
		t := stat.CPUTotal   // guests are in User
		now.busy = t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal
	}
	for program, all := range processes() {
		for _, p := range all {
			now.own[program] += p.CPUTime()
			if program == programPostgres { // its sessions end
				p.UTime, p.STime = uint(p.CUTime), uint(p.CSTime) //nolint:gosec // not negative
				now.own[program] += p.CPUTime()
			}
		}
	}
	return now
}

// cpuMeasures returns the processor time per event between two moments, for each measured program and
// for other processes, which disturb the round.
func cpuMeasures(from, to cpu, events int) (all []contest.Measure) {
	var ours float64
	for program, t := range to.own {
		ours += t - from.own[program]
	}
	for _, part := range parts() {
		if t, ok := to.own[part.program]; ok {
			all = append(all, contest.Of("CPU "+part.name, "µs/event", (t-from.own[part.program])*1e6/float64(events)))
		}
	}
	return append(all, contest.Of(contest.CPUOthers, "cores", max(0, to.busy-from.busy-ours)/to.at.Sub(from.at).Seconds()))
}
