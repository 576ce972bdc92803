package admin

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
)

// secretPrefix begins each secret of a webhook, so that scanners find leaked
// ones.
const secretPrefix = "whsec_"

// The sizes of secrets in bytes, by Standard Webhooks.
const (
	minSecret = 24
	maxSecret = 64
	newSecret = 32
)

// formatSecret returns a secret as receivers configure it.
func formatSecret(secret []byte) string {
	return secretPrefix + base64.StdEncoding.EncodeToString(secret)
}

// generateSecret returns a new secret.
func generateSecret() []byte {
	b := make([]byte, newSecret)
	_, _ = rand.Read(b) // never fails
	return b
}

// parseSecret is the reverse of formatSecret. It returns what is wrong with the
// text, or "".
func parseSecret(text string) (secret []byte, reason string) {
	rest, ok := strings.CutPrefix(text, secretPrefix)
	if !ok {
		return nil, "must begin with " + secretPrefix
	}
	secret, err := base64.StdEncoding.DecodeString(rest)
	if err != nil {
		return nil, "must be base64 after " + secretPrefix
	}
	if len(secret) < minSecret || len(secret) > maxSecret {
		return nil, fmt.Sprintf("must have %d to %d bytes, has %d", minSecret, maxSecret, len(secret))
	}
	return secret, ""
}
