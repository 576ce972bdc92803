package pubsub

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"hash"
	"sync"
)

// A signed message begins with a signature and a dot. The signature is the first 16 bytes of an
// HMAC-SHA256, in base64. It signs the channel and the body. The channel names the user or
// room, so a message that is copied to the channel of another user is rejected.
const (
	signatureBytes = 16
	signatureChars = 22
)

// keys sign and verify messages. Without keys, messages are neither signed nor verified.
type keys []*sync.Pool // one pool of hash.Hash per key

func newKeys(secrets []string) keys {
	var k keys
	for _, secret := range secrets {
		k = append(k, &sync.Pool{New: func() any { return hmac.New(sha256.New, []byte(secret)) }})
	}
	return k
}

// sign returns the message for a body on a channel, signed with the first key.
func (k keys) sign(channel string, body []byte) []byte {
	if len(k) == 0 {
		return body
	}
	signature := signatureOf(k[0], channel, body)
	signed := make([]byte, 0, signatureChars+1+len(body))
	signed = append(signed, signature[:]...)
	signed = append(signed, '.')
	return append(signed, body...)
}

// open verifies a message on a channel and returns its body. ok is false if the message has no
// signature by any of the keys.
func (k keys) open(channel, payload string) (body string, ok bool) {
	if len(k) == 0 {
		return payload, true
	}
	if len(payload) <= signatureChars || payload[signatureChars] != '.' {
		return "", false
	}
	given, body := []byte(payload[:signatureChars]), payload[signatureChars+1:]
	for _, key := range k {
		signature := signatureOf(key, channel, []byte(body))
		if subtle.ConstantTimeCompare(signature[:], given) == 1 {
			return body, true
		}
	}
	return "", false
}

func signatureOf(key *sync.Pool, channel string, body []byte) (signature [signatureChars]byte) {
	mac, _ := key.Get().(hash.Hash)
	defer key.Put(mac)
	mac.Reset()
	// A zero byte separates channel and body; no channel contains it. Writing to a hash never
	// fails.
	_, _ = mac.Write(append([]byte(channel), 0))
	_, _ = mac.Write(body)
	var sum [sha256.Size]byte
	base64.RawURLEncoding.Encode(signature[:], mac.Sum(sum[:0])[:signatureBytes])
	return signature
}
