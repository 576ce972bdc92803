package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc, the same on all architectures of Go.
const tick = time.Second / 100

// ReadCPU reads processor times from /proc. Missing values count as 0.
func ReadCPU() CPU {
	now := CPU{at: time.Now(), own: map[string]time.Duration{}}
	for i, t := range strings.Fields(field("/proc/stat", "cpu", " ")) {
		// user nice system idle iowait irq softirq steal; guests are in user.
		if i != 3 && i != 4 && i < 8 {
			now.busy += ticks(t)
		}
	}
	processes := ReadProcesses()
	self := os.Getpid()
	for _, s := range processes {
		switch {
		case s.pid == self:
			now.own[programClient] += s.Used
		case s.descendsFrom(self, processes):
			now.own[s.program] += s.Used
			if s.program == programPostgres {
				now.own[s.program] += s.usedByChildren
			}
		}
	}
	return now
}

// readMemory returns the resident bytes of this process and its descendants, by
// program name. It leaves out shared memory, such as the buffers of Postgres.
func readMemory() map[string]int64 {
	own := map[string]int64{}
	processes := ReadProcesses()
	self := os.Getpid()
	for _, s := range processes {
		program := s.program
		switch {
		case s.pid == self:
			program = programClient
		case !s.descendsFrom(self, processes):
			continue
		}
		own[program] += ResidentMemory(s.pid)
	}
	return own
}

// ResidentMemory returns the resident bytes of a process that are not shared.
func ResidentMemory(pid int) int64 {
	var size, resident, shared int64
	_, _ = fmt.Sscan(content(fmt.Sprintf("/proc/%d/statm", pid)), &size, &resident, &shared) // it may have ended
	return (resident - shared) * int64(os.Getpagesize())
}

// ReadProcesses returns the running processes by id.
func ReadProcesses() map[int]Process {
	processes := map[int]Process{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the only error is a bad pattern
	for _, file := range files {
		if s, ok := parseStat(content(file)); ok {
			processes[s.pid] = s
		}
	}
	return processes
}

// Process is a process as in /proc/PID/stat.
type Process struct {
	pid, parent          int
	program              string
	Used, usedByChildren time.Duration // children that have ended
}

// parseStat reads the line; see proc(5).
func parseStat(line string) (Process, bool) {
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return Process{}, false // it has ended meanwhile
	}
	s := Process{program: line[open+1 : end]}
	rest := strings.Fields(line[end+1:]) // from the third field on, the state
	if len(rest) < 15 {
		return Process{}, false
	}
	var err error
	if s.pid, err = strconv.Atoi(strings.TrimSpace(line[:open])); err != nil {
		return Process{}, false
	}
	if s.parent, err = strconv.Atoi(rest[1]); err != nil {
		return Process{}, false
	}
	s.Used = ticks(rest[11]) + ticks(rest[12])
	s.usedByChildren = ticks(rest[13]) + ticks(rest[14])
	return s, true
}

func (s Process) descendsFrom(ancestor int, processes map[int]Process) bool {
	for s.parent > 1 {
		if s.parent == ancestor {
			return true
		}
		parent, ok := processes[s.parent]
		if !ok {
			return false
		}
		s = parent
	}
	return false
}

func ticks(text string) time.Duration {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(n) * tick
}
