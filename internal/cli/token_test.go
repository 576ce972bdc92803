package cli

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/internal/server/auth"
)

const jwtKeys = "main=HS256:0123456789abcdef0123456789abcdef"

func TestTokenIsAccepted(t *testing.T) {
	out := mustDo(t, "token", "ada", "--ttl=5m", "--jwt-audience=badges", "--jwt-issuer=chat", "--jwt-keys="+jwtKeys)
	token, ok := strings.CutSuffix(out, "\n")
	if !ok || strings.ContainsAny(token, " \n") {
		t.Fatalf("printed %q, want a token and nothing else", out)
	}
	tokens, err := auth.NewTokens(auth.TokenConfig{Keys: []string{jwtKeys}, Audience: "badges", Issuer: "chat"})
	if err != nil {
		t.Fatal(err)
	}
	id, err := tokens.Authenticate(t.Context(), token)
	if err != nil || id.UserID != "ada" {
		t.Fatalf("the token is for %+v, %v", id, err)
	}
	if left := time.Until(id.ExpiresAt); left > 5*time.Minute {
		t.Errorf("the token is good for %s, want 5m", left)
	}
}

func TestInvalidTokens(t *testing.T) {
	const secret = "hunter2"
	for _, test := range []struct{ name, user, keys, want string }{
		{"an empty id", "", jwtKeys, `badged: user id "" must not be empty`},
		{"an invalid user id", "a\x01b", jwtKeys, `badged: user id "a\x01b" must not hold control characters`},
		{"a secret that is short", "ada", "main=HS256:" + secret, "badged: --jwt-keys: JWT key main: the secret must have at least 32 bytes, has 7"},
		{"a key without a name", "ada", secret, "badged: --jwt-keys: JWT key 1: want KID=HS256:SECRET or KID=RS256:PEM-FILE (or ES256, EdDSA)"},
		{"a file that is not there", "ada", "main=RS256:/nowhere.pem", "badged: --jwt-keys: JWT key main: read the public key: open /nowhere.pem: no such file or directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := badged(t, "token", test.user, "--jwt-keys="+test.keys)
			if r.code != exitUsage || r.out != "" || r.err != test.want+"\n" {
				t.Errorf("exit code %d, printed %q, says:\n%swant:\n%s", r.code, r.out, r.err, test.want)
			}
			if strings.Contains(r.err, secret) {
				t.Errorf("it tells the secret: %s", r.err)
			}
		})
	}
}

// audienceOf returns the audience of the token that a command printed.
func audienceOf(t *testing.T, token string) string {
	t.Helper()
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims struct {
		Audience []string `json:"aud"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	return strings.Join(claims.Audience, ",")
}

func TestPrecedenceOfSources(t *testing.T) {
	file := filepath.Join(t.TempDir(), "badged.yaml")
	// A secret in a list may contain a comma.
	text := "jwt-keys: ['main=HS256:0123456789abcdef,0123456789abcdef']\njwt-audience: file\nttl: 1m\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"token", "ada", "--config=" + file}
	if got := audienceOf(t, mustDo(t, args...)); got != "file" {
		t.Errorf("with the file: audience %q", got)
	}
	t.Setenv("BADGED_JWT_AUDIENCE", "environment")
	if got := audienceOf(t, mustDo(t, args...)); got != "environment" {
		t.Errorf("with the environment: audience %q", got)
	}
	if got := audienceOf(t, mustDo(t, append(args, "--jwt-audience=flag")...)); got != "flag" {
		t.Errorf("with the flag: audience %q", got)
	}
}
