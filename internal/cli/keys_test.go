package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/snippets"
	"github.com/badged/badged/internal/server/keyring"
)

func TestKeysHash(t *testing.T) {
	const secret = "0123456789abcdef"
	for _, input := range []string{secret, secret + "\n", secret + "\r\n"} {
		r := badgedWith(t.Context(), input, "keys", "hash")
		if r.code != exitDone || r.err != "" || r.out != "sha256:9f9f5111f7b27a781f1f1ddde5ebc2dd2b796bfc7365c9c28b548e564176929f\n" {
			t.Errorf("of %q: %+v", input, r)
		}
		snippets.ExpectShape(t, snippets.Output(t, "docs/cli.md", "openssl rand -hex 32 | tee secret | badged keys hash"), r.out)
	}
	for input, want := range map[string]string{
		"":                        "standard input has no secret",
		"\n":                      "standard input has no secret",
		"hunter2":                 "the secret has 7 bytes and may be guessed",
		secret + "\n" + secret:    "a secret is one line",
		" " + secret:              "a secret is one line",
		strings.Repeat("x", 1e5):  "a secret is one line",
		secret + "\x00" + "abcde": "a secret is one line",
	} {
		r := badgedWith(t.Context(), input, "keys", "hash")
		if r.code != exitFailed || r.out != "" || !strings.Contains(r.err, want) || strings.Contains(r.err, "hunter2") {
			t.Errorf("of %.40q: exit code %d, %s, want %s", input, r.code, r.err, want)
		}
	}
}

// What `keys new` prints is an entry of a file that knows the secret.
func TestKeysNew(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.yaml")
	text := "keys:\n"
	var secrets []string
	for _, args := range [][]string{{"keys", "new", "crm"}, {"keys", "new", "push", "--kind=reader"}, {"keys", "new", "ops", "--kind=admin"}} {
		r := badged(t, args...)
		lines := strings.Split(r.err, "\n")
		if r.code != exitDone || len(lines) != 3 || !strings.HasPrefix(lines[1], "badged_") || strings.Contains(r.out, lines[1]) {
			t.Fatalf("%v: %+v", args, r)
		}
		if args[2] == "crm" {
			snippets.ExpectShape(t, snippets.Output(t, "docs/cli.md", "badged keys new crm >> keys.yaml"), r.err)
		}
		text += r.out
		secrets = append(secrets, lines[1])
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, errs := keyring.New(keyring.Config{File: file})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for i, want := range []struct {
		name string
		kind keyring.Kind
	}{{"crm", keyring.Publisher}, {"push", keyring.Reader}, {"ops", keyring.Admin}} {
		if k, valid := keys.Find(secrets[i]); !valid || k.Name != want.name || k.Kind != want.kind {
			t.Errorf("the secret of %s is that of %v", want.name, k)
		}
	}
	if r := badged(t, "keys", "new", "two words"); r.code != exitUsage || !strings.Contains(r.err, "keys new: the name must be letters") {
		t.Errorf("with a bad name: %+v", r)
	}
}

// `config check` names every mistake in the file of keys, and not as one.
func TestConfigCheckOfKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(file, []byte("keys:\n- name: crm\n  kind: publisher\n  secret: hunter2\n  types: [message.deliverd]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"config", "check", "--database-url=postgres://localhost/x", "--jwt-keys=" + jwtKeys, "--keys-file=" + file}
	r := badged(t, args...)
	for _, want := range []string{
		"\n  --keys-file: " + file + ":4: key crm: secret must be sha256: and 64 hexadecimal digits",
		"\n  --keys-file: " + file + ":5: key crm: types: \"message.deliverd\" matches no type",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("it does not print %q:\n%s", want, r.out)
		}
	}
	if r.code != exitUsage || !strings.Contains(r.err, "2 mistakes") || strings.Contains(r.out, "hunter2") {
		t.Errorf("exit code %d, %s\n%s", r.code, r.err, r.out)
	}
	if r := badged(t, append(args, "--roles=projector", "--redis-url=redis://127.0.0.1:1")...); r.code != exitDone {
		t.Errorf("a projector needs no keys: %s\n%s", r.err, r.out)
	}
	if r := badged(t, "serve", "--listen=127.0.0.1:0", "--database-url=postgres://127.0.0.1:1/x", "--jwt-keys="+jwtKeys, "--keys-file="+file); r.code != exitFailed || !strings.Contains(r.err, file+":4: key crm: ") {
		t.Errorf("serve: %+v", r)
	}
}
