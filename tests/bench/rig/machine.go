package rig

import (
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Machine describes the machine of the measurement. Unknown fields are empty.
type Machine struct {
	CPU       string  `json:"cpu"`
	Cores     int     `json:"cores"` // that this process may use
	MemoryGiB float64 `json:"memory_gib"`
	System    string  `json:"system"`
	Kernel    string  `json:"kernel"`
	// Load has the load averages of the last 1, 5 and 15 minutes before the run.
	Load string `json:"load"`
}

func thisMachine() Machine {
	m := Machine{
		CPU:    field("/proc/cpuinfo", "model name", ":"),
		Cores:  runtime.GOMAXPROCS(0),
		System: strings.Trim(field("/etc/os-release", "PRETTY_NAME", "="), `"`),
	}
	if m.System == "" {
		m.System = runtime.GOOS
	}
	m.System += " " + runtime.GOARCH
	kib, _, _ := strings.Cut(field("/proc/meminfo", "MemTotal", ":"), " ")
	if n, err := strconv.ParseFloat(kib, 64); err == nil {
		m.MemoryGiB = n / (1 << 20)
	}
	m.Kernel = strings.TrimSpace(content("/proc/sys/kernel/osrelease"))
	if load := strings.Fields(content("/proc/loadavg")); len(load) >= 3 {
		m.Load = strings.Join(load[:3], " ")
	}
	return m
}

// field returns the value of the first line "name<separator>value" of a file.
func field(file, name, separator string) string {
	for line := range strings.Lines(content(file)) {
		if key, value, ok := strings.Cut(line, separator); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// content returns the content of a file, or "" if it cannot be read.
func content(file string) string {
	b, err := os.ReadFile(file) //nolint:gosec // names of ours
	if err != nil {
		return ""
	}
	return string(b)
}
