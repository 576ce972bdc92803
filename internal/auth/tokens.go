package auth

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/events"
)

// TokenConfig is which tokens are good.
type TokenConfig struct {
	// Keys are of the form KID=HS256:SECRET, or KID=RS256:FILE, KID=ES256:FILE
	// or KID=EdDSA:FILE, where FILE holds a public key as PEM.
	Keys []string
	// Set holds further keys; nil is none. A key of Keys goes before one of the
	// same kid.
	Set *KeySet
	// Audience and Issuer must match the claims of the same name, unless empty.
	Audience string
	Issuer   string
	// Registerer is told the metrics, unless nil.
	Registerer prometheus.Registerer
}

// Tokens verifies the JWTs of users, and signs some where it has a secret. It
// is safe for concurrent use.
type Tokens struct {
	cfg    TokenConfig
	keys   map[string]tokenKey
	signer string // kid of the first key that can sign
	parser *jwt.Parser
	// verified counts tokens by result.
	verified *prometheus.CounterVec
}

// tokenKey is a key and the one method it is for: were the token to choose the
// method, it could have a public key taken for a secret.
type tokenKey struct {
	method jwt.SigningMethod
	key    any
}

// minSecretBytes is what RFC 7518 asks of a secret for HS256.
const minSecretBytes = 32

// notBeforeLeeway is how far the clock of whoever issues tokens may be ahead. The
// end of a token has no leeway: connections end then, and commands with them.
const notBeforeLeeway = 5 * time.Second

// NewTokens reads the keys. Its errors name the key, never the secret.
func NewTokens(cfg TokenConfig) (*Tokens, error) {
	t := &Tokens{cfg: cfg, keys: map[string]tokenKey{}, verified: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "badged", Subsystem: "auth", Name: "tokens_total", Help: "User tokens checked, by result.",
	}, []string{"result"})}
	for _, result := range []string{tokenGood, tokenExpired, tokenKeyAway, tokenBad} {
		t.verified.WithLabelValues(result)
	}
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(t.verified)
	}
	for i, spec := range cfg.Keys {
		kid, rest, _ := strings.Cut(spec, "=")
		method, value, ok := strings.Cut(rest, ":")
		if !ok || kid == "" || value == "" {
			return nil, fmt.Errorf("JWT key %d: want KID=HS256:SECRET or KID=RS256:PEM-FILE (or ES256, EdDSA)", i+1)
		}
		if _, ok := t.keys[kid]; ok {
			return nil, fmt.Errorf("JWT key %s is given twice", kid)
		}
		key, err := parseTokenKey(method, value)
		if err != nil {
			return nil, fmt.Errorf("JWT key %s: %w", kid, err)
		}
		t.keys[kid] = key
		if t.signer == "" && key.method == jwt.SigningMethodHS256 {
			t.signer = kid
		}
	}
	options := []jwt.ParserOption{
		jwt.WithExpirationRequired(),
		jwt.WithLeeway(notBeforeLeeway),
		jwt.WithValidMethods([]string{"HS256", "RS256", "ES256", "EdDSA"}),
	}
	if cfg.Audience != "" {
		options = append(options, jwt.WithAudience(cfg.Audience))
	}
	if cfg.Issuer != "" {
		options = append(options, jwt.WithIssuer(cfg.Issuer))
	}
	t.parser = jwt.NewParser(options...)
	return t, nil
}

func parseTokenKey(method, value string) (tokenKey, error) {
	if method == "HS256" {
		if len(value) < minSecretBytes {
			return tokenKey{}, fmt.Errorf("the secret must have at least %d bytes, has %d", minSecretBytes, len(value))
		}
		return tokenKey{jwt.SigningMethodHS256, []byte(value)}, nil
	}
	var parse func([]byte) (crypto.PublicKey, error)
	k := tokenKey{}
	switch method {
	case "RS256":
		k.method = jwt.SigningMethodRS256
		parse = func(b []byte) (crypto.PublicKey, error) { return jwt.ParseRSAPublicKeyFromPEM(b) }
	case "ES256":
		k.method = jwt.SigningMethodES256
		parse = func(b []byte) (crypto.PublicKey, error) { return jwt.ParseECPublicKeyFromPEM(b) }
	case "EdDSA":
		k.method = jwt.SigningMethodEdDSA
		parse = func(b []byte) (crypto.PublicKey, error) { return jwt.ParseEdPublicKeyFromPEM(b) }
	default:
		// What stands in its place may be a piece of a secret.
		return tokenKey{}, errors.New("want HS256:SECRET, or RS256:PEM-FILE, ES256 or EdDSA")
	}
	pem, err := os.ReadFile(value) //nolint:gosec // the file that the operator names
	if err != nil {
		return tokenKey{}, fmt.Errorf("read the public key: %w", err)
	}
	if k.key, err = parse(pem); err != nil {
		return tokenKey{}, fmt.Errorf("%s holds no %s public key: %w", value, method, err)
	}
	return k, nil
}

// Identity is who a token speaks for.
type Identity struct {
	UserID    string
	ExpiresAt time.Time
}

// What becomes of tokens.
const (
	tokenGood    = "ok"
	tokenExpired = "expired"
	tokenKeyAway = "key_away"
	tokenBad     = "bad"
)

// Authenticate returns whose a token is and when it ends. Its errors are safe
// to show; they never quote the token. Where the token's key is not known it
// waits, until ctx is done, for the key set.
func (t *Tokens) Authenticate(ctx context.Context, token string) (Identity, error) {
	id, err := t.authenticate(ctx, token)
	result := tokenGood
	switch {
	case errors.Is(err, ErrExpired):
		result = tokenExpired
	case errors.Is(err, ErrKeysAway):
		result = tokenKeyAway
	case err != nil:
		result = tokenBad
	}
	t.verified.WithLabelValues(result).Inc()
	return id, err
}

