package seal

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

func key(id string, fill byte) string {
	return id + "=" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, keyBytes))
}

func box(t *testing.T, specs ...string) *Box {
	t.Helper()
	b, err := ParseKeys(specs)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSealedSecretsOpen(t *testing.T) {
	old, both, none := box(t, key("2025", 1)), box(t, key("2026", 2), key("2025", 1)), box(t)
	secret := []byte("a token of a phone")
	for _, tt := range []struct {
		name       string
		seal, open *Box
		hidden     bool
	}{
		{"the same key", old, old, true},
		{"a key that no longer seals", old, both, true},
		{"no key", none, none, false},
		{"no key at first", none, both, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sealed := tt.seal.Seal(secret, "ada/phone")
			if bytes.Contains(sealed, secret) == tt.hidden {
				t.Errorf("the secret shows in %q", sealed)
			}
			got, err := tt.open.Open(sealed, "ada/phone")
			if err != nil || !bytes.Equal(got, secret) {
				t.Errorf("opens as %q, %v; want %q", got, err, secret)
			}
		})
	}
}

func TestOneSecretSealsDifferently(t *testing.T) {
	b := box(t, key("a", 1))
	if bytes.Equal(b.Seal([]byte("x"), ""), b.Seal([]byte("x"), "")) {
		t.Error("two seals are equal: they share a nonce")
	}
}

func TestWhatDoesNotOpen(t *testing.T) {
	b := box(t, key("a", 1))
	sealed := b.Seal([]byte("a token"), "ada/phone")
	for _, tt := range []struct {
		name    string
		box     *Box
		sealed  []byte
		context string
		want    error
	}{
		{"a secret of another row", b, sealed, "ben/phone", ErrDamaged},
		{"a key that is gone", box(t, key("b", 2)), sealed, "ada/phone", ErrNoKey},
		{"another key of the same id", box(t, key("a", 2)), sealed, "ada/phone", ErrDamaged},
		{"nothing", b, nil, "", ErrDamaged},
		{"an unknown format", b, []byte{7, 1, 2}, "", ErrDamaged},
		{"an id that is cut", b, sealed[:2], "ada/phone", ErrDamaged},
		{"a nonce that is cut", b, sealed[:9], "ada/phone", ErrDamaged},
		{"a changed bit", b, append(bytes.Clone(sealed[:len(sealed)-1]), sealed[len(sealed)-1]^1), "ada/phone", ErrDamaged},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := tt.box.Open(tt.sealed, tt.context); !errors.Is(err, tt.want) {
				t.Errorf("opens as %q, %v; want %v", got, err, tt.want)
			}
		})
	}
}

func TestBadKeysAreRefused(t *testing.T) {
	short := base64.StdEncoding.EncodeToString([]byte("a short secret"))
	for name, specs := range map[string][]string{
		"no id":         {strings.TrimPrefix(key("a", 1), "a=")},
		"a bad id":      {key("a b", 1)},
		"a short key":   {key("a", 1), "b=" + short},
		"not base64":    {"a=%%%"},
		"one id, twice": {key("a", 1), key("a", 2)},
	} {
		_, err := ParseKeys(specs)
		if err == nil {
			t.Errorf("%s is accepted", name)
		} else if strings.Contains(err.Error(), short) {
			t.Errorf("%s: the error shows the key: %v", name, err)
		}
	}
}
