package vendors

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// WebPush is a fake of a browser's push service, or of a UnifiedPush distributor.
type WebPush struct {
	Vendor
	key     *ecdsa.PrivateKey
	keyFile string

	browsers sync.Mutex
	secrets  map[string]browser
}

// browser has the secrets of a subscription, which a push service does not know.
type browser struct {
	key  *ecdh.PrivateKey
	auth []byte
}

// NewWebPush starts a fake that ends with the test.
func NewWebPush(t testing.TB) *WebPush {
	s := &WebPush{secrets: map[string]browser{}}
	s.start(t, s)
	s.key, s.keyFile = s.newECKey(t, "vapid.pem")
	return s
}

// Entry returns the configuration of an app that uses this service.
func (s *WebPush) Entry() map[string]any {
	return map[string]any{"platform": "webpush", "vapid_key_file": s.keyFile, "subject": "mailto:ops@example.com", "allow_private": true}
}

// Subscribe makes a subscription like a browser, and returns its JSON. name becomes the token of
// its phone.
func (s *WebPush) Subscribe(t testing.TB, name string) map[string]any {
	t.Helper()
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	auth := make([]byte, 16)
	_, _ = rand.Read(auth)
	s.browsers.Lock()
	defer s.browsers.Unlock()
	s.secrets[name] = browser{key, auth}
	return map[string]any{
		"endpoint": s.URL + "/push/" + name,
		"keys": map[string]string{
			"p256dh": base64.RawURLEncoding.EncodeToString(key.PublicKey().Bytes()),
			"auth":   base64.RawURLEncoding.EncodeToString(auth),
		},
	}
}

var webPushTopic = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// ServeHTTP implements http.Handler.
func (s *WebPush) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/push/")
	s.browsers.Lock()
	to, ok := s.secrets[name]
	s.browsers.Unlock()
	if r.Method != http.MethodPost || !ok {
		s.violate("%s %s", r.Method, r.URL.Path)
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if wrong := s.checkVAPID(r); wrong != "" {
		s.violate("%s", wrong)
		w.WriteHeader(http.StatusForbidden)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if len(body) > 4096 {
		s.violate("a body of %d bytes", len(body))
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	p := Push{Token: name, Collapse: r.Header.Get("Topic"), Header: r.Header}
	if wrong := readWebPush(&p, to, body); wrong != "" {
		s.violate("%s: %v", wrong, r.Header)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.accept(w, r, p, func() { w.WriteHeader(http.StatusCreated) }, func(f Fault) { w.WriteHeader(f.Status) })
}

// checkVAPID checks the Authorization header by RFC 8292. It returns what is wrong with it, "" if
// nothing is.
func (s *WebPush) checkVAPID(r *http.Request) string {
	rest, ok := strings.CutPrefix(r.Header.Get("Authorization"), "vapid ")
	if !ok {
		return "no VAPID"
	}
	fields := map[string]string{}
	for field := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		fields[name] = value
	}
	public, err := s.key.PublicKey.Bytes()
	if err != nil || fields["k"] != base64.RawURLEncoding.EncodeToString(public) {
		return "the subscription was made for another key"
	}
	claims := jwt.MapClaims{}
	_, err = jwt.ParseWithClaims(fields["t"], claims, func(*jwt.Token) (any, error) { return &s.key.PublicKey, nil },
		jwt.WithValidMethods([]string{"ES256"}), jwt.WithAudience(s.URL), jwt.WithExpirationRequired(), jwt.WithSubject("mailto:ops@example.com"))
	if err != nil {
		return "VAPID: " + err.Error()
	}
	until, err := claims.GetExpirationTime()
	if err != nil || time.Until(until.Time) > 24*time.Hour {
		return "VAPID: exp is more than a day ahead"
	}
	return ""
}

// readWebPush checks the headers by RFC 8030 and decrypts the body. It returns what is wrong with
// them, "" if nothing is.
func readWebPush(p *Push, to browser, body []byte) string {
	h := p.Header
	ttl, err := strconv.Atoi(h.Get("TTL"))
	urgency := h.Get("Urgency")
	switch {
	case err != nil, ttl < 1, ttl > 28*24*3600:
		return "TTL"
	case h.Get("Content-Encoding") != "aes128gcm":
		return "Content-Encoding"
	case !webPushTopic.MatchString(p.Collapse):
		return "Topic"
	}
	text, err := decrypt(to, body)
	if err != nil {
		return err.Error()
	}
	var payload struct {
		Badged      Content `json:"badged"`
		Title, Body *string
	}
	if err := json.Unmarshal(text, &payload); err != nil {
		return err.Error()
	}
	p.Badged = payload.Badged
	if payload.Title != nil || payload.Body != nil {
		p.Alert = true
		for _, text := range []struct{ from, to *string }{{payload.Title, &p.Title}, {payload.Body, &p.Body}} {
			if text.from != nil {
				*text.to = *text.from
			}
		}
	}
	if p.Alert && urgency != "high" || !p.Alert && urgency != "normal" {
		return "Urgency"
	}
	return ""
}

// decrypt decrypts a body that is encoded as in RFC 8188, with the keys of RFC 8291.
func decrypt(to browser, body []byte) ([]byte, error) {
	const header = 16 + 4 + 1 + 65
	if len(body) < header+17 || body[20] != 65 {
		return nil, errors.New("the body is too short")
	}
	salt, size, public := body[:16], binary.BigEndian.Uint32(body[16:20]), body[21:header]
	if int(size) < len(body)-header {
		return nil, errors.New("more than one record")
	}
	sender, err := ecdh.P256().NewPublicKey(public)
	if err != nil {
		return nil, err
	}
	shared, err := to.key.ECDH(sender)
	if err != nil {
		return nil, err
	}
	ikm, err := hkdf.Key(sha256.New, shared, to.auth, "WebPush: info\x00"+string(to.key.PublicKey().Bytes())+string(public), 32)
	if err != nil {
		return nil, err
	}
	key, err := hkdf.Key(sha256.New, ikm, salt, "Content-Encoding: aes128gcm\x00", 16)
	if err != nil {
		return nil, err
	}
	nonce, err := hkdf.Key(sha256.New, ikm, salt, "Content-Encoding: nonce\x00", 12)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	text, err := aead.Open(nil, nonce, body[header:], nil)
	if err != nil {
		return nil, err
	}
	text = []byte(strings.TrimRight(string(text), "\x00"))
	if len(text) == 0 || text[len(text)-1] != 2 {
		return nil, errors.New("the last record has no delimiter")
	}
	return text[:len(text)-1], nil
}
