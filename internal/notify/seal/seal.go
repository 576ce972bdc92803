// Package seal encrypts secrets that are stored in tables: device tokens and the secrets of
// webhooks.
//
// The package does not know for what purpose the secrets are used.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// keyBytes is the length of an AES-256 key.
const keyBytes = 32

// These are the formats of a stored secret; its first byte is the format. In the format plain, the
// secret follows. In the format encrypted, the length of the key's id, the id, the nonce and the
// ciphertext follow.
const (
	plain     = 0
	encrypted = 1
)

var idPattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,32}$`)

// Box encrypts secrets with its first key. It decrypts secrets that were encrypted with any of
// its keys. The zero value has no key: it does not encrypt secrets and stores them as they are. A
// Box is safe for concurrent use.
type Box struct {
	first string
	keys  map[string]cipher.AEAD
}

// ParseKeys returns a Box with keys. Each key has 32 bytes and is given as ID=BASE64. The Box
// encrypts with the first key. The error contains no key.
func ParseKeys(specs []string) (*Box, error) {
	b := &Box{keys: map[string]cipher.AEAD{}}
	for i, spec := range specs {
		id, text, ok := strings.Cut(spec, "=")
		if !ok || !idPattern.MatchString(id) {
			return nil, fmt.Errorf("key %d: want ID=BASE64, with an id of up to 32 letters, digits, dots, dashes and underscores", i+1)
		}
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(key) != keyBytes {
			return nil, fmt.Errorf("key %d (%s): want %d bytes in base64; `openssl rand -base64 %d` makes them", i+1, id, keyBytes, keyBytes)
		}
		if _, ok := b.keys[id]; ok {
			return nil, fmt.Errorf("key %d: %s is given twice", i+1, id)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, fmt.Errorf("key %d (%s): %w", i+1, id, err)
		}
		if b.keys[id], err = cipher.NewGCM(block); err != nil {
			return nil, fmt.Errorf("key %d (%s): %w", i+1, id, err)
		}
		if b.first == "" {
			b.first = id
		}
	}
	return b, nil
}

// Seal returns the form in which a secret is stored. context names the row in which it is stored,
// for example the user and the device. If an encrypted secret is copied to another row, Open fails,
// because the context of that row differs.
func (b *Box) Seal(secret []byte, context string) []byte {
	if b.first == "" {
		return append([]byte{plain}, secret...)
	}
	aead := b.keys[b.first]
	out := append([]byte{encrypted, byte(len(b.first))}, b.first...) //nolint:gosec // G115: ids have up to 32 bytes
	nonce := make([]byte, aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	out = append(out, nonce...)
	return aead.Seal(out, nonce, secret, []byte(context))
}

// Errors of Open.
var (
	ErrNoKey   = errors.New("sealed with a key that is not configured")
	ErrDamaged = errors.New("the sealed secret is damaged, or belongs to another row")
)

// Open returns the secret that was passed to Seal with the same context. It fails with [ErrNoKey]
// or [ErrDamaged].
func (b *Box) Open(sealed []byte, context string) ([]byte, error) {
	switch {
	case len(sealed) > 0 && sealed[0] == plain:
		return sealed[1:], nil
	case len(sealed) < 2 || sealed[0] != encrypted || len(sealed) < 2+int(sealed[1]):
		return nil, ErrDamaged
	}
	id, rest := string(sealed[2:2+sealed[1]]), sealed[2+int(sealed[1]):]
	aead, ok := b.keys[id]
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrNoKey, id)
	}
	if len(rest) < aead.NonceSize() {
		return nil, ErrDamaged
	}
	secret, err := aead.Open(nil, rest[:aead.NonceSize()], rest[aead.NonceSize():], []byte(context))
	if err != nil {
		return nil, ErrDamaged
	}
	return secret, nil
}
