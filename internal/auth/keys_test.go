package auth_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/badged/badged/internal/auth"
)

func digestOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func TestKeys(t *testing.T) {
	keys, err := auth.ParseKeys([]string{
		"chat=plain secret",
		"push=sha256:" + digestOf("hashed"),
		"capitals=sha256:" + strings.ToUpper(digestOf("HASHED")),
		"padded=c2VjcmV0==",
		"spare=plain secret", // a key may have two names while it is renamed
	})
	if err != nil {
		t.Fatal(err)
	}
	if keys.Len() != 5 {
		t.Errorf("Len = %d, want 5", keys.Len())
	}
	for secret, want := range map[string]string{
		"plain secret":                 "spare",
		"hashed":                       "push",
		"HASHED":                       "capitals",
		"c2VjcmV0==":                   "padded",
		"c2VjcmV0":                     "",
		"":                             "",
		"plain":                        "",
		"plain secret ":                "",
		"chat":                         "",
		"chat=plain secret":            "",
		"sha256:" + digestOf("hashed"): "", // the digest in the configuration is no key
		digestOf("hashed"):             "",
	} {
		if name, ok := keys.Check(secret); name != want || ok != (want != "") {
			t.Errorf("Check(%q) = %q, %t, want %q", secret, name, ok, want)
		}
	}
}

func TestNoKeys(t *testing.T) {
	none, err := auth.ParseKeys(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, keys := range []auth.Keys{none, {}} {
		if name, ok := keys.Check(""); ok || name != "" || keys.Len() != 0 {
			t.Errorf("no keys know %q, %t", name, ok)
		}
	}
}

func TestInvalidKeys(t *testing.T) {
	const secret = "hunter2"
	const want = "want NAME=SECRET or NAME=sha256:HEX"
	const wantDigest = "sha256: must be followed by 64 hexadecimal digits"
	for _, test := range []struct {
		name  string
		specs []string
		want  string
	}{
		{"no name", []string{secret}, "key 1: " + want},
		{"an empty name", []string{"ok=x", "=" + secret}, "key 2: " + want},
		{"no secret", []string{"chat="}, "key 1: " + want},
		{"nothing", []string{""}, "key 1: " + want},
		{"base64 without a name", []string{secret + "=="}, "key 1: " + want},
		{"a name twice", []string{"chat=" + secret, "push=x", "chat=y"}, "key chat is given twice"},
		{"a digest that is short", []string{"chat=sha256:" + digestOf(secret)[1:]}, "key chat: " + wantDigest},
		{"a digest that is long", []string{"chat=sha256:" + digestOf(secret) + "00"}, "key chat: " + wantDigest},
		{"a digest with other digits", []string{"chat=sha256:" + secret}, "key chat: " + wantDigest},
		{"an empty digest", []string{"chat=sha256:"}, "key chat: " + wantDigest},
	} {
		t.Run(test.name, func(t *testing.T) {
			keys, err := auth.ParseKeys(test.specs)
			if err == nil {
				t.Fatal("accepted")
			}
			if got := err.Error(); got != test.want {
				t.Errorf("error is %q, want %q", got, test.want)
			}
			if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), digestOf(secret)[1:]) {
				t.Errorf("the error tells the secret: %v", err)
			}
			if keys.Len() != 0 {
				t.Errorf("%d keys beside an error", keys.Len())
			}
		})
	}
}

func TestKeysDoNotPrintTheirSecrets(t *testing.T) {
	keys, err := auth.ParseKeys([]string{"chat=hunter2"})
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"%v", "%+v", "%#v"} {
		if text := fmt.Sprintf(format, keys); strings.Contains(text, "hunter2") {
			t.Errorf("%s prints %s", format, text)
		}
	}
}