func (t *Tokens) authenticate(ctx context.Context, token string) (Identity, error) {
	var c claims
	keyOf := func(token *jwt.Token) (any, error) { return t.keyOf(ctx, token) }
	if _, err := t.parser.ParseWithClaims(token, &c, keyOf); err != nil {
		return Identity{}, describeTokenError(err)
	}
	if !time.Now().Before(c.expires.Time) {
		return Identity{}, ErrExpired
	}
	if reason := events.CheckID(c.subject); reason != "" {
		return Identity{}, errors.New("bad token: sub " + reason)
	}
	return Identity{UserID: c.subject, ExpiresAt: c.expires.Time}, nil
}

// ErrExpired is returned for a token that was good until it ended.
var ErrExpired = errors.New("bad token: it has expired")

var (
	errUnknownKey  = errors.New("no key has this kid")
	errWrongMethod = errors.New("the key is for another method")
	errCritical    = errors.New("the header has crit or b64")
	errWrongType   = errors.New("the header has another typ")
)

// checkHeader refuses a header that asks for what is not done here: crit names
// extensions that must be understood (RFC 7515, 4.1.11), and none is; b64 is
// one (RFC 7797). A typ says for what a token is meant (RFC 8725, 3.11).
func checkHeader(header map[string]any) error {
	for _, name := range []string{"crit", "b64"} {
		if _, ok := header[name]; ok {
			return errCritical
		}
	}
	typ, ok := header["typ"]
	if !ok {
		return nil
	}
	text, _ := typ.(string)
	switch strings.TrimPrefix(strings.ToLower(text), "application/") {
	case "jwt", "at+jwt":
		return nil
	}
	return errWrongType
}

// keyOf finds the key of a token by its kid. A token without one is tried with
// the only key there is.
func (t *Tokens) keyOf(ctx context.Context, token *jwt.Token) (any, error) {
	if err := checkHeader(token.Header); err != nil {
		return nil, err
	}
	kid, isText := token.Header["kid"].(string)
	if _, given := token.Header["kid"]; given && (!isText || kid == "") {
		return nil, errUnknownKey // which is not the same as none given
	}
	k, err := t.lookUp(ctx, kid)
	if err != nil {
		return nil, err
	}
	if token.Method.Alg() != k.method.Alg() {
		return nil, errWrongMethod
	}
	return k.key, nil
}

func (t *Tokens) lookUp(ctx context.Context, kid string) (tokenKey, error) {
	if t.cfg.Set == nil {
		if k, ok := find(kid, t.keys, nil); ok {
			return k, nil
		}
		return tokenKey{}, errUnknownKey
	}
	fetched := t.cfg.Set.all()
	if k, ok := find(kid, t.keys, fetched); ok {
		return k, nil
	}
	if kid == "" && fetched != nil { // which key it is no further one could say
		return tokenKey{}, errUnknownKey
	}
	if err := t.cfg.Set.renew(ctx); err != nil {
		return tokenKey{}, err
	}
	if k, ok := find(kid, t.keys, t.cfg.Set.all()); ok {
		return k, nil
	}
	return tokenKey{}, errUnknownKey
}

func describeTokenError(err error) error {
	if errors.Is(err, ErrKeysAway) {
		return ErrKeysAway
	}
	var claim *claimError
	if errors.As(err, &claim) {
		return errors.New("bad token: " + claim.Error())
	}
	for _, known := range []struct {
		err  error
		says string
	}{
		{errCritical, "its header has crit or b64, and no extension is understood here"},
		{errWrongType, "its typ is neither JWT nor at+jwt"},
		{errUnknownKey, "its key is not known here"},
		{errWrongMethod, "it is signed with another method than its key is for"},
		{jwt.ErrTokenNotValidYet, "it is not valid yet"},
		{jwt.ErrTokenInvalidAudience, "it is for another audience"},
		{jwt.ErrTokenInvalidIssuer, "it is from another issuer"},
		{jwt.ErrTokenRequiredClaimMissing, "it lacks a required claim (exp; aud and iss where configured)"},
		{jwt.ErrTokenSignatureInvalid, "its signature is wrong"},
		{jwt.ErrTokenMalformed, "it is not a JWT"},
	} {
		if errors.Is(err, known.err) {
			return errors.New("bad token: " + known.says)
		}
	}
	if errors.Is(err, jwt.ErrTokenExpired) { // and nothing else
		return ErrExpired
	}
	return errors.New("bad token")
}

// Sign returns a token of a user that ends after ttl. It needs an HS256 key.
func (t *Tokens) Sign(userID string, ttl time.Duration, now time.Time) (string, error) {
	if t.signer == "" {
		return "", errors.New("no HS256 key to sign with: give one with --jwt-keys KID=HS256:SECRET")
	}
	if reason := events.CheckID(userID); reason != "" {
		return "", fmt.Errorf("user id %q %s", userID, reason)
	}
	claims := jwt.RegisteredClaims{
		Subject:   userID,
		IssuedAt:  jwt.NewNumericDate(now),
		ExpiresAt: jwt.NewNumericDate(now.Add(ttl)),
		Issuer:    t.cfg.Issuer,
	}
	if t.cfg.Audience != "" {
		claims.Audience = jwt.ClaimStrings{t.cfg.Audience}
	}
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, claims)
	token.Header["kid"] = t.signer
	signed, err := token.SignedString(t.keys[t.signer].key)
	if err != nil {
		return "", fmt.Errorf("sign the token: %w", err)
	}
	return signed, nil
}
