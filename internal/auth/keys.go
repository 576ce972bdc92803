// Package auth authenticates publishers and operators by API keys, and users
// by signed tokens.
package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"strings"
)

// Keys are API keys, kept as digests. The zero value has none.
type Keys struct {
	keys []apiKey
}

type apiKey struct {
	name   string
	digest [sha256.Size]byte
}

// ParseKeys parses keys of the form NAME=SECRET or NAME=sha256:HEX, where HEX
// is the SHA-256 of the secret. Its errors name the key, never the secret.
func ParseKeys(specs []string) (Keys, error) {
	var ks Keys
	seen := map[string]bool{}
	for i, spec := range specs {
		name, secret, ok := strings.Cut(spec, "=")
		// A secret of only "=" is the padding of a base64 secret without a
		// name.
		if !ok || name == "" || strings.Trim(secret, "=") == "" {
			return Keys{}, fmt.Errorf("key %d: want NAME=SECRET or NAME=sha256:HEX", i+1)
		}
		if seen[name] {
			return Keys{}, fmt.Errorf("key %s is given twice", name)
		}
		seen[name] = true
		key := apiKey{name: name}
		if digest, ok := strings.CutPrefix(secret, "sha256:"); ok {
			b, err := hex.DecodeString(digest)
			if err != nil || len(b) != sha256.Size {
				return Keys{}, fmt.Errorf("key %s: sha256: must be followed by %d hexadecimal digits", name, 2*sha256.Size)
			}
			key.digest = [sha256.Size]byte(b)
		} else {
			key.digest = sha256.Sum256([]byte(secret))
		}
		ks.keys = append(ks.keys, key)
	}
	return ks, nil
}

// Len returns the number of keys.
func (ks Keys) Len() int { return len(ks.keys) }

// Check returns the name of the key with a secret, in a time independent of
// how much of the secret is right.
func (ks Keys) Check(secret string) (name string, ok bool) {
	digest := sha256.Sum256([]byte(secret))
	for _, k := range ks.keys {
		if subtle.ConstantTimeCompare(digest[:], k.digest[:]) == 1 {
			name, ok = k.name, true
		}
	}
	return name, ok
}
