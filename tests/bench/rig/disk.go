package rig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/badged/badged/tests/bench/measure"
)

// Disk describes the disk with the data of Postgres.
type Disk struct {
	Dir string `json:"dir"`
	// Filesystem is the type and device, such as "ext4 on /dev/vda".
	Filesystem string `json:"filesystem"`
	// SyncMS is the time in milliseconds to write and sync 8 KiB, as each commit
	// does: the median and the 99th percentile.
	SyncMS    float64 `json:"sync_ms"`
	SyncMS99  float64 `json:"sync_ms_p99"`
	SyncCall  string  `json:"sync_call"`
	SyncTimes int     `json:"sync_times"`
}

// examineDisk returns the disk of dir, and refuses memory, where syncs cost nothing.
func examineDisk(dir string) (Disk, error) {
	d := Disk{Dir: filepath.Dir(dir), Filesystem: "a filesystem of unknown type", SyncCall: syncCall, SyncTimes: 400}
	if mounts, err := procfs.GetMounts(); err == nil {
		if m := mountOf(dir, mounts); m != nil {
			d.Filesystem = m.FSType + " on " + m.Source
			if m.FSType == "tmpfs" || m.FSType == "ramfs" {
				return d, fmt.Errorf("data directory %s (%s) is in memory: a benchmark needs a disk; give a directory on one with -dir", dir, d.Filesystem)
			}
		}
	}
	times, err := measureSync(filepath.Join(dir, "sync"), d.SyncTimes)
	if err != nil {
		return d, fmt.Errorf("measure the disk: %w", err)
	}
	d.SyncMS, d.SyncMS99 = measure.Percentile(times, 50), measure.Percentile(times, 99)
	return d, nil
}

// mountOf returns the mount that dir is in, nil if there is none. A later mount at the same
// point hides the earlier.
func mountOf(dir string, mounts []*procfs.MountInfo) (in *procfs.MountInfo) {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	for _, m := range mounts {
		within := strings.HasPrefix(dir+"/", strings.TrimSuffix(m.MountPoint, "/")+"/")
		if within && (in == nil || len(m.MountPoint) >= len(in.MountPoint)) {
			in = m
		}
	}
	return in
}

// Sizes as in pg_test_fsync: a page of the write-ahead log, and a segment, which
// exists before it is written to.
const (
	syncPage    = 8 << 10
	syncSegment = 16 << 20
)

// measureSync writes and syncs one page after the other and returns the sorted
// times in milliseconds.
func measureSync(path string, n int) (times []float64, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // a path of our own
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(path)) }()
	if _, err := f.Write(make([]byte, syncSegment)); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	for i := range n {
		began := time.Now()
		if _, err := f.WriteAt(make([]byte, syncPage), int64(i)*syncPage%syncSegment); err != nil {
			return nil, err
		}
		if err := syncFile(f); err != nil {
			return nil, err
		}
		times = append(times, measure.Milliseconds(time.Since(began)))
	}
	slices.Sort(times)
	return times, nil
}
