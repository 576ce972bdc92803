package keyring

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/badged/badged/events"
)

// parseSpecs parses keys from flags. A key has the form NAME=SECRET or NAME=sha256:HEX, where
// HEX is the SHA-256 of the secret. The keys have all rights of their kind. The errors name the
// key, and never contain the secret.
func parseSpecs(kind Kind, specs []string) ([]*Key, error) {
	var keys []*Key
	seen := map[string]bool{}
	for i, spec := range specs {
		name, secret, ok := strings.Cut(spec, "=")
		// If the text after the first "=" is empty or only "=", the text is probably a secret
		// in base64, given without a name: the "=" are its padding.
		if !ok || name == "" || strings.Trim(secret, "=") == "" {
			return nil, fmt.Errorf("key %d: want NAME=SECRET or NAME=sha256:HEX", i+1)
		}
		if reason := events.CheckID(name); reason != "" {
			return nil, fmt.Errorf("key %d: the name %s", i+1, reason)
		}
		if seen[name] {
			return nil, fmt.Errorf("key %s is given twice", name)
		}
		seen[name] = true
		key := &Key{Name: name, Kind: kind, reads: true, disconnects: true}
		if digits, ok := strings.CutPrefix(secret, digestPrefix); ok {
			if key.digest, ok = parseDigest(digits); !ok {
				return nil, fmt.Errorf("key %s: sha256: must be followed by %d hexadecimal digits", name, 2*sha256.Size)
			}
		} else {
			key.digest = sha256.Sum256([]byte(secret))
		}
		keys = append(keys, key)
	}
	return keys, nil
}
