package auth_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/badged/badged/internal/server/auth"
)

const (
	secret      = "0123456789abcdef0123456789abcdef"
	otherSecret = "fedcba9876543210fedcba9876543210"
)

func mustTokens(t *testing.T, cfg auth.TokenConfig) *auth.Tokens {
	t.Helper()
	tokens, err := auth.NewTokens(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// pair is a key pair for one method.
type pair struct {
	private crypto.Signer
	// public is the public key in PEM, and file its path.
	public []byte
	file   string
}

func newPair(t *testing.T, private crypto.Signer, err error) pair {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	p := pair{private, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), filepath.Join(t.TempDir(), "key.pem")}
	if err := os.WriteFile(p.file, p.public, 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func rsaPair(t *testing.T) pair {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	return newPair(t, private, err)
}

func ecPair(t *testing.T) pair {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return newPair(t, private, err)
}

func edPair(t *testing.T) pair {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	return newPair(t, private, err)
}

// sign makes a token; kid "" omits the kid.
func sign(t *testing.T, method jwt.SigningMethod, kid string, claims jwt.MapClaims, key any) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	if kid != "" {
		token.Header["kid"] = kid
	}
	signed, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// signWith makes a valid token of the key h with changes to its header; nil
// removes a member.
func signWith(t *testing.T, header map[string]any) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, claimsOf(nil))
	token.Header["kid"] = "h"
	for name, value := range header {
		if value == nil {
			delete(token.Header, name)
			continue
		}
		token.Header[name] = value
	}
	signed, err := token.SignedString([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// signText signs a header and claims given as text, with HS256.
func signText(t *testing.T, header, claims string) string {
	t.Helper()
	text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
	signature, err := jwt.SigningMethodHS256.Sign(text, []byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// claimsOf returns valid claims of ada with changes; nil removes a claim.
func claimsOf(changes jwt.MapClaims) jwt.MapClaims {
	claims := jwt.MapClaims{"sub": "ada", "exp": time.Now().Add(time.Hour).Unix(), "aud": "badges", "iss": "chat"}
	for name, value := range changes {
		if value == nil {
			delete(claims, name)
			continue
		}
		claims[name] = value
	}
	return claims
}

func TestTokens(t *testing.T) {
	rs, es, ed := rsaPair(t), ecPair(t), edPair(t)
	tokens := mustTokens(t, auth.TokenConfig{
		Keys:     []string{"h=HS256:" + secret, "r=RS256:" + rs.file, "e=ES256:" + es.file, "d=EdDSA:" + ed.file},
		Audience: "badges", Issuer: "chat",
	})
	hs256, past := jwt.SigningMethodHS256, time.Now().Add(-time.Hour).Unix()
	good := claimsOf(nil)
	hs := func(changes jwt.MapClaims) string { return sign(t, hs256, "h", claimsOf(changes), []byte(secret)) }
	for _, test := range []struct{ name, token, want string }{
		{"HS256", hs(nil), ""},
		{"RS256", sign(t, jwt.SigningMethodRS256, "r", good, rs.private), ""},
		{"ES256", sign(t, jwt.SigningMethodES256, "e", good, es.private), ""},
		{"EdDSA", sign(t, jwt.SigningMethodEdDSA, "d", good, ed.private), ""},
		{"several audiences", hs(jwt.MapClaims{"aud": []string{"other", "badges"}}), ""},
		{"from a clock that is ahead", hs(jwt.MapClaims{"nbf": time.Now().Add(2 * time.Second).Unix()}), ""},
		{"the last time there is", hs(jwt.MapClaims{"exp": 253402300799}), ""},
		{"a fraction of a second", hs(jwt.MapClaims{"exp": 253402300798.5}), ""},
		{"claims whose names differ in case", hs(jwt.MapClaims{"SUB": "eve", "Sub": "eve", "EXP": 1}), ""},
		{"the type of an access token", signWith(t, map[string]any{"typ": "at+jwt"}), ""},
		{"a type in full", signWith(t, map[string]any{"typ": "application/JWT"}), ""},
		{"no type", signWith(t, map[string]any{"typ": nil}), ""},
		{"further claims", hs(jwt.MapClaims{"name": "Ada", "nbf": past}), ""},

		{"expired", hs(jwt.MapClaims{"exp": past}), "bad token: it has expired"},
		{"ended a moment ago", hs(jwt.MapClaims{"exp": time.Now().Add(-time.Second).Unix()}), "bad token: it has expired"},
		{"ends after the year 9999", hs(jwt.MapClaims{"exp": 253402300800}), "bad token: exp must be seconds from 1970 to the year 9999"},
		{"ends at a time in milliseconds", hs(jwt.MapClaims{"exp": time.Now().Add(time.Hour).UnixMilli()}), "bad token: exp must be seconds from 1970 to the year 9999"},
		{"ends before 1970", hs(jwt.MapClaims{"exp": -1}), "bad token: exp must be seconds from 1970 to the year 9999"},
		{"ends beyond all numbers", hs(jwt.MapClaims{"exp": json.RawMessage("1e999")}), "bad token: exp must be seconds from 1970 to the year 9999"},
		{"ends at a text", hs(jwt.MapClaims{"exp": "4102444800"}), "bad token: exp must be a number of seconds"},
		{"ends at null", hs(jwt.MapClaims{"exp": json.RawMessage("null")}), "bad token: exp must be a number of seconds"},
		{"was issued at a text", hs(jwt.MapClaims{"iat": "yesterday"}), "bad token: iat must be a number of seconds"},
		{"was issued at a time in milliseconds", hs(jwt.MapClaims{"iat": time.Now().UnixMilli()}), "bad token: iat must be seconds from 1970 to the year 9999"},
		{"begins after the year 9999", hs(jwt.MapClaims{"nbf": 1e300}), "bad token: nbf must be seconds from 1970 to the year 9999"},
		{"an audience that is a number", hs(jwt.MapClaims{"aud": 7}), "bad token: aud must be a string or an array of strings"},
		{"a claim twice", signText(t, `{"alg":"HS256","kid":"h"}`, `{"sub":"ada","sub":"eve","exp":4102444800,"aud":"badges","iss":"chat"}`), "bad token: it is not a JWT"},
		{"claims that are null", signText(t, `{"alg":"HS256","kid":"h"}`, `null`), "bad token: it lacks a required claim (exp; aud and iss where configured)"},
		{"an extension that must be understood", signWith(t, map[string]any{"crit": []string{"exp"}}), "bad token: its header has crit or b64, and badged supports no extensions"},
		{"an empty list of extensions", signWith(t, map[string]any{"crit": []string{}}), "bad token: its header has crit or b64, and badged supports no extensions"},
		{"a payload that is not base64", signWith(t, map[string]any{"b64": false}), "bad token: its header has crit or b64, and badged supports no extensions"},
		{"the type of a logout token", signWith(t, map[string]any{"typ": "logout+jwt"}), "bad token: its typ is neither JWT nor at+jwt"},
		{"a type that is a number", signWith(t, map[string]any{"typ": 7}), "bad token: its typ is neither JWT nor at+jwt"},
		{"a kid that is a number", signWith(t, map[string]any{"kid": 7}), "bad token: its kid must be a string that is not empty"},
		{"never expires", hs(jwt.MapClaims{"exp": nil}), "bad token: it lacks a required claim (exp; aud and iss where configured)"},
		{"not valid yet", hs(jwt.MapClaims{"nbf": time.Now().Add(time.Hour).Unix()}), "bad token: it is not valid yet"},
		{"another audience", hs(jwt.MapClaims{"aud": "other"}), "bad token: it is for another audience"},
		{"no audience", hs(jwt.MapClaims{"aud": nil}), "bad token: it lacks a required claim (exp; aud and iss where configured)"},
		{"another issuer", hs(jwt.MapClaims{"iss": "other"}), "bad token: it is from another issuer"},
		{"no issuer", hs(jwt.MapClaims{"iss": nil}), "bad token: it lacks a required claim (exp; aud and iss where configured)"},
		{"no subject", hs(jwt.MapClaims{"sub": nil}), "bad token: sub must not be empty"},
		{"a subject that is not a valid user id", hs(jwt.MapClaims{"sub": "a\x00b"}), "bad token: sub must not hold control characters"},
		{"a subject that is too long", hs(jwt.MapClaims{"sub": strings.Repeat("x", 129)}), "bad token: sub must have at most 128 bytes, has 129"},
		{"a subject that is a number", hs(jwt.MapClaims{"sub": 7}), "bad token: sub must be a string"},

		{"a wrong secret", sign(t, hs256, "h", good, []byte(otherSecret)), "bad token: its signature is wrong"},
		{"a wrong private key", sign(t, jwt.SigningMethodES256, "e", good, ecPair(t).private), "bad token: its signature is wrong"},
		{"an unknown kid", sign(t, hs256, "x\n"+strings.Repeat("x", 100), good, []byte(secret)), `bad token: its key "x\n` + strings.Repeat("x", 62) + `" is not known here`},
		{"no kid with several keys", sign(t, hs256, "", good, []byte(secret)), "bad token: it has no kid, which tokens need unless there is a single key"},
		{"a changed payload", tamper(t, hs(nil)), "bad token: its signature is wrong"},
		{"no signature", strings.Join(strings.Split(hs(nil), ".")[:2], ".") + ".", "bad token: its signature is wrong"},

		{"the method none", sign(t, jwt.SigningMethodNone, "h", good, jwt.UnsafeAllowNoneSignatureType), "bad token: it is signed with none; the key h is for HS256"},
		{"a method that is not taken", sign(t, jwt.SigningMethodHS512, "h", good, []byte(secret)), "bad token: it is signed with HS512; the key h is for HS256"},
		{"RS256's public key as a secret", sign(t, hs256, "r", good, rs.public), "bad token: it is signed with HS256; the key r is for RS256"},
		{"ES256's public key as a secret", sign(t, hs256, "e", good, es.public), "bad token: it is signed with HS256; the key e is for ES256"},
		{"another key's method", sign(t, jwt.SigningMethodEdDSA, "r", good, ed.private), "bad token: it is signed with EdDSA; the key r is for RS256"},

		{"nothing", "", "bad token: it is not a JWT"},
		{"two parts", "a.b", "bad token: it is not a JWT"},
		{"three parts of nothing", "..", "bad token: it is not a JWT"},
		{"an API key", "publisher.secret.key", "bad token: it is not a JWT"},
	} {
		t.Run(test.name, func(t *testing.T) {
			id, err := tokens.Authenticate(t.Context(), test.token)
			if test.want == "" {
				if err != nil || id.UserID != "ada" {
					t.Fatalf("Authenticate = %+v, %v, want ada", id, err)
				}
				return
			}
			if err == nil {
				t.Fatalf("accepted as %+v", id)
			}
			if err.Error() != test.want || len(test.want) > 123 { // the size of the reason in a close frame
				t.Errorf("error is %q, want %q", err, test.want)
			}
			if expired := strings.HasSuffix(test.want, "it has expired"); errors.Is(err, auth.ErrExpired) != expired {
				t.Errorf("errors.Is(err, ErrExpired) = %t", !expired)
			}
			if !reflect.ValueOf(id).IsZero() {
				t.Errorf("identity %+v beside an error", id)
			}
			for part := range strings.SplitSeq(test.token, ".") {
				if len(part) > 8 && strings.Contains(err.Error(), part) {
					t.Errorf("the error quotes the token: %v", err)
				}
			}
		})
	}
}

func TestTokensAreCountedByResult(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	tokens := mustTokens(t, auth.TokenConfig{
		Keys: []string{"h=HS256:" + secret}, Registerer: registry,
		Revoked: func(_ string, issuedAt time.Time) bool { return issuedAt.Equal(time.Unix(1, 0)) },
		Unread: func(userID string) error {
			if userID == "bob" {
				return errors.New("not read yet")
			}
			return nil
		},
	})
	for _, token := range []string{
		sign(t, jwt.SigningMethodHS256, "h", claimsOf(nil), []byte(secret)),
		sign(t, jwt.SigningMethodHS256, "h", claimsOf(jwt.MapClaims{"iat": 1}), []byte(secret)),
		sign(t, jwt.SigningMethodHS256, "h", claimsOf(jwt.MapClaims{"sub": "bob"}), []byte(secret)),
		sign(t, jwt.SigningMethodHS256, "h", claimsOf(jwt.MapClaims{"exp": 1}), []byte(secret)),
		sign(t, jwt.SigningMethodHS256, "h", claimsOf(nil), []byte(otherSecret)),
		"nothing",
	} {
		_, _ = tokens.Authenticate(t.Context(), token) // the result is counted
	}
	const want = `# HELP badged_auth_tokens_total User tokens checked, by result.
# TYPE badged_auth_tokens_total counter
badged_auth_tokens_total{result="bad"} 2
badged_auth_tokens_total{result="expired"} 1
badged_auth_tokens_total{result="key_away"} 0
badged_auth_tokens_total{result="ok"} 1
badged_auth_tokens_total{result="revocations_unread"} 1
badged_auth_tokens_total{result="revoked"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// A token must not be valid for longer than configured, counted from its iat and
// from now: neither alone would do.
func TestTokensThatLiveTooLong(t *testing.T) {
	tokens := mustTokens(t, auth.TokenConfig{Keys: []string{"h=HS256:" + secret}, MaxLifetime: time.Hour})
	now := time.Now()
	in := func(d time.Duration) int64 { return now.Add(d).Unix() }
	const lacks = "bad token: it has no iat; from iat to exp, a token may be valid for at most 1h0m0s (--jwt-max-lifetime)"
	const long = " from its iat to its exp; the limit is 1h0m0s (--jwt-max-lifetime)"
	for name, test := range map[string]struct {
		claims jwt.MapClaims
		wrong  string
	}{
		"an hour from its iat":       {jwt.MapClaims{"iat": in(-30 * time.Minute), "exp": in(30 * time.Minute)}, ""},
		"an hour without an iat":     {jwt.MapClaims{"exp": in(time.Hour)}, lacks},
		"a second more from its iat": {jwt.MapClaims{"iat": in(-30 * time.Minute), "exp": in(30*time.Minute) + 1}, "bad token: it is valid for 1h0m1s" + long},
		"a clock that is ahead":      {jwt.MapClaims{"iat": in(3 * time.Second), "exp": in(time.Hour + 3*time.Second)}, ""},
		"until the end of time":      {jwt.MapClaims{"iat": in(0), "exp": 253_402_300_799}, long},
	} {
		_, err := tokens.Authenticate(t.Context(), sign(t, jwt.SigningMethodHS256, "h", claimsOf(test.claims), []byte(secret)))
		if test.wrong == "" && err != nil || test.wrong != "" && (err == nil || !strings.HasSuffix(err.Error(), test.wrong)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	forged := sign(t, jwt.SigningMethodHS256, "h", claimsOf(jwt.MapClaims{"exp": in(2 * time.Hour)}), []byte(otherSecret))
	if _, err := tokens.Authenticate(t.Context(), forged); err == nil || err.Error() != "bad token: its signature is wrong" {
		t.Errorf("a forged token: %v", err)
	}
}

func TestRevokedTokens(t *testing.T) {
	var asked []string
	tokens := mustTokens(t, auth.TokenConfig{Keys: []string{"h=HS256:" + secret}, Revoked: func(userID string, issuedAt time.Time) bool {
		asked = append(asked, userID)
		return issuedAt.Before(time.Unix(1000, 0))
	}})
	for iat, want := range map[any]time.Time{1000: time.Unix(1000, 0), 1000.25: time.Unix(1000, 25e7), 999: {}, 0: {}, nil: {}} {
		extra := jwt.MapClaims{"iat": iat}
		if iat == nil {
			extra = nil
		}
		id, err := tokens.Authenticate(t.Context(), sign(t, jwt.SigningMethodHS256, "h", claimsOf(extra), []byte(secret)))
		if want.IsZero() && !errors.Is(err, auth.ErrRevoked) || !want.IsZero() && (err != nil || !id.IssuedAt.Equal(want)) {
			t.Errorf("iat %v: issued at %s, error %v", iat, id.IssuedAt, err)
		}
	}
	// An iat far in the future would make a token younger than a revocation that comes later.
	for ahead, valid := range map[time.Duration]bool{2 * time.Second: true, time.Minute: false, 1000 * time.Hour: false} {
		extra := jwt.MapClaims{"iat": time.Now().Add(ahead).Unix(), "exp": time.Now().Add(2000 * time.Hour).Unix()}
		id, err := tokens.Authenticate(t.Context(), sign(t, jwt.SigningMethodHS256, "h", claimsOf(extra), []byte(secret)))
		if valid != (err == nil) || !valid && !strings.Contains(err.Error(), "in the future; compare the clocks") {
			t.Errorf("iat in %s: issued at %s, error %v", ahead, id.IssuedAt, err)
		}
	}
	asked = nil
	if _, err := tokens.Authenticate(t.Context(), sign(t, jwt.SigningMethodHS256, "h", claimsOf(nil), []byte(otherSecret))); errors.Is(err, auth.ErrRevoked) || asked != nil {
		t.Errorf("a forged token learns what is revoked: %v", err)
	}
}

// tamper changes the payload of a token and keeps the rest.
func tamper(t *testing.T, token string) string {
	t.Helper()
	parts := strings.Split(token, ".")
	other := strings.Split(sign(t, jwt.SigningMethodHS256, "h", claimsOf(jwt.MapClaims{"sub": "ben"}), []byte(otherSecret)), ".")
	parts[1] = other[1]
	return strings.Join(parts, ".")
}

func TestTokenWithoutKidIsTriedWithTheOnlyKey(t *testing.T) {
	rs := rsaPair(t)
	tokens := mustTokens(t, auth.TokenConfig{Keys: []string{"r=RS256:" + rs.file}})
	if id, err := tokens.Authenticate(t.Context(), sign(t, jwt.SigningMethodRS256, "", claimsOf(nil), rs.private)); err != nil || id.UserID != "ada" {
		t.Errorf("Authenticate = %+v, %v, want ada", id, err)
	}
	// A holder of the public key must not be able to sign with it.
	forged := sign(t, jwt.SigningMethodHS256, "", claimsOf(nil), rs.public)
	if id, err := tokens.Authenticate(t.Context(), forged); err == nil {
		t.Errorf("a forged token is accepted as %+v", id)
	}
	// A wrong kid is not treated as an absent one.
	if _, err := tokens.Authenticate(t.Context(), sign(t, jwt.SigningMethodRS256, "x", claimsOf(nil), rs.private)); err == nil {
		t.Error("an unknown kid is accepted")
	}
}

func TestWithoutAudienceAndIssuerAnyIsAccepted(t *testing.T) {
	tokens := mustTokens(t, auth.TokenConfig{Keys: []string{"h=HS256:" + secret}})
	for name, changes := range map[string]jwt.MapClaims{
		"other": {"aud": "other", "iss": "other"},
		"none":  {"aud": nil, "iss": nil},
	} {
		if _, err := tokens.Authenticate(t.Context(), sign(t, jwt.SigningMethodHS256, "h", claimsOf(changes), []byte(secret))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWithoutKeysNoTokenIsAccepted(t *testing.T) {
	tokens := mustTokens(t, auth.TokenConfig{})
	for _, kid := range []string{"", "h"} {
		if _, err := tokens.Authenticate(t.Context(), sign(t, jwt.SigningMethodHS256, kid, claimsOf(nil), []byte(secret))); err == nil {
			t.Errorf("kid %q is accepted", kid)
		}
	}
}

func TestSign(t *testing.T) {
	es := ecPair(t)
	tokens := mustTokens(t, auth.TokenConfig{
		Keys:     []string{"e=ES256:" + es.file, "first=HS256:" + secret, "second=HS256:" + otherSecret},
		Audience: "badges", Issuer: "chat",
	})
	now := time.Now()
	signed, err := tokens.Sign("Chloé 🙂", time.Minute, now)
	if err != nil {
		t.Fatal(err)
	}
	id, err := tokens.Authenticate(t.Context(), signed)
	if err != nil {
		t.Fatalf("its own token: %v", err)
	}
	if want := now.Add(time.Minute).Truncate(time.Second); id.UserID != "Chloé 🙂" || !id.ExpiresAt.Round(time.Second).Equal(want) {
		t.Errorf("identity is %+v, want Chloé 🙂 until %s", id, want)
	}
	// Another server with the same key accepts it.
	other := mustTokens(t, auth.TokenConfig{Keys: []string{"first=HS256:" + secret}, Audience: "badges", Issuer: "chat"})
	if _, err := other.Authenticate(t.Context(), signed); err != nil {
		t.Errorf("another server with the first secret: %v", err)
	}
	// It expires.
	ended, err := tokens.Sign("ada", time.Minute, now.Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Authenticate(t.Context(), ended); err == nil {
		t.Error("a token of an hour ago for a minute is accepted")
	}
	if _, err := tokens.Sign("", time.Minute, now); err == nil || !strings.Contains(err.Error(), "must not be empty") {
		t.Errorf("signing for an empty user id: %v", err)
	}
}

func TestSignNeedsASecret(t *testing.T) {
	es := ecPair(t)
	for _, keys := range [][]string{nil, {"e=ES256:" + es.file}} {
		tokens := mustTokens(t, auth.TokenConfig{Keys: keys})
		if _, err := tokens.Sign("ada", time.Minute, time.Now()); err == nil || !strings.Contains(err.Error(), "--jwt-keys KID=HS256:SECRET") {
			t.Errorf("with keys %v: %v", keys, err)
		}
	}
}

func TestInvalidTokenKeys(t *testing.T) {
	es, rs := ecPair(t), rsaPair(t)
	private := filepath.Join(t.TempDir(), "private.pem")
	der, err := x509.MarshalPKCS8PrivateKey(rs.private)
	if err != nil {
		t.Fatal(err)
	}
	privatePEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := os.WriteFile(private, privatePEM, 0o600); err != nil {
		t.Fatal(err)
	}
	notPEM := filepath.Join(t.TempDir(), "not.pem")
	if err := os.WriteFile(notPEM, []byte("hello "+secret), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "missing.pem")

	const want = "want KID=HS256:SECRET or KID=RS256:PEM-FILE (or ES256, EdDSA)"
	for _, test := range []struct {
		name string
		keys []string
		want string // part of the error
	}{
		{"nothing", []string{""}, "JWT key 1: " + want},
		{"no kid", []string{"HS256:" + secret}, "JWT key 1: " + want},
		{"an empty kid", []string{"k=HS256:" + secret, "=HS256:" + otherSecret}, "JWT key 2: " + want},
		{"no method", []string{"k=" + secret}, "JWT key 1: " + want},
		{"no secret", []string{"k=HS256:"}, "JWT key 1: " + want},
		{"a kid twice", []string{"k=HS256:" + secret, "k=HS256:" + otherSecret}, "JWT key k is given twice"},
		{"a secret that is short", []string{"k=HS256:" + secret[1:]}, "JWT key k: the secret must have at least 32 bytes, has 31"},
		{"a method that does not exist", []string{"k=HS999:" + secret}, "JWT key k: want HS256:SECRET"},
		{"the method none", []string{"k=none:x"}, "JWT key k: want HS256:SECRET"},
		{"a secret with a colon in place of a method", []string{"k=" + secret + ":more"}, "JWT key k: want HS256:SECRET"},
		{"a file that is not there", []string{"k=RS256:" + missing}, "JWT key k: read the public key: open " + missing},
		{"a file that is not PEM", []string{"k=ES256:" + notPEM}, "JWT key k: " + notPEM + " contains no ES256 public key"},
		{"a private key", []string{"k=RS256:" + private}, "JWT key k: " + private + " contains no RS256 public key"},
		{"a key for another method", []string{"k=RS256:" + es.file}, "JWT key k: " + es.file + " contains no RS256 public key"},
		{"another key for EdDSA", []string{"k=EdDSA:" + rs.file}, "JWT key k: " + rs.file + " contains no EdDSA public key"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := auth.NewTokens(auth.TokenConfig{Keys: test.keys})
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %q, want %q", err, test.want)
			}
			for _, hidden := range []string{secret[1:], otherSecret, strings.Split(string(privatePEM), "\n")[1]} {
				if strings.Contains(err.Error(), hidden) {
					t.Errorf("the error tells a secret: %v", err)
				}
			}
		})
	}
}

// The clock that is given decides whether a token is valid, and not that of this machine. How
// long a token has left does not change when a clock is set.
func TestTokensByAnotherClock(t *testing.T) {
	for _, ahead := range []time.Duration{-30 * 24 * time.Hour, -time.Hour, time.Hour, 30 * 24 * time.Hour} {
		there := func() time.Time { return time.Now().Add(ahead).Round(0) }
		tokens := mustTokens(t, auth.TokenConfig{Keys: []string{"k=HS256:" + secret}, Now: there})
		here := mustTokens(t, auth.TokenConfig{Keys: []string{"k=HS256:" + secret}})
		signed, err := tokens.Sign("ada", 10*time.Minute, there())
		if err != nil {
			t.Fatal(err)
		}
		id, err := tokens.Authenticate(t.Context(), signed)
		if left := time.Until(id.ExpiresAt); err != nil || left <= 9*time.Minute || left > 10*time.Minute {
			t.Errorf("a token by a clock %s ahead has %s left, %v", ahead, left, err)
		}
		if err := tokens.Check(id); err != nil {
			t.Errorf("later a token by a clock %s ahead: %v", ahead, err)
		}
		if _, err := here.Authenticate(t.Context(), signed); err == nil {
			t.Errorf("a token by a clock %s ahead is valid here", ahead)
		}
	}
}

// The log says why a token was refused and which key it names, and never quotes it. Each of
// several reasons is logged, but not every token of a flood.
func TestRefusedTokensAreLogged(t *testing.T) {
	var log bytes.Buffer
	tokens := mustTokens(t, auth.TokenConfig{Keys: []string{"h=HS256:" + secret}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	refuse := func(token string) {
		if _, err := tokens.Authenticate(t.Context(), token); err == nil {
			t.Error("the token is accepted")
		}
		if strings.Contains(log.String(), token) {
			t.Errorf("the log quotes the token:\n%s", &log)
		}
	}
	for want, token := range map[string]string{
		`reason="bad token: its key \"gone\" is not known here" kid=gone`:                         signText(t, `{"alg":"HS256","kid":"gone"}`, `{"sub":"ada","exp":4102444800}`),
		`reason="bad token: it lacks a required claim (exp; aud and iss where configured)" kid=h`: signText(t, `{"alg":"HS256","kid":"h"}`, `{"sub":"ada"}`),
		`reason="bad token: its signature is wrong" kid=h`:                                        signText(t, `{"alg":"HS256","kid":"h"}`, `{"sub":"ada","exp":4102444800}`) + "AAAA",
	} {
		log.Reset()
		refuse(token)
		if said := log.String(); !strings.Contains(said, want) {
			t.Errorf("the log is\n%swant %s", said, want)
		}
	}
	log.Reset()
	const flood = 1000
	for range flood {
		refuse(signText(t, `{"alg":"HS256","kid":"gone"}`, `{"sub":"ada","exp":4102444800}`))
	}
	if lines := strings.Count(log.String(), "\n"); lines > flood/10 {
		t.Errorf("a flood of %d refused tokens wrote %d lines", flood, lines)
	}
}
