package erasure_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/archiving"
	"github.com/badged/badged/internal/user/erasure"
)

// An erasure deletes a leftover of an interrupted archiving while the log has its events. If the
// database was restored to a time before them, the erasure fails until the file is moved away.
func TestEraseDeletesNoLostEvents(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name             string
		listed, restored bool
	}{
		{"in the manifest", true, false},
		{"not in the manifest", false, false},
		{"in the manifest, and the database was restored", true, true},
		{"not in the manifest, and the database was restored", false, true},
	} {
		t.Run(tc.name, func(t *testing.T) { //nolint:paralleltest // servers take memory
			eraseAfterInterruptedArchiving(t, tc.listed, tc.restored)
		})
	}
}

func eraseAfterInterruptedArchiving(t *testing.T, listed, restored bool) {
	t.Helper()
	s, dir := pgtest.NewServer(t), t.TempDir()
	d := projectortest.Open(t, s.NewDB(t, projectortest.Migrated()))
	user, other := foldtest.User(0, 0), foldtest.User(0, 1)
	d.Append(t, foldtest.Deliver("c", 1, user, other))
	d.Fold(t)
	archived(t, d, dir)
	putBack := s.BaseBackup(t)
	d.Append(t, foldtest.Deliver("c", 2, user, other))
	d.Fold(t)
	d.StopFolding()
	left := filepath.Join(dir, "events_p00.00002.ndjson.zst")
	changes := -1 // any number
	store, trigger := replaytest.Killed{Folder: archive.Folder(dir), Changes: &changes}, ""
	if listed {
		trigger = "AFTER INSERT ON badged.archived_files"
	} else {
		store.Behind = filepath.Base(left)
	}
	end := d.KillAt(t, trigger, "badged archive")
	if err := tryArchive(t, d, store); err == nil {
		t.Fatal("the archiving was not killed")
	}
	end()
	if restored {
		putBack()
		d.Pool.Reset()
		takeOver(t, d, dir)
	}
	kept, err := os.ReadFile(left)
	if err != nil {
		t.Fatal(err)
	}
	folding(t, d)
	if restored {
		_, err := eraseArchived(t.Context(), d, user, dir)
		if file, ok := errors.AsType[*archive.FileError](err); !ok || file.Path != left || !strings.Contains(file.Reason, "has events that are not in the log") {
			t.Errorf("it ends with %v", err)
		}
		if got := d.Badge(t, user).Total; got != 1 {
			t.Errorf("the user has a total of %d, want 1: it erased before it failed", got)
		}
		if now, err := os.ReadFile(left); err != nil || !slices.Equal(now, kept) {
			t.Fatalf("the only copy of the events is gone: %v", err)
		}
		if err := os.Rename(left, filepath.Join(t.TempDir(), "kept")); err != nil {
			t.Fatal(err)
		}
	}
	before := ofOthers(t, d, user)
	got, err := eraseArchived(t.Context(), d, user, dir)
	if err != nil || got.Archived.Changed != 1 {
		t.Errorf("the result is %+v, %v", got, err)
	}
	if left := inFiles(t, dir, fmt.Sprintf("%q", user)); left != nil {
		t.Errorf("the id is still in %v", left)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "events_*")); err != nil || len(files) != 1 {
		t.Errorf("the files are %v: %v", files, err)
	}
	projectortest.Same(t, "rows of others", before, ofOthers(t, d, user))
	replaytest.VerifyArchive(t, d.Pool, d.Log, dir, other)
}

// takeOver makes an archive that of a database which was restored.
func takeOver(t *testing.T, d *projectortest.Database, dir string) {
	t.Helper()
	a, err := archive.Continue(t.Context(), archive.Folder(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := archiving.TakeOver(t.Context(), d.Pool, d.Log, a); err != nil {
		t.Fatal(err)
	}
}

// A user whose erasure was lost is found also if only the audit trail names the user, whatever else
// the trail has.
func TestFindLostInTheTrail(t *testing.T) {
	d, dir := projectortest.New(t), t.TempDir()
	user := foldtest.User(0, 0)
	d.Append(t, foldtest.Deliver("c", 1, user))
	d.Fold(t)
	archived(t, d, dir)
	if _, err := eraseArchived(t.Context(), d, user, dir); err != nil {
		t.Fatal(err)
	}
	d.Exec(t, `DELETE FROM badged.erasures`)
	a, err := archive.OpenStore(t.Context(), archive.Folder(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, named := range []bool{false, true} {
		record := map[bool]string{false: `{"webhook":"\u0000"}`, true: fmt.Sprintf(`{"user":%q,"note":"\ud83d"}`, user)}[named]
		d.Exec(t, `INSERT INTO badged.audit (who, via, action, arguments) VALUES ('ops', 'api', 'x', $1::text::json)`, record)
		lost, err := erasure.FindLost(t.Context(), erasure.Config{Pool: d.Pool, Log: d.Log, Archive: a})
		if err != nil || slices.Contains(lost.Users, user) != named || len(lost.Users)+len(lost.Gone) != 1 {
			t.Errorf("with %s: found %+v, %v", record, lost, err)
		}
	}
}
