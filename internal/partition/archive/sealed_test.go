package archive_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/google/uuid"

	"github.com/badged/badged/internal/partition/archive"
)

// secret returns a new line for a file of keys, and its public half.
func secret(t *testing.T) (line, name string) {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id.String() + "\n", id.Recipient().String()
}

func sealed(t *testing.T, dir, lines string) archive.Store {
	t.Helper()
	keys, err := archive.ParseKeys(strings.NewReader(lines))
	if err != nil {
		t.Fatal(err)
	}
	return archive.Sealed{Store: archive.Folder(dir), Keys: keys}
}

// An encrypted archive cannot be read without its key, new keys can be added before the first key,
// and a wrong or changed file is refused.
func TestSealed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	old, oldName := secret(t)
	next, nextName := secret(t)
	a, err := archive.Create(t.Context(), sealed(t, dir, old), uuid.New(), 4)
	if err != nil {
		t.Fatal(err)
	}
	first := write(t, a, 1, records()[:5])
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if a, err = archive.Continue(t.Context(), sealed(t, dir, next+"# the one before\n"+old)); err != nil {
		t.Fatal(err)
	}
	second := write(t, a, 2, records()[5:])
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := archive.OpenStore(t.Context(), sealed(t, dir, old+next)); err != nil || b.Check(t.Context(), first) != nil || b.Check(t.Context(), second) != nil {
		t.Errorf("with both keys it opens with %v", err)
	}
	for _, name := range []string{first.Name, second.Name, "manifest.json"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.HasPrefix(content, []byte("age-encryption.org/v1\n")) || bytes.Contains(content, []byte("events_p")) {
			t.Errorf("%s is %.40q, %v", name, content, err)
		}
	}
	if _, err := archive.OpenStore(t.Context(), archive.Folder(dir)); err == nil || !strings.Contains(err.Error(), "manifest.json is encrypted: give the file of its keys with --archive-keys") {
		t.Errorf("without a key it opens with %v", err)
	}
	wrong, wrongName := secret(t)
	if _, err := archive.OpenStore(t.Context(), sealed(t, dir, wrong)); err == nil || !strings.Contains(err.Error(), "manifest.json is encrypted with another key than "+wrongName) {
		t.Errorf("with a wrong key it opens with %v", err)
	}
	b, err := archive.OpenStore(t.Context(), sealed(t, dir, next))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Check(t.Context(), first); err == nil || !strings.Contains(err.Error(), first.Name+" is encrypted with another key than "+nextName) {
		t.Errorf("without the key of the first file, %s, checking ends with %v", oldName, err)
	}
	path := filepath.Join(dir, second.Name)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)-20] ^= 1
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Check(t.Context(), second); err == nil {
		t.Error("a changed file passes")
	}
}

// An archive without encryption is continued with a key.
func TestSealedLater(t *testing.T) {
	a, dir := newArchive(t)
	first := write(t, a, 1, records()[:5])
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	key, _ := secret(t)
	b, err := archive.Continue(t.Context(), sealed(t, dir, key))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	second := write(t, b, 2, records()[5:])
	if err := b.Check(t.Context(), first); err != nil {
		t.Error(err)
	}
	if err := b.Check(t.Context(), second); err != nil {
		t.Error(err)
	}
}

func TestKeysAreRefused(t *testing.T) {
	for lines, says := range map[string]string{
		"":         "read keys of archives: no identities found",
		"secret\n": "read keys of archives: ",
	} {
		if _, err := archive.ParseKeys(strings.NewReader(lines)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q is refused with %v", lines, err)
		}
	}
}

// stopping is a store whose files can be written only that many times.
type stopping struct {
	archive.Store
	left *int
}

func (s stopping) Create(ctx context.Context, name string) (archive.Writer, error) {
	if *s.left--; *s.left < 0 {
		return nil, errors.New("killed")
	}
	return s.Store.Create(ctx, name)
}

// Reseal encrypts unencrypted files, and files with an old key, with the first key, also after
// interruptions. Their content does not change.
func TestReseal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	a, err := archive.Create(t.Context(), archive.Folder(dir), uuid.New(), 4)
	if err != nil {
		t.Fatal(err)
	}
	old, _ := secret(t)
	next, _ := secret(t)
	files := []archive.File{write(t, a, 1, records()[:2])}
	for i, keys := range []string{old, old, next + old} {
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if a, err = archive.Continue(t.Context(), sealed(t, dir, keys)); err != nil {
			t.Fatal(err)
		}
		files = append(files, write(t, a, 2+i, records()[2+i:3+i]))
	}
	keys, err := archive.ParseKeys(strings.NewReader(next + old))
	if err != nil {
		t.Fatal(err)
	}
	reseal := func(store archive.Store) (names []string, err error) {
		err = archive.Reseal(t.Context(), archive.Sealed{Store: store, Keys: keys}, func(*archive.Archive) error { return nil }, func(f archive.File) { names = append(names, f.Name) })
		return names, err
	}
	if _, err := reseal(archive.Folder(dir)); !errors.Is(err, archive.ErrInUse) {
		t.Errorf("while another process adds: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	left := 1
	if names, err := reseal(stopping{archive.Folder(dir), &left}); err == nil || len(names) != 1 {
		t.Errorf("interrupted, it has done %q: %v", names, err)
	}
	if b, err := archive.OpenStore(t.Context(), sealed(t, dir, old+next)); err != nil || b.Check(t.Context(), files[0]) != nil {
		t.Errorf("in between it opens with %v", err)
	}
	if names, err := reseal(archive.Folder(dir)); err != nil || len(names) != 2 {
		t.Errorf("then it does %q: %v", names, err)
	}
	if names, err := reseal(archive.Folder(dir)); err != nil || len(names) != 0 {
		t.Errorf("and again %q: %v", names, err)
	}
	b, err := archive.OpenStore(t.Context(), sealed(t, dir, next)) // without the old key
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := b.Check(t.Context(), f); err != nil {
			t.Error(err)
		}
	}

	// A damaged file is not given a fresh seal.
	path := filepath.Join(dir, files[0].Name)
	if err := os.WriteFile(path, []byte("not what it was"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := reseal(archive.Folder(dir)); err == nil || !strings.Contains(err.Error(), files[0].Name+" is damaged") {
		t.Errorf("a damaged file: %v", err)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "not what it was" {
		t.Errorf("the damaged file is %q, %v", content, err)
	}
}
