package cli

import (
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
		{"a key without a name", "ada", secret, "badged: --jwt-keys: JWT key 1: want KID=HS256:SECRET or KID=RS256:PEM-FILE (or ES256, EdDSA)"},
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
