package rig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

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

// errMemory refuses a directory in memory, where syncs cost nothing.
var errMemory = errors.New("it is in memory: a benchmark needs a disk; give a directory on one with -dir")

// examineDisk returns the disk of dir, and refuses memory.
func examineDisk(dir string) (Disk, error) {
	filesystem, inMemory, err := filesystemOf(dir)
	if err != nil {
		return Disk{}, fmt.Errorf("data directory %s: %w", dir, err)
	}
	if inMemory {
		return Disk{}, fmt.Errorf("data directory %s (%s): %w", dir, filesystem, errMemory)
	}
	d := Disk{Dir: filepath.Dir(dir), Filesystem: filesystem, SyncCall: SyncCall, SyncTimes: 400}
	times, err := measureSync(filepath.Join(dir, "sync"), d.SyncTimes)
	if err != nil {
		return Disk{}, fmt.Errorf("measure the disk: %w", err)
	}
	d.SyncMS, d.SyncMS99 = measure.Percentile(times, 50), measure.Percentile(times, 99)
	return d, nil
}

// Sizes as in pg_test_fsync: a page of the write-ahead log, and a segment, which
// exists before it is written to.
const (
	syncPage    = 8 << 10
	syncSegment = 16 << 20
)

// measureSync writes and syncs one page after the other and returns the sorted
// times in milliseconds.
func measureSync(path string, n int) (_ []float64, err error) {
	f, err := SyncedFile(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(path)) }()
	times := make([]float64, n)
	for i := range times {
		began := time.Now()
		if err := SyncOnePage(f, i); err != nil {
			return nil, err
		}
		times[i] = measure.Milliseconds(time.Since(began))
	}
	slices.Sort(times)
	return times, nil
}

// SyncedFile makes a segment and syncs it.
func SyncedFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // a path of our own
	if err != nil {
		return nil, err
	}
	_, err = f.Write(make([]byte, syncSegment))
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return f, nil
}

// SyncOnePage writes page i, modulo the segment's size, and syncs the file.
func SyncOnePage(f *os.File, i int) error {
	if _, err := f.WriteAt(slices.Repeat([]byte{0x5a}, syncPage), int64(i)*syncPage%syncSegment); err != nil {
		return err
	}
	return syncFile(f)
}
