// Package auth authenticates users by signed tokens.
//
// It does not know keys of publishers, nor which tokens are revoked. ADR 18 says when an
// unknown key rejects a token.
package auth

import (
	"context"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"

	"github.com/badged/badged/events"
)

// TokenConfig configures which tokens are accepted.
type TokenConfig struct {
	// Keys have the form KID=HS256:SECRET, or KID=RS256:FILE, KID=ES256:FILE
	// or KID=EdDSA:FILE, where FILE is a public key in PEM.
	Keys []string
	// Set has further keys; nil means none. Keys takes precedence for the same
	// kid.
	Set *KeySet
	// Audience and Issuer must match the claims of the same name, unless
	// empty.
	Audience string
	Issuer   string
	// MaxLifetime is the longest time for which a token may be valid, from its iat, which it
	// must have then. 0 is no limit.
	MaxLifetime time.Duration
	// Revoked reports whether tokens of a user that were issued at a time are
	// revoked; the time is zero if a token does not say. Nil means that none are.
	Revoked func(userID string, issuedAt time.Time) bool
	// Unread returns why it is not known which tokens of a user are revoked, or nil.
	// Authenticate fails with an [*PartialReadError] then. Nil means that it is known.
	Unread func(userID string) error
	// Now returns the time at which tokens must be valid. Default time.Now.
	Now func() time.Time
	// Registerer registers the metrics, unless nil.
	Registerer prometheus.Registerer
	// Logger gets why tokens are refused, at most once in ten seconds: anything can send
	// one. Nil discards it.
	Logger *slog.Logger
}

// refusedLogInterval is the least time between two log lines about refused tokens.
const refusedLogInterval = 10 * time.Second

// Tokens verifies the JWTs of users, and can sign if it has a secret. It is
// safe for concurrent use.
type Tokens struct {
	cfg    TokenConfig
	keys   map[string]tokenKey
	signer string // kid of the first key that can sign
	parser *jwt.Parser
	// verified counts tokens by result.
	verified *prometheus.CounterVec
	// refused limits the log.
	refused rate.Sometimes
}

// tokenKey is a key and the one method that it allows: if the token chose the
// method, a public key could be used as a secret.
type tokenKey struct {
	method jwt.SigningMethod
	key    any
}

// minSecretBytes is the minimum of RFC 7518 for HS256.
const minSecretBytes = 32

// maxTokenBytes is the most bytes of a token. Tokens of login services that list groups
// have several KiB.
const maxTokenBytes = 16 << 10

// clockLeeway is how far the issuer's clock may be ahead. Expiry has no
// leeway: connections and commands end at that time.
const clockLeeway = 5 * time.Second

