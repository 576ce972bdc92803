package archive_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/google/uuid"

	"github.com/badged/badged/projector/archive"
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

// Nothing of an archive with a key is readable without it, keys can be added before the
// first, and a wrong or changed file is refused.
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
	if _, err := archive.Open(dir); err == nil || !strings.Contains(err.Error(), "manifest.json is encrypted: give the file of its keys with --archive-keys") {
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
