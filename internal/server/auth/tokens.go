// Package auth authenticates users by signed tokens.
//
// It does not know API keys, nor which tokens are revoked. ADR 18 explains when a token with an
// unknown key is rejected.
package auth

import (
	"cmp"
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
	"golang.org/x/time/rate"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/metric"
)

// TokenConfig configures which tokens are accepted.
type TokenConfig struct {
	// Keys have the form KID=HS256:SECRET, or KID=RS256:FILE, KID=ES256:FILE
	// or KID=EdDSA:FILE, where FILE is a public key in PEM.
	Keys []string
	// Set has further keys, which are fetched from a URL; nil means no further keys. If a key
	// in Keys and a key in Set have the same kid, the key in Keys is used.
	Set *KeySet
	// Audience and Issuer must match the claims aud and iss of a token. An empty value is not
	// checked.
	Audience string
	Issuer   string
	// MaxLifetime is the longest time from iat to exp of a token. If it is set, tokens must
	// have iat. 0 means no limit.
	MaxLifetime time.Duration
	// Revoked reports whether tokens of a user that were issued at issuedAt are revoked.
	// issuedAt is zero if a token has no iat. Nil means that no tokens are revoked.
	Revoked func(userID string, issuedAt time.Time) bool
	// Unread returns an error if this process does not know at the moment which tokens of a
	// user are revoked. Authenticate then fails with a [*PartialReadError]. Nil means that
	// revocations are always known.
	Unread func(userID string) error
	// Now returns the current time, for the checks of iat, nbf and exp. Default time.Now.
	Now func() time.Time
	// Registerer registers the metrics, unless nil.
	Registerer prometheus.Registerer
	// Logger logs why a token was refused. It logs at most 20 refusals at once, and then one in
	// ten seconds, since any client can cause refusals. Nil means that nothing is logged.
	Logger *slog.Logger
}

// The first refused tokens are all logged, so that each of several reasons is seen. Then there is
// one log line in each interval.
const (
	refusedLogBurst    = 20
	refusedLogInterval = 10 * time.Second
)

// Tokens verifies the JWTs of users. If it has an HS256 secret, it can also sign tokens. It is
// safe for concurrent use.
type Tokens struct {
	cfg    TokenConfig
	keys   map[string]tokenKey
	signer string // kid of the first key that can sign
	parser *jwt.Parser
	// verified counts tokens by result.
	verified *prometheus.CounterVec
	// refused limits the rate of log lines.
	refused *rate.Limiter
}

// tokenKey is a key, and the only signing method that may be used with it. If a token could
// choose another method, an attacker could sign a token with HS256, with the public key as the
// secret.
type tokenKey struct {
	method jwt.SigningMethod
	key    any
}

// minSecretBytes is the minimum length of a secret for HS256 in RFC 7518.
const minSecretBytes = 32

// maxTokenBytes is the maximum size of a token. Some login services list the groups of a user
// in a token, which may then have several KiB.
const maxTokenBytes = 16 << 10

// clockLeeway is how far the clock of a token's issuer may be ahead of this process's clock. It
// does not apply to the expiry of a token: connections end and commands are refused exactly when
// the token expires.
const clockLeeway = 5 * time.Second

// NewTokens loads the keys. Its errors name the key by its kid, and never contain the secret.
func NewTokens(cfg TokenConfig) (*Tokens, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	t := &Tokens{
		cfg: cfg, refused: rate.NewLimiter(rate.Every(refusedLogInterval), refusedLogBurst), keys: map[string]tokenKey{},
		verified: metric.CounterVec(cfg.Registerer, "badged_auth_tokens_total", "User tokens checked, by result.", "result"),
	}
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
		// Do not quote the method, which may be part of a secret.
		return tokenKey{}, errors.New("want HS256:SECRET, or RS256:PEM-FILE, ES256 or EdDSA")
	}
	pem, err := os.ReadFile(value) //nolint:gosec // the file that the operator names
	if err != nil {
		return tokenKey{}, fmt.Errorf("read the public key: %w", err)
	}
	if k.key, err = parse(pem); err != nil {
		return tokenKey{}, fmt.Errorf("%s contains no %s public key: %w", value, method, err)
	}
	return k, nil
}

// Identity is the user that a token authenticates.
type Identity struct {
	UserID string
	// ExpiresAt is when the token expires. It has a reading of the monotonic clock: if the
	// system clock is set after the check of the token, the token expires neither sooner nor
	// later.
	ExpiresAt time.Time
	// IssuedAt is zero if the token has no iat.
	IssuedAt time.Time
	// Categories are the categories that the token is restricted to, sorted; nil means no
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

// Authenticate verifies a token and returns its user. Its errors may be shown to clients, and
// never contain the token. If the key of the token is unknown, Authenticate waits for a fetch
// of the key set, for at most five seconds and at most until ctx is done.
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
		if t.refused.Allow() {
			t.cfg.Logger.WarnContext(ctx, "refused the token of a user", "reason", err, "kid", kidOf(token))
		}
	}
	t.verified.WithLabelValues(result).Inc()
	return id, err
}

// kidOf returns the key id of a token, shortened for a log line, or "" if the token has none.
func kidOf(token string) string {
	encoded, _, _ := strings.Cut(token[:min(len(token), maxTokenBytes)], ".")
	header, _ := base64.RawURLEncoding.DecodeString(encoded)
	var h struct {
		KID string `json:"kid"`
	}
	if json.Unmarshal(header, &h) != nil {
		return ""
	}
	return shortKID(h.KID)
}

