package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/badged/badged/tests/bench/contest"
)

// examineMachine describes the machine, as far as it has /proc, and its load before the run.
func examineMachine() []contest.Parameter {
	var cpu, load string
	var memory float64
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if info, err := fs.CPUInfo(); err == nil && len(info) > 0 {
			cpu = info[0].ModelName
		}
		if m, err := fs.Meminfo(); err == nil && m.MemTotal != nil {
			memory = float64(*m.MemTotal) / (1 << 20)
		}
		if l, err := fs.LoadAvg(); err == nil {
			load = fmt.Sprint(l.Load1, l.Load5, l.Load15)
		}
	}
	return []contest.Parameter{
		{Name: "machine", Value: fmt.Sprintf("%s, %d cores, %.0f GiB", cpu, runtime.GOMAXPROCS(0), memory)},
		{Name: "system", Value: output("uname", "-srm") + "; load before: " + load},
	}
}

// output returns what a program prints, or "unknown" if it fails.
func output(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output() //nolint:gosec,noctx // a short program that we name
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// syncTimes is how often the disk is measured.
const syncTimes = 400

// examineDisk describes the disk of dir, and the time to write and sync 8 KiB, as each commit
// does. It refuses memory, where syncs cost nothing.
func examineDisk(dir string) contest.Parameter {
	filesystem := output("findmnt", "-nro", "FSTYPE,SOURCE", "-T", dir)
	if strings.HasPrefix(filesystem, "tmpfs") || strings.HasPrefix(filesystem, "ramfs") {
		contest.Check(fmt.Errorf("data directory %s (%s) is in memory: a benchmark needs a disk; give a directory on one with -dir", dir, filesystem))
	}
	times, err := measureSync(filepath.Join(dir, "sync"))
	if err != nil {
		contest.Check(fmt.Errorf("measure the disk: %w", err))
	}
	return contest.Parameter{Name: "disk", Value: fmt.Sprintf("%s (%s); 8 KiB with O_DSYNC, as with fdatasync: median %.3f ms, p99 %.3f ms (%d times)",
		filesystem, filepath.Dir(dir), contest.Percentile(times, 50), contest.Percentile(times, 99), syncTimes)}
}

// measureSync writes and syncs pages of the size of those of the write-ahead log, one after the
// other. As there, the file exists before. It returns the sorted times in milliseconds.
func measureSync(path string) (times []float64, err error) {
	const page = 8 << 10
	if err := os.WriteFile(path, make([]byte, syncTimes*page), 0o600); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_DSYNC, 0) //nolint:gosec // a path of our own
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(path)) }()
	if err := f.Sync(); err != nil {
		return nil, err
	}
	for i := range syncTimes {
		began := time.Now()
		if _, err := f.WriteAt(make([]byte, page), int64(i)*page); err != nil {
			return nil, err
		}
		times = append(times, contest.Milliseconds(time.Since(began)))
	}
	slices.Sort(times)
	return times, nil
}

// examineRedis reads the version and settings of the rivals' servers.
func examineRedis(ctx context.Context) contest.Parameter {
	var says string
	contest.Check(contest.Do(ctx, "settings", func(run *contest.Run) {
		client := NewRedis(run)
		says = contest.Must(client.InfoMap(ctx, "server").Result())["Server"]["redis_version"] + ":"
		for _, name := range []string{"save", "appendonly", "maxmemory", "io-threads"} {
			says += " " + name + "=" + contest.Must(client.ConfigGet(ctx, name).Result())[name]
		}
	}))
	return contest.Parameter{Name: "Redis", Value: says}
}
