package auth_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/badged/badged/internal/server/auth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// webKey makes a JSON Web Key of a public key, with some members replaced.
func webKey(t *testing.T, kid string, public crypto.PublicKey, members map[string]any) map[string]any {
	t.Helper()
	text := base64.RawURLEncoding.EncodeToString
	k := map[string]any{}
	switch public := public.(type) {
	case *rsa.PublicKey:
		k["kty"], k["n"], k["e"] = "RSA", text(public.N.Bytes()), text(big.NewInt(int64(public.E)).Bytes())
	case *ecdsa.PublicKey:
		point, err := public.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		half := len(point) / 2
		k["kty"], k["crv"] = "EC", public.Curve.Params().Name
		k["x"], k["y"] = text(point[1:1+half]), text(point[1+half:])
	case ed25519.PublicKey:
		k["kty"], k["crv"], k["x"] = "OKP", "Ed25519", text(public)
	default:
		t.Fatalf("a key of type %T", public)
	}
	if kid != "" {
		k["kid"] = kid
	}
	for name, value := range members {
		k[name] = value
	}
	return k
}

// login is a login service with a key set.
type login struct {
	*httptest.Server
	mu      sync.Mutex
	status  int
	body    string
	fetches int
	// hold, if set, delays answers until it is closed.
	hold chan struct{}
	// served counts how often the present answer was given; the second time
	// closes taken.
	served int
	taken  chan struct{}
}

func newLogin(t *testing.T, keys ...map[string]any) *login {
	t.Helper()
	l := &login{}
	l.publish(t, keys...)
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		l.mu.Lock()
		l.fetches++
		if l.served++; l.served == 2 {
			close(l.taken)
		}
		status, body, hold := l.status, l.body, l.hold
		l.mu.Unlock()
		if hold != nil {
			<-hold
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(l.Close)
	return l
}

func (l *login) publish(t *testing.T, keys ...map[string]any) {
	t.Helper()
	b, err := json.Marshal(map[string]any{"keys": keys})
	if err != nil {
		t.Fatal(err)
	}
	l.answer(http.StatusOK, string(b))
}

func (l *login) answer(status int, body string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status, l.body = status, body
	l.served, l.taken = 0, make(chan struct{})
}

// awaitTaken returns once a set has fetched the present answer twice: then it
// has processed the first.
func (l *login) awaitTaken() {
	l.mu.Lock()
	taken := l.taken
	l.mu.Unlock()
	<-taken
}

func (l *login) asked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fetches
}

