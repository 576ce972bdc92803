package auth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/golang-jwt/jwt/v5"
)

// jwk is a public JSON Web Key of RFC 7517.
type jwk struct {
	Kty    string   `json:"kty"`
	Kid    string   `json:"kid"`
	Use    string   `json:"use"`
	KeyOps []string `json:"key_ops"`
	Alg    string   `json:"alg"`
	Crv    string   `json:"crv"`
	N      string   `json:"n"`
	E      string   `json:"e"`
	X      string   `json:"x"`
	Y      string   `json:"y"`
}

// minRSABits is the minimum size of an RSA key for RS256 in RFC 7518.
const minRSABits = 2048

// parseKeySet parses a JSON Web Key Set, and returns a map from kid to key. It skips unusable keys,
// as RFC 7517 recommends, and fails if no key is usable.
func parseKeySet(b []byte) (map[string]tokenKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(b, &set); err != nil {
		return nil, errors.New("the answer is not a JSON Web Key Set")
	}
	keys := map[string]tokenKey{}
	var last error
	for i, raw := range set.Keys {
		var k jwk
		if err := json.Unmarshal(raw, &k); err != nil {
			last = fmt.Errorf("key %d is not a JSON Web Key", i+1)
			continue
		}
		key, err := k.tokenKey()
		if err != nil {
			last = fmt.Errorf("key %d: %w", i+1, err)
			continue
		}
		if _, ok := keys[k.Kid]; !ok {
			keys[k.Kid] = key
		}
	}
	if len(keys) == 0 {
		return nil, errors.Join(errors.New("the set has no key for RS256, ES256 or EdDSA"), last)
	}
	return keys, nil
}

// tokenKey returns the key, with the only signing method that is allowed for its type. It refuses
// symmetric keys: anyone who can read the key set could sign tokens with such a key.
func (k *jwk) tokenKey() (tokenKey, error) {
	if k.Use != "" && k.Use != "sig" || len(k.KeyOps) > 0 && !slices.Contains(k.KeyOps, "verify") {
		return tokenKey{}, errors.New("it is not for signatures")
	}
	var key tokenKey
	var err error
	switch {
	case k.Kty == "RSA":
		key.method = jwt.SigningMethodRS256
		key.key, err = k.rsa()
	case k.Kty == "EC" && k.Crv == "P-256":
		key.method = jwt.SigningMethodES256
		key.key, err = k.ec()
	case k.Kty == "OKP" && k.Crv == "Ed25519":
		key.method = jwt.SigningMethodEdDSA
		key.key, err = k.ed25519()
	default:
		return tokenKey{}, errors.New("its type is not one that is used here")
	}
	if err != nil {
		return tokenKey{}, err
	}
	if k.Alg != "" && k.Alg != key.method.Alg() {
		return tokenKey{}, errors.New("it is for another method than " + key.method.Alg())
	}
	return key, nil
}

func (k *jwk) rsa() (*rsa.PublicKey, error) {
	n, err := decodePart("n", k.N)
	if err != nil {
		return nil, err
	}
	e, err := decodePart("e", k.E)
	if err != nil {
		return nil, err
	}
	modulus, exponent := new(big.Int).SetBytes(n), new(big.Int).SetBytes(e)
	if modulus.BitLen() < minRSABits {
		return nil, fmt.Errorf("it has %d bits, and must have at least %d", modulus.BitLen(), minRSABits)
	}
	if exponent.BitLen() > 31 || exponent.Int64() < 3 || exponent.Bit(0) == 0 {
		return nil, errors.New("e is no exponent")
	}
	return &rsa.PublicKey{N: modulus, E: int(exponent.Int64())}, nil
}

func (k *jwk) ec() (*ecdsa.PublicKey, error) {
	x, err := decodePart("x", k.X)
	if err != nil {
		return nil, err
	}
	y, err := decodePart("y", k.Y)
	if err != nil {
		return nil, err
	}
	const uncompressed = 4
	point := append(append([]byte{uncompressed}, x...), y...)
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	if err != nil {
		return nil, errors.New("x and y are no point of P-256")
	}
	return key, nil
}

func (k *jwk) ed25519() (ed25519.PublicKey, error) {
	x, err := decodePart("x", k.X)
	if err != nil {
		return nil, err
	}
	if len(x) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("x has %d bytes, and must have %d", len(x), ed25519.PublicKeySize)
	}
	return x, nil
}

func decodePart(name, s string) ([]byte, error) {
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(s, "="))
	if err != nil || len(b) == 0 {
		return nil, errors.New(name + " is missing or not base64url")
	}
	return b, nil
}