// NewTokens loads the keys. Its errors name the key, never the secret.
func NewTokens(cfg TokenConfig) (*Tokens, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	t := &Tokens{cfg: cfg, refused: rate.Sometimes{Interval: refusedLogInterval}, keys: map[string]tokenKey{}, verified: promauto.With(cfg.Registerer).NewCounterVec(prometheus.CounterOpts{
		Namespace: "badged", Subsystem: "auth", Name: "tokens_total", Help: "User tokens checked, by result.",
	}, []string{"result"})}
	for _, result := range []string{tokenGood, tokenExpired, tokenKeyAway, tokenRevoked, tokenUnread, tokenBad} {
		t.verified.WithLabelValues(result)
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
		jwt.WithLeeway(clockLeeway),
		jwt.WithTimeFunc(cfg.Now),
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
		// The text in the method's place may be part of a secret.
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

// Identity is the user that a token authenticates.
type Identity struct {
	UserID string
	// ExpiresAt is by the clock of this process as it was when the token was checked. It has
	// a monotonic reading: a clock that is set neither ends nor prolongs a token.
	ExpiresAt time.Time
	// IssuedAt is zero if the token does not say when it was issued.
	IssuedAt time.Time
	// Categories are those that the token is restricted to, sorted; nil for no
	// restriction.
	Categories []string
}

// Results of authentication, as metric labels.
const (
	tokenGood    = "ok"
	tokenExpired = "expired"
	tokenKeyAway = "key_away"
	tokenRevoked = "revoked"
	tokenUnread  = "revocations_unread"
	tokenBad     = "bad"
)

// Authenticate returns the user of a token and its expiry. Its errors are safe
// to show and never quote the token. For an unknown key it waits, until ctx is
// done, for the key set.
func (t *Tokens) Authenticate(ctx context.Context, token string) (Identity, error) {
	id, err := t.authenticate(ctx, token)
	result := tokenGood
	switch {
	case errors.Is(err, ErrExpired):
		result = tokenExpired
	case errors.Is(err, ErrKeysAway):
		result = tokenKeyAway
	case errors.Is(err, ErrRevoked):
		result = tokenRevoked
	case errors.As(err, new(*PartialReadError)):
		result = tokenUnread
	case err != nil:
		result = tokenBad
		t.refused.Do(func() {
			t.cfg.Logger.WarnContext(ctx, "refused the token of a user", "reason", err, "kid", kidOf(token))
		})
	}
	t.verified.WithLabelValues(result).Inc()
	return id, err
}

// kidOf returns the beginning of the key id of a token, "" if it has none.
func kidOf(token string) string {
	encoded, _, _ := strings.Cut(token[:min(len(token), maxTokenBytes)], ".")
	header, _ := base64.RawURLEncoding.DecodeString(encoded)
	var h struct {
		KID string `json:"kid"`
	}
	if json.Unmarshal(header, &h) != nil {
		return ""
	}
	return h.KID[:min(len(h.KID), 64)]
}

func (t *Tokens) authenticate(ctx context.Context, token string) (Identity, error) {
	if len(token) > maxTokenBytes {
		return Identity{}, fmt.Errorf("bad token: it has %d bytes, and may have %d: leave claims out that badged does not use", len(token), maxTokenBytes)
	}
	var c claims
	keyOf := func(token *jwt.Token) (any, error) { return t.keyOf(ctx, token) }
	if _, err := t.parser.ParseWithClaims(token, &c, keyOf); err != nil {
		return Identity{}, describeTokenError(err)
	}
	now := t.cfg.Now()
	left := c.expires.Sub(now)
	if left <= 0 {
		return Identity{}, ErrExpired
	}
	if reason := events.CheckID(c.subject); reason != "" {
		return Identity{}, errors.New("bad token: sub " + reason)
	}
	// A token that is accepted now must not be younger than a revocation that comes next.
	if ahead := c.issued.Sub(now); ahead > clockLeeway {
		return Identity{}, fmt.Errorf("bad token: its iat is %s in the future; compare the clocks of its issuer and of this server", ahead.Round(time.Second))
	}
	if most := t.cfg.MaxLifetime; most > 0 {
		if c.issued.IsZero() { // it would become valid once it has no more than that left
			return Identity{}, fmt.Errorf("bad token: it lacks iat; tokens must say when they were issued, since they may be valid for %s at most (--jwt-max-lifetime)", most)
		}
		if valid := c.expires.Sub(c.issued); valid > most {
			return Identity{}, fmt.Errorf("bad token: it is valid for %s from its iat to its exp, and may be for %s (--jwt-max-lifetime)", valid.Round(time.Second), most)
		}
	}
	if t.cfg.Revoked != nil && t.cfg.Revoked(c.subject, c.issued) {
		return Identity{}, ErrRevoked
	}
	if t.cfg.Unread != nil {
		if err := t.cfg.Unread(c.subject); err != nil {
			return Identity{}, &PartialReadError{err}
		}
	}
	return Identity{UserID: c.subject, ExpiresAt: time.Now().Add(left), IssuedAt: c.issued, Categories: c.categories}, nil
}

// Check returns ErrExpired or ErrRevoked once the token of an identity is not valid any more.
func (t *Tokens) Check(id Identity) error {
	switch {
	case !time.Now().Before(id.ExpiresAt):
		return ErrExpired
	case t.cfg.Revoked != nil && t.cfg.Revoked(id.UserID, id.IssuedAt):
		return ErrRevoked
	}
	return nil
}

// ErrRevoked is returned for a token that was valid until it was revoked.
var ErrRevoked = errors.New("bad token: it was revoked")

// PartialReadError means that it is not known here which tokens of the user are revoked. Others
// will be admitted later.
type PartialReadError struct{ Err error }

// Error implements error.
func (e *PartialReadError) Error() string {
	return "the token cannot be verified right now: " + e.Err.Error()
}

// Unwrap returns why.
func (e *PartialReadError) Unwrap() error { return e.Err }

// ErrExpired is returned for a token that was valid until it expired.
var ErrExpired = errors.New("bad token: it has expired")

var (
	errUnknownKey  = errors.New("no key has this kid")
	errWrongMethod = errors.New("the key is for another method")
	errCritical    = errors.New("the header has crit or b64")
	errWrongType   = errors.New("the header has another typ")
)

// checkHeader refuses headers that require more than badged does: crit names
// extensions that must be understood (RFC 7515, 4.1.11), and badged has none;
// b64 is one (RFC 7797). A typ says what a token is for (RFC 8725, 3.11).
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

// keyOf finds the key of a token by its kid. A token without a kid is tried
// with the only key, if there is just one.
func (t *Tokens) keyOf(ctx context.Context, token *jwt.Token) (any, error) {
	if err := checkHeader(token.Header); err != nil {
		return nil, err
	}
	kid, isText := token.Header["kid"].(string)
	if _, given := token.Header["kid"]; given && (!isText || kid == "") {
		return nil, errUnknownKey // an unusable kid is not an absent one
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
	if kid == "" && fetched != nil { // a fetch cannot tell which key it is
		return tokenKey{}, errUnknownKey
	}
	err := t.cfg.Set.renew(ctx)
	// A fetch may have ended since the set was looked at, and the next is not due.
	if k, ok := find(kid, t.keys, t.cfg.Set.all()); ok {
		return k, nil
	}
	if err != nil {
		return tokenKey{}, err
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
		{errCritical, "its header has crit or b64, and badged supports no extensions"},
		{errWrongType, "its typ is neither JWT nor at+jwt"},
		{errUnknownKey, "its key is not known here"},
		{errWrongMethod, "its method is not the one of its key"},
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
	if errors.Is(err, jwt.ErrTokenExpired) { // the only fault
		return ErrExpired
	}
	return errors.New("bad token")
}

// signedClaims are the claims of a token that badged signs.
type signedClaims struct {
	jwt.RegisteredClaims
	Categories []string `json:"badged_categories,omitempty"`
}

// Sign returns a token for a user that expires after ttl, restricted to categories if
// there are any. It needs an HS256 key.
func (t *Tokens) Sign(userID string, ttl time.Duration, now time.Time, categories ...string) (string, error) {
	if t.signer == "" {
		return "", errors.New("no HS256 key to sign with: give one with --jwt-keys KID=HS256:SECRET")
	}
	if reason := events.CheckID(userID); reason != "" {
		return "", fmt.Errorf("user id %q %s", userID, reason)
	}
	if len(categories) > maxCategories {
		return "", fmt.Errorf("a token can be restricted to at most %d categories, not %d", maxCategories, len(categories))
	}
	for _, category := range categories {
		if reason := events.CheckCategory(category); reason != "" {
			return "", fmt.Errorf("category %q %s", category, reason)
		}
	}
	claims := signedClaims{
		RegisteredClaims: jwt.RegisteredClaims{
			Subject:   userID,
			IssuedAt:  jwt.NewNumericDate(now),
			ExpiresAt: jwt.NewNumericDate(now.Add(ttl)),
			Issuer:    t.cfg.Issuer,
		},
		Categories: categories,
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
