package main

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

// readCPU reads processor times from /proc. Missing values count as 0.
func readCPU() cpu {
	now := cpu{at: time.Now(), own: map[string]time.Duration{}}
	for i, t := range strings.Fields(field("/proc/stat", "cpu", " ")) {
		// user nice system idle iowait irq softirq steal; guests are in user.
		if i != 3 && i != 4 && i < 8 {
			now.busy += ticks(t)
		}
	}
	processes := readProcesses()
	self := os.Getpid()
	for _, s := range processes {
		switch {
		case s.pid == self:
			now.own[programClient] += s.used
		case s.descendsFrom(self, processes):
			now.own[s.program] += s.used
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
	processes := readProcesses()
	self := os.Getpid()
	for _, s := range processes {
		program := s.program
		switch {
		case s.pid == self:
			program = programClient
		case !s.descendsFrom(self, processes):
			continue
		}
		own[program] += residentMemory(s.pid)
	}
	return own
}

// residentMemory returns the resident bytes of a process that are not shared.
func residentMemory(pid int) int64 {
	var size, resident, shared int64
	_, _ = fmt.Sscan(content(fmt.Sprintf("/proc/%d/statm", pid)), &size, &resident, &shared) // it may have ended
	return (resident - shared) * int64(os.Getpagesize())
}

// readProcesses returns the running processes by id.
func readProcesses() map[int]stat {
	processes := map[int]stat{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the only error is a bad pattern
	for _, file := range files {
		if s, ok := parseStat(content(file)); ok {
			processes[s.pid] = s
		}
	}
	return processes
}

// stat is a process as in /proc/PID/stat.
type stat struct {
	pid, parent          int
	program              string
	used, usedByChildren time.Duration // children that have ended
}

// parseStat reads the line; see proc(5).
func parseStat(line string) (stat, bool) {
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return stat{}, false // it has ended meanwhile
	}
	s := stat{program: line[open+1 : end]}
	rest := strings.Fields(line[end+1:]) // from the third field on, the state
	if len(rest) < 15 {
		return stat{}, false
	}
	var err error
	if s.pid, err = strconv.Atoi(strings.TrimSpace(line[:open])); err != nil {
		return stat{}, false
	}
	if s.parent, err = strconv.Atoi(rest[1]); err != nil {
		return stat{}, false
	}
	s.used = ticks(rest[11]) + ticks(rest[12])
	s.usedByChildren = ticks(rest[13]) + ticks(rest[14])
	return s, true
}

func (s stat) descendsFrom(ancestor int, processes map[int]stat) bool {
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
