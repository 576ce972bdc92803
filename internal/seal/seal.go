// Package seal encrypts secrets that the tables hold: tokens of devices and
// secrets of webhooks.
//
// It does not know what the secrets are for.
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

// keyBytes is the length of a key of AES-256.
const keyBytes = 32

// Formats of a sealed secret: its first byte. A sealed one has the length of
// the key's id, the id, the nonce and the ciphertext behind it.
const (
	plain     = 0
	encrypted = 1
)

var idPattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,32}$`)

// Box seals secrets with the first of its keys and opens what any of them
// sealed. The zero value seals nothing: it stores secrets as they are. A Box is
// safe for concurrent use.
type Box struct {
	first string
	keys  map[string]cipher.AEAD
}

// ParseKeys returns a Box for keys of the form ID=BASE64, each of 32 bytes. Its
// errors hold no key.
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

// Seal returns a secret in the form that the tables hold. context says where it
// is stored, such as the user and the device: a secret that was moved to another
// row does not open.
func (b *Box) Seal(secret []byte, context string) []byte {
	if b.first == "" {
		return append([]byte{plain}, secret...)
	}
	aead := b.keys[b.first]
	out := append([]byte{encrypted, byte(len(b.first))}, b.first...) //nolint:gosec // G115: ids have up to 32 bytes
	nonce := make([]byte, aead.NonceSize())
	_, _ = rand.Read(nonce) // it never fails
	out = append(out, nonce...)
	return aead.Seal(out, nonce, secret, []byte(context))
}

// Errors of Open.
var (
	ErrNoKey   = errors.New("sealed with a key that is not configured")
	ErrDamaged = errors.New("the sealed secret is damaged, or belongs to another row")
)

// Open returns the secret that Seal was given with the same context.
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