// runSet runs a key set until the test ends.
func runSet(t *testing.T, cfg auth.KeySetConfig) *auth.KeySet {
	t.Helper()
	set, err := auth.NewKeySet(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- set.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return set
}

func TestKeysOfASet(t *testing.T) {
	rs, es, ed := rsaPair(t), ecPair(t), edPair(t)
	l := newLogin(t,
		map[string]any{"kty": "EC", "crv": "P-521", "kid": "other", "x": "AA", "y": "AA"},
		webKey(t, "r", rs.private.Public(), map[string]any{"use": "sig", "alg": "RS256", "x5c": []string{"…"}}),
		webKey(t, "e", es.private.Public(), map[string]any{"key_ops": []string{"verify"}}),
		webKey(t, "d", ed.private.Public(), map[string]any{"alg": "EdDSA"}),
		webKey(t, "enc", rs.private.Public(), map[string]any{"use": "enc"}),
		webKey(t, "wrap", rs.private.Public(), map[string]any{"key_ops": []string{"wrapKey"}}),
		webKey(t, "ps", rs.private.Public(), map[string]any{"alg": "PS256"}),
		map[string]any{"kty": "oct", "kid": "secret", "k": base64.RawURLEncoding.EncodeToString([]byte(secret))},
		webKey(t, "r", es.private.Public(), nil), // a second of the same kid
	)
	set := runSet(t, auth.KeySetConfig{URL: l.URL})
	tokens := mustTokens(t, auth.TokenConfig{Keys: []string{"h=HS256:" + secret}, Set: set})
	good := claimsOf(nil)
	// Tokens after the first use the fetched keys and cause no more fetches.
	for _, test := range []struct{ name, token, want string }{
		{"RS256", sign(t, jwt.SigningMethodRS256, "r", good, rs.private), ""},
		{"ES256", sign(t, jwt.SigningMethodES256, "e", good, es.private), ""},
		{"EdDSA", sign(t, jwt.SigningMethodEdDSA, "d", good, ed.private), ""},
		{"a key that is configured", sign(t, jwt.SigningMethodHS256, "h", good, []byte(secret)), ""},
		{"a wrong private key", sign(t, jwt.SigningMethodES256, "e", good, ecPair(t).private), "bad token: its signature is wrong"},
		{"another method than that of the key's type", sign(t, jwt.SigningMethodHS256, "r", good, rs.public), "bad token: it is signed with HS256; the key r is for RS256"},
		{"no kid with several keys", sign(t, jwt.SigningMethodRS256, "", good, rs.private), "bad token: it has no kid, which tokens need unless there is a single key"},
	} {
		id, err := tokens.Authenticate(t.Context(), test.token)
		switch {
		case test.want == "" && (err != nil || id.UserID != "ada"):
			t.Errorf("%s: %+v, %v, want ada", test.name, id, err)
		case test.want != "" && (err == nil || err.Error() != test.want):
			t.Errorf("%s: %+v, %v, want %s", test.name, id, err, test.want)
		}
	}
	if n := l.asked(); n != 1 {
		t.Errorf("the set was fetched %d times", n)
	}
	// Unusable keys are not in the set.
	for kid, token := range map[string]string{
		"enc":    sign(t, jwt.SigningMethodRS256, "enc", good, rs.private),
		"wrap":   sign(t, jwt.SigningMethodRS256, "wrap", good, rs.private),
		"ps":     sign(t, jwt.SigningMethodRS256, "ps", good, rs.private),
		"secret": sign(t, jwt.SigningMethodHS256, "secret", good, []byte(secret)),
	} {
		if id, err := tokens.Authenticate(t.Context(), token); err == nil {
			t.Errorf("%s is accepted as %+v", kid, id)
		}
	}
}

func TestTheOnlyKeyOfASet(t *testing.T) {
	es := ecPair(t)
	set := runSet(t, auth.KeySetConfig{URL: newLogin(t, webKey(t, "", es.private.Public(), nil)).URL})
	tokens := mustTokens(t, auth.TokenConfig{Set: set})
	if id, err := tokens.Authenticate(t.Context(), sign(t, jwt.SigningMethodES256, "", claimsOf(nil), es.private)); err != nil || id.UserID != "ada" {
		t.Errorf("Authenticate = %+v, %v, want ada", id, err)
	}
}

// A token with a new key causes a fetch, which also drops the old key.
func TestRotation(t *testing.T) {
	before, after := ecPair(t), edPair(t)
	l := newLogin(t, webKey(t, "before", before.private.Public(), nil))
	registry := prometheus.NewRegistry()
	set := runSet(t, auth.KeySetConfig{URL: l.URL, RefreshInterval: time.Hour, AskInterval: time.Nanosecond, Registerer: registry})
	tokens := mustTokens(t, auth.TokenConfig{Set: set})
	old := sign(t, jwt.SigningMethodES256, "before", claimsOf(nil), before.private)
	if _, err := tokens.Authenticate(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	l.publish(t, webKey(t, "after", after.private.Public(), nil))
	if _, err := tokens.Authenticate(t.Context(), sign(t, jwt.SigningMethodEdDSA, "after", claimsOf(nil), after.private)); err != nil {
		t.Errorf("with the new key: %v", err)
	}
	if _, err := tokens.Authenticate(t.Context(), old); err == nil || err.Error() != `bad token: its key "before" is not known here` {
		t.Errorf("with the old key: %v", err)
	}
	const want = `# HELP badged_jwks_fetches_total Fetches of the key set, by result.
# TYPE badged_jwks_fetches_total counter
badged_jwks_fetches_total{result="error"} 0
badged_jwks_fetches_total{result="ok"} 3
# HELP badged_jwks_keys Keys of the key set that badged can use.
# TYPE badged_jwks_keys gauge
badged_jwks_keys 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "badged_jwks_fetches_total", "badged_jwks_keys"); err != nil {
		t.Error(err)
	}
}

// The set is also fetched at intervals, without any token.
func TestSetIsFetchedAgain(t *testing.T) {
	es := ecPair(t)
	l := newLogin(t, webKey(t, "e", es.private.Public(), nil))
	set := runSet(t, auth.KeySetConfig{URL: l.URL, RefreshInterval: time.Millisecond})
	for l.asked() < 3 { // each fetch proves that the previous one has ended
		if err := set.Check(t.Context()); err != nil && err.Error() != "not fetched yet" {
			t.Fatal(err)
		}
	}
}

// Tokens with made-up kids do not cause a fetch each, and are not refused once
// their key appears.
func TestUnknownKidsRarelyFetch(t *testing.T) {
	es := ecPair(t)
	l := newLogin(t, webKey(t, "e", es.private.Public(), nil))
	set := runSet(t, auth.KeySetConfig{URL: l.URL, AskInterval: time.Hour})
	tokens := mustTokens(t, auth.TokenConfig{Set: set})
	if _, err := tokens.Authenticate(t.Context(), sign(t, jwt.SigningMethodES256, "e", claimsOf(nil), es.private)); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		made := sign(t, jwt.SigningMethodES256, fmt.Sprintf("made up %d", i), claimsOf(nil), es.private)
		if _, err := tokens.Authenticate(t.Context(), made); !errors.Is(err, auth.ErrKeysAway) {
			t.Fatalf("error is %v", err)
		}
	}
	if n := l.asked(); n != 1 {
		t.Errorf("the set was fetched %d times", n)
	}
}

// All callers that miss a key wait for the same fetch.
func TestAllWaitForOneFetch(t *testing.T) {
	es := ecPair(t)
	l := newLogin(t, webKey(t, "e", es.private.Public(), nil))
	hold := make(chan struct{})
	l.hold = hold
	set := runSet(t, auth.KeySetConfig{URL: l.URL})
	tokens := mustTokens(t, auth.TokenConfig{Set: set})
	token := sign(t, jwt.SigningMethodES256, "e", claimsOf(nil), es.private)
	results := make(chan error)
	for range 20 {
		go func() {
			_, err := tokens.Authenticate(t.Context(), token)
			results <- err
		}()
	}
	close(hold)
	for range 20 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if n := l.asked(); n != 1 {
		t.Errorf("the set was fetched %d times", n)
	}
}

// While the login service is down, tokens with known keys are accepted, and
// others get ErrKeysAway.
func TestLoginServiceThatIsDown(t *testing.T) {
	es, other := ecPair(t), ecPair(t)
	key := webKey(t, "e", es.private.Public(), nil)
	good := sign(t, jwt.SigningMethodES256, "e", claimsOf(nil), es.private)
	newcomer := sign(t, jwt.SigningMethodES256, "new", claimsOf(nil), other.private)
	for name, down := range map[string]struct {
		status int
		body   string
		want   string
	}{
		"an error":         {http.StatusBadGateway, "", "answered with status 502"},
		"a page":           {http.StatusOK, "<html>Down for maintenance", "the answer is not a JSON Web Key Set"},
		"no keys":          {http.StatusOK, `{"keys":[]}`, "the set has no key for RS256, ES256 or EdDSA"},
		"no usable key":    {http.StatusOK, `{"keys":[{"kty":"oct","k":"AA"}]}`, "key 1: its type is not one that is used here"},
		"something else":   {http.StatusOK, `{"keys":["x"]}`, "key 1 is not a JSON Web Key"},
		"a broken RSA key": {http.StatusOK, `{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}`, "it has 17 bits, and must have at least 2048"},
		"a broken EC key":  {http.StatusOK, `{"keys":[{"kty":"EC","crv":"P-256","x":"AQAB","y":"AQAB"}]}`, "x and y are no point of P-256"},
		"a broken EdDSA key": {
			http.StatusOK, `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AQAB"}]}`, "x has 3 bytes, and must have 32",
		},
		"a key without parts": {http.StatusOK, `{"keys":[{"kty":"RSA"}]}`, "n is missing or not base64url"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLogin(t, key)
			set := runSet(t, auth.KeySetConfig{URL: l.URL, AskInterval: time.Nanosecond})
			tokens := mustTokens(t, auth.TokenConfig{Set: set})
			if _, err := tokens.Authenticate(t.Context(), good); err != nil {
				t.Fatal(err)
			}
			if err := set.Check(t.Context()); err != nil {
				t.Errorf("Check: %v", err)
			}
			l.answer(down.status, down.body)
			if _, err := tokens.Authenticate(t.Context(), newcomer); !errors.Is(err, auth.ErrKeysAway) {
				t.Errorf("with another key: %v", err)
			}
			if _, err := tokens.Authenticate(t.Context(), good); err != nil {
				t.Errorf("with a known key: %v", err)
			}
			if err := set.Check(t.Context()); err == nil || !strings.Contains(err.Error(), down.want) || !strings.Contains(err.Error(), "; the keys fetched at ") {
				t.Errorf("Check: %v, want %q", err, down.want)
			}
			l.publish(t, key, webKey(t, "new", other.private.Public(), nil))
			if _, err := tokens.Authenticate(t.Context(), newcomer); err != nil {
				t.Errorf("once it is back: %v", err)
			}
			if err := set.Check(t.Context()); err != nil {
				t.Errorf("Check: %v", err)
			}
		})
	}
}

