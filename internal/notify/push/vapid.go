package push

import (
	"crypto/ecdsa"
	"encoding/base64"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	// vapidLifetime is how long a token is valid. RFC 8292 allows at most 24 hours.
	vapidLifetime = 12 * time.Hour
	// vapidReuse is how long a token is reused for further requests. Signing a new token costs as
	// much as encrypting a push.
	vapidReuse = time.Hour
	// vapidOrigins is the maximum number of origins whose tokens are cached. The cache needs a
	// limit because users choose the origins.
	vapidOrigins = 10_000
)

// vapid makes the headers that authenticate the sender to push services, by RFC 8292. It is safe
// for concurrent use.
type vapid struct {
	key     *ecdsa.PrivateKey
	public  string
	subject string
	now     func() time.Time

	mu       sync.Mutex
	byOrigin map[string]vapidHeader
}

type vapidHeader struct {
	text   string
	issued time.Time
}

func newVAPID(key *ecdsa.PrivateKey, subject string, now func() time.Time) (*vapid, error) {
	public, err := key.PublicKey.Bytes()
	if err != nil {
		return nil, err
	}
	return &vapid{
		key: key, public: base64.RawURLEncoding.EncodeToString(public), subject: subject,
		now: now, byOrigin: map[string]vapidHeader{},
	}, nil
}

// header returns the Authorization header for requests to a push service. origin is the origin of
// the service's URL, such as "https://push.example". The header is cached for vapidReuse.
func (v *vapid) header(origin string) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.now()
	if h, ok := v.byOrigin[origin]; ok && now.Sub(h.issued) < vapidReuse {
		return h.text, nil
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"aud": origin, "exp": now.Add(vapidLifetime).Unix(), "sub": v.subject,
	}).SignedString(v.key)
	if err != nil {
		return "", err
	}
	if len(v.byOrigin) >= vapidOrigins {
		clear(v.byOrigin)
	}
	h := vapidHeader{"vapid t=" + token + ", k=" + v.public, now}
	v.byOrigin[origin] = h
	return h.text, nil
}
