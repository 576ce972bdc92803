package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/prometheus/procfs"
	goredis "github.com/redis/go-redis/v9"

	"github.com/badged/badged/internal/devtest/privateredis"
)

// Setting is everything that results depend on apart from the scenarios' code.
type Setting struct {
	Machine  Machine  `json:"machine"`
	Go       string   `json:"go"`
	Commit   string   `json:"commit"`
	Disk     Disk     `json:"disk"`
	Postgres Software `json:"postgres"`
	Redis    Software `json:"redis"` // that of the rivals
}

// Software is the version and settings of a server, as it reports them.
type Software struct {
	Version  string      `json:"version"`
	Settings []Parameter `json:"settings"`
}

// Parameter is one setting.
type Parameter struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

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
		CPU: field("/proc/cpuinfo", "model name", ":"), Cores: runtime.GOMAXPROCS(0),
		System: strings.TrimSpace(strings.Trim(field("/etc/os-release", "PRETTY_NAME", "="), `"`) + " " + runtime.GOOS + "/" + runtime.GOARCH),
		Kernel: strings.TrimSpace(content("/proc/sys/kernel/osrelease")),
	}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return m // without /proc
	}
	if memory, err := fs.Meminfo(); err == nil && memory.MemTotal != nil {
		m.MemoryGiB = float64(*memory.MemTotal) / (1 << 20)
	}
	if l, err := fs.LoadAvg(); err == nil {
		m.Load = fmt.Sprint(l.Load1, l.Load5, l.Load15)
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
	b, _ := os.ReadFile(file) //nolint:gosec // names of ours
	return string(b)
}

// StartRedis starts a server for a rival, with the snapshots that Redis takes by default
// and privateredis turns off. There is no append-only file, so a crash loses acknowledged
// writes of the last minutes.
func StartRedis(ctx context.Context) (*privateredis.Server, error) {
	return privateredis.Start(ctx, privateredis.Config{Args: []string{"--save", "3600 1 300 100 60 10000"}})
}

// examineRedis reads the version and settings of the rivals' servers.
func examineRedis(ctx context.Context) (says Software, err error) {
	server, err := StartRedis(ctx)
	if err != nil {
		return says, err
	}
	defer server.Stop()
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	defer func() { err = errors.Join(err, client.Close()) }()
	info, err := client.InfoMap(ctx, "server").Result()
	if err != nil {
		return says, fmt.Errorf("ask Redis for its version: %w", err)
	}
	says.Version = info["Server"]["redis_version"]
	for _, name := range []string{"save", "appendonly", "maxmemory", "io-threads"} {
		answer, err := client.ConfigGet(ctx, name).Result()
		if err != nil {
			return says, fmt.Errorf("ask Redis for %s: %w", name, err)
		}
		says.Settings = append(says.Settings, Parameter{name, answer[name]})
	}
	return says, nil
}