// Keys that could not be fetched again for longer than MaxAge are not trusted, and
// are again once they are fetched.
func TestFetchedKeysAge(t *testing.T) {
	es := ecPair(t)
	key := webKey(t, "e", es.private.Public(), nil)
	l := newLogin(t, key)
	var ahead atomic.Int64
	set := runSet(t, auth.KeySetConfig{
		URL: l.URL, AskInterval: time.Nanosecond, MaxAge: time.Hour,
		Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	})
	tokens := mustTokens(t, auth.TokenConfig{Set: set, Keys: []string{"h=HS256:" + secret}})
	good := sign(t, jwt.SigningMethodES256, "e", claimsOf(nil), es.private)
	authenticate := func(token string) error {
		_, err := tokens.Authenticate(t.Context(), token)
		return err
	}
	if err := authenticate(good); err != nil {
		t.Fatal(err)
	}
	l.answer(http.StatusBadGateway, "")
	ahead.Store(int64(59 * time.Minute))
	if err := authenticate(good); err != nil {
		t.Errorf("after 59 minutes: %v", err)
	}
	ahead.Store(int64(61 * time.Minute))
	for range 2 {
		if err := authenticate(good); !errors.Is(err, auth.ErrKeysAway) {
			t.Errorf("after 61 minutes: %v", err)
		}
	}
	if err := set.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "are too old, and not in use any more") {
		t.Errorf("Check: %v", err)
	}
	if err := authenticate(sign(t, jwt.SigningMethodHS256, "h", claimsOf(nil), []byte(secret))); err != nil {
		t.Errorf("keys that are configured do not age: %v", err)
	}
	l.publish(t, key)
	if err := authenticate(good); err != nil {
		t.Errorf("once they are fetched: %v", err)
	}
	if err := set.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
}

