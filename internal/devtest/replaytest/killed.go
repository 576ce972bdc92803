package replaytest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/replay"
)

// ErrKilled is the error of a store whose process has been killed.
var ErrKilled = errors.New("the process was killed")

// Killed is a store of an archive whose process is killed before the next change when Changes is 0.
// From then on no change reaches the folder, and incomplete files remain.
type Killed struct {
	archive.Folder

	Changes *int
	// Behind is the name of a file, "" for none. When this file has been written, the process is
	// killed as well.
	Behind string
}

func (s Killed) change() error {
	if *s.Changes == 0 {
		return ErrKilled
	}
	*s.Changes--
	return nil
}

// Create implements archive.Store.
func (s Killed) Create(ctx context.Context, name string) (archive.Writer, error) {
	if err := s.change(); err != nil {
		return nil, err
	}
	w, err := s.Folder.Create(ctx, name)
	return killedWriter{w, s, name}, err
}

// Remove implements archive.Store.
func (s Killed) Remove(ctx context.Context, name string) error {
	if err := s.change(); err != nil {
		return err
	}
	return s.Folder.Remove(ctx, name)
}

// Save implements archive.Store.
func (s Killed) Save(ctx context.Context, name string, content []byte, version string) (string, error) {
	if err := s.change(); err != nil {
		return "", err
	}
	return s.Folder.Save(ctx, name, content, version)
}

type killedWriter struct {
	archive.Writer

	store Killed
	name  string
}

func (w killedWriter) Commit() error {
	if err := w.store.change(); err != nil {
		return err
	}
	if w.name == w.store.Behind {
		*w.store.Changes = 0
	}
	return w.Writer.Commit()
}

func (w killedWriter) Abort() {
	if w.store.change() == nil {
		w.Writer.Abort()
	}
}

// RunKilled calls run repeatedly with a store whose process is killed: before its first change,
// then before its second change, and so on, until run succeeds. After each kill the archive must
// match the log. At the end, the folder must contain only files that the manifest names.
func RunKilled(t testing.TB, q events.Querier, dir string, run func(archive.Store) error) {
	t.Helper()
	kills := 0
	for ; ; kills++ {
		changes := kills
		err := run(Killed{Folder: archive.Folder(dir), Changes: &changes})
		if err == nil {
			break
		}
		if !errors.Is(err, ErrKilled) {
			t.Fatalf("killed before change %d, it ends with %v", kills+1, err)
		}
		a, err := archive.OpenStore(t.Context(), archive.Folder(dir))
		if err != nil {
			t.Fatal(err)
		}
		held, err := eventlog.Held(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range held {
			if _, err := replay.ArchivedFiles(t.Context(), q, a, p); err != nil {
				t.Fatalf("killed before change %d, it leaves an archive that does not match: %v", kills+1, err)
			}
		}
	}
	if kills < 3 {
		t.Errorf("it was killed %d times", kills)
	}
	a, err := archive.OpenStore(t.Context(), archive.Folder(dir))
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{"manifest.json": true, "lock": true}
	for _, p := range a.Numbers() {
		for _, f := range a.Files(p) {
			named[f.Name] = true
			if err := a.Check(t.Context(), f); err != nil {
				t.Error(err)
			}
		}
	}
	all, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if name := filepath.Base(path); !named[name] {
			t.Errorf("%s is left, and nothing names it", name)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil || strings.Contains(string(text), `"stale"`) {
		t.Errorf("the manifest still names files to delete: %v", err)
	}
}