// shortKID returns at most the first 64 bytes of a kid.
func shortKID(kid string) string { return kid[:min(len(kid), 64)] }

func (t *Tokens) authenticate(ctx context.Context, token string) (Identity, error) {
	if len(token) > maxTokenBytes {
		return Identity{}, fmt.Errorf("bad token: it has %d bytes; at most %d are allowed: leave out claims that badged does not use", len(token), maxTokenBytes)
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
	// Refuse a token whose iat is in the future: a revocation before that time would not apply
	// to the token.
	if ahead := c.issued.Sub(now); ahead > clockLeeway {
		return Identity{}, fmt.Errorf("bad token: its iat is %s in the future; compare the clocks of its issuer and of this server", ahead.Round(time.Second))
	}
	if limit := t.cfg.MaxLifetime; limit > 0 {
		// Require iat. Without it, only the time until exp could be limited, and a token with
		// too long a lifetime would be accepted later, when less time remains.
		if c.issued.IsZero() {
			return Identity{}, fmt.Errorf("bad token: it has no iat; from iat to exp, a token may be valid for at most %s (--jwt-max-lifetime)", limit)
		}
		if valid := c.expires.Sub(c.issued); valid > limit {
			return Identity{}, fmt.Errorf("bad token: it is valid for %s from its iat to its exp; the limit is %s (--jwt-max-lifetime)", valid.Round(time.Second), limit)
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

// Check returns ErrExpired or ErrRevoked if the token of an identity is not valid any more.
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

// PartialReadError means that this process does not know which tokens of the user are revoked.
// The same token may be accepted later.
type PartialReadError struct{ Err error }

// Error implements error.
func (e *PartialReadError) Error() string {
	return "the token cannot be verified right now: " + e.Err.Error()
}

// Unwrap returns the reason why revocations are not known.
func (e *PartialReadError) Unwrap() error { return e.Err }

// ErrExpired is returned for a token that was valid until it expired.
var ErrExpired = errors.New("bad token: it has expired")

var (
	errCritical  = &faultError{"its header", "has crit or b64, and badged supports no extensions"}
	errWrongType = &faultError{"its typ", "is neither JWT nor at+jwt"}
	errNoKID     = &faultError{"it", "has no kid, which tokens need unless there is a single key"}
)

// checkHeader refuses tokens whose header requires something that badged does not implement.
// crit lists extensions that a verifier must implement (RFC 7515, 4.1.11); badged implements no
// extensions. b64 is such an extension (RFC 7797). typ is the purpose of a token (RFC 8725,
// 3.11).
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

// keyOf returns the key that the kid of a token names. For a token without a kid, it returns
// the only key, and fails if there are several keys.
func (t *Tokens) keyOf(ctx context.Context, token *jwt.Token) (any, error) {
	if err := checkHeader(token.Header); err != nil {
		return nil, err
	}
	kid, isText := token.Header["kid"].(string)
	if _, given := token.Header["kid"]; given && (!isText || kid == "") {
		return nil, &faultError{"its kid", "must be a string that is not empty"}
	}
	k, err := t.lookUp(ctx, kid)
	if err != nil {
		return nil, err
	}
	if alg, takes := token.Method.Alg(), k.method.Alg(); alg != takes {
		return nil, &faultError{"it", fmt.Sprintf("is signed with %s; %s is for %s", alg, strings.TrimSpace("the key "+shortKID(kid)), takes)}
	}
	return k.key, nil
}

func (t *Tokens) lookUp(ctx context.Context, kid string) (tokenKey, error) {
	if t.cfg.Set == nil {
		if k, ok := find(kid, t.keys, nil); ok {
			return k, nil
		}
		return tokenKey{}, unknownKey(kid)
	}
	fetched := t.cfg.Set.all()
	if k, ok := find(kid, t.keys, fetched); ok {
		return k, nil
	}
	if kid == "" && fetched != nil { // a fetch would not help, since there are several keys
		return tokenKey{}, errNoKID
	}
	err := t.cfg.Set.renew(ctx)
	// Search the keys again even after an error: a fetch may have ended after the first search.
	// In this case renew fails, since it starts no other fetch so soon.
	if k, ok := find(kid, t.keys, t.cfg.Set.all()); ok {
		return k, nil
	}
	if err != nil {
		return tokenKey{}, err
	}
	return tokenKey{}, unknownKey(kid)
}

// unknownKey returns the error for a token whose key is not found. kid is "" if the token has
// no kid.
func unknownKey(kid string) error {
	if kid == "" {
		return errNoKID
	}
	return &faultError{"its key", fmt.Sprintf("%q is not known here", shortKID(kid))}
}

func describeTokenError(err error) error {
	if errors.Is(err, ErrKeysAway) {
		return ErrKeysAway
	}
	if fault, ok := errors.AsType[*faultError](err); ok {
		return fmt.Errorf("bad token: %w", fault)
	}
	for _, known := range []struct {
		err  error
		says string
	}{
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
	if errors.Is(err, jwt.ErrTokenExpired) { // expiry is the only fault
		return ErrExpired
	}
	return errors.New("bad token")
}

// signedClaims are the claims of a token that badged signs.
type signedClaims struct {
	jwt.RegisteredClaims
	Categories []string `json:"badged_categories,omitempty"`
}

// Sign returns a token for a user. The token expires after ttl. If categories are given, the
// token is restricted to them. Sign needs an HS256 key.
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