func TestLoginServiceThatIsDownAtStart(t *testing.T) {
	es := ecPair(t)
	l := newLogin(t, webKey(t, "e", es.private.Public(), nil))
	l.answer(http.StatusServiceUnavailable, "")
	set := runSet(t, auth.KeySetConfig{URL: l.URL, AskInterval: time.Nanosecond, RefreshInterval: time.Millisecond})
	tokens := mustTokens(t, auth.TokenConfig{Keys: []string{"h=HS256:" + secret}, Set: set})
	good := sign(t, jwt.SigningMethodES256, "e", claimsOf(nil), es.private)
	if _, err := tokens.Authenticate(t.Context(), good); !errors.Is(err, auth.ErrKeysAway) {
		t.Errorf("with a key of the set: %v", err)
	}
	if _, err := tokens.Authenticate(t.Context(), sign(t, jwt.SigningMethodHS256, "h", claimsOf(nil), []byte(secret))); err != nil {
		t.Errorf("with a configured key: %v", err)
	}
	if err := set.Check(t.Context()); err == nil || err.Error() != "never fetched: answered with status 503" {
		t.Errorf("Check: %v", err)
	}
	// Fetches are retried without any token.
	l.publish(t, webKey(t, "e", es.private.Public(), nil))
	l.awaitTaken()
	if err := set.Check(t.Context()); err != nil {
		t.Errorf("once it is back, Check: %v", err)
	}
	if _, err := tokens.Authenticate(t.Context(), good); err != nil {
		t.Errorf("once it is back: %v", err)
	}
}

func TestLoginServiceThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, err := auth.NewKeySet(auth.KeySetConfig{URL: "http://login.example/jwks.json"}) // which never runs
		if err != nil {
			t.Fatal(err)
		}
		if err := set.Check(t.Context()); err == nil || err.Error() != "not fetched yet" {
			t.Errorf("Check: %v", err)
		}
		es, began := ecPair(t), time.Now()
		token := sign(t, jwt.SigningMethodES256, "e", claimsOf(nil), es.private)
		tokens := mustTokens(t, auth.TokenConfig{Set: set})
		if _, err := tokens.Authenticate(t.Context(), token); !errors.Is(err, auth.ErrKeysAway) || time.Since(began) != 5*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

func TestInvalidKeySetURLs(t *testing.T) {
	for _, url := range []string{"", "login.example/jwks.json", "file:///etc/keys.json", "https://", "://"} {
		if _, err := auth.NewKeySet(auth.KeySetConfig{URL: url}); err == nil {
			t.Errorf("%q is accepted", url)
		}
	}
}
