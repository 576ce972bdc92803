package archiving_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/archiving"
)

// Gather moves a partition's files to the archive of its new shard. It deletes the leftovers of an
// interrupted archiving in the other archive, unless they may be the only copy of events.
func TestGather(t *testing.T) {
	t.Parallel()
	for _, restored := range []bool{false, true} {
		name := map[bool]string{false: "as it was", true: "the database was restored"}[restored]
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // servers take memory
			s, own, other := pgtest.NewServer(t), filepath.Join(t.TempDir(), "own"), filepath.Join(t.TempDir(), "other")
			d := projectortest.Open(t, s.NewDB(t, projectortest.Migrated()))
			user := foldtest.User(0, 0)
			deliver := func(seq int64) {
				t.Helper()
				d.Append(t, foldtest.Deliver("c", seq, user))
				d.Fold(t)
				d.EndRange(t, 0)
			}
			deliver(1)
			archived(t, d, other)
			d.StopFolding()
			putBack := s.BaseBackup(t)
			deliver(2)
			end := d.KillAt(t, `AFTER INSERT ON badged.archived_files`, "badged archive")
			if _, err := tryArchive(t.Context(), d, other, nil); err == nil {
				t.Fatal("it was not killed")
			}
			end()
			d.StopFolding()
			if restored {
				putBack()
				d.Pool.Reset()
			}
			gather := func() error {
				return archiving.Gather(t.Context(), d.Pool, foldtest.Partitions, archive.Folder(own), []archiving.Other{{Store: archive.Folder(other)}})
			}
			files := func(dir string, want ...string) {
				t.Helper()
				all, err := filepath.Glob(filepath.Join(dir, "events_*"))
				for i := range all {
					all[i] = strings.TrimSuffix(filepath.Base(all[i]), ".ndjson.zst")
				}
				if err != nil || strings.Join(all, " ") != strings.Join(want, " ") {
					t.Errorf("%s has %v, want %v: %v", filepath.Base(dir), all, want, err)
				}
			}
			if restored {
				left := filepath.Join(other, "events_p00.00002.ndjson.zst")
				if file, ok := errors.AsType[*archive.FileError](gather()); !ok || file.Path != left {
					t.Errorf("it does not name %s, but %v", left, file)
				}
				files(other, "events_p00.00001", "events_p00.00002")
			} else {
				if err := gather(); err != nil {
					t.Error(err)
				}
				files(other)
			}
			files(own, "events_p00.00001")
			replaytest.VerifyArchive(t, d.Pool, d.Log, own, user)
		})
	}
}

// A leftover of a partition that was split later is deleted when a child is archived, unless the
// log was restored to a time before the leftover's events.
func TestArchiveAfterASplitDeletesNoLostEvents(t *testing.T) {
	t.Parallel()
	s, dir := pgtest.NewServer(t), filepath.Join(t.TempDir(), "archive")
	d := projectortest.Open(t, s.NewDB(t, projectortest.Migrated()))
	users := []string{foldtest.User(0, 0), foldtest.User(0, 1)} // of 4 and 8
	deliver := func(seq int64) {
		t.Helper()
		d.Append(t, foldtest.Deliver("c", seq, users...))
		d.Fold(t)
	}
	deliver(1)
	archiveHeld(t, d, dir)
	d.StopFolding()
	putBack := s.BaseBackup(t)
	deliver(2)
	d.EndRange(t, 0)
	left := filepath.Join(dir, "events_p00.00002.ndjson.zst")
	changes := -1 // any number
	if _, err := tryArchive(t.Context(), d, dir, func(cfg *archiving.Config) {
		cfg.Store = replaytest.Killed{Folder: archive.Folder(dir), Changes: &changes, Behind: filepath.Base(left)}
	}); !errors.Is(err, replaytest.ErrKilled) {
		t.Fatalf("it was not killed: %v", err)
	}
	d.StopFolding()
	putBack()
	d.Pool.Reset()
	a, err := archive.Continue(t.Context(), archive.Folder(dir))
	if err == nil {
		err = errors.Join(archiving.TakeOver(t.Context(), d.Pool, d.Log, a), a.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	split(t, d, 0)
	deliver(3)
	for _, p := range []int{4, 8} {
		d.EndRange(t, p)
	}
	_, err = tryArchive(t.Context(), d, dir, nil)
	if file, ok := errors.AsType[*archive.FileError](err); !ok || file.Path != left {
		t.Errorf("archiving ends with %v", err)
	}
	if err := os.Rename(left, filepath.Join(t.TempDir(), "kept")); err != nil {
		t.Fatal(err)
	}
	archiveHeld(t, d, dir)
	replaytest.VerifyArchive(t, d.Pool, d.Log, dir, users...)
}
