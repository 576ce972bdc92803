// Package webpush encrypts and decrypts Web Push messages. A message is a single record in the
// format of RFC 8188; the keys are derived by RFC 8291.
//
// The package converts bytes to bytes: it does not know vendors or queues.
package webpush

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
)

const (
	saltLength = 16
	keyLength  = 65 // an uncompressed point of P-256
	header     = saltLength + 4 + 1 + keyLength
	tag        = 16

	// Overhead is the number of bytes by which a body without padding is longer than the text: the
	// lengths of salt, record size, key, delimiter and tag.
	Overhead = header + 1 + tag
)

// ErrTooLarge means that a text is too long for a body of the given length.
var ErrTooLarge = errors.New("the text does not fit into the body")

// Encrypt encrypts a text for a subscription, and returns the body of the push. `to` is the public
// key of the subscription, and `auth` is the secret of the subscription. Encrypt uses a new
// ephemeral key, and pads the body to length bytes.
func Encrypt(text []byte, to *ecdh.PublicKey, auth []byte, length int) ([]byte, error) {
	ephemeral, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	salt := make([]byte, saltLength)
	_, _ = rand.Read(salt) // never fails
	return encrypt(text, to, auth, ephemeral, salt, length, length)
}

func encrypt(text []byte, to *ecdh.PublicKey, auth []byte, ephemeral *ecdh.PrivateKey, salt []byte, recordSize, length int) ([]byte, error) {
	if len(text)+Overhead > length {
		return nil, ErrTooLarge
	}
	shared, err := ephemeral.ECDH(to)
	if err != nil {
		return nil, err
	}
	public := ephemeral.PublicKey().Bytes()
	aead, nonce, err := keys(shared, auth, to.Bytes(), public, salt)
	if err != nil {
		return nil, err
	}
	body := make([]byte, 0, length)
	body = append(body, salt...)
	body = binary.BigEndian.AppendUint32(body, uint32(recordSize)) //nolint:gosec // G115: at most 4096
	body = append(body, byte(len(public)))                         //nolint:gosec // 65
	body = append(body, public...)
	padded := make([]byte, length-header-tag)
	padded[copy(padded, text)] = 2 // the delimiter of the last record; zeros follow
	return aead.Seal(body, nonce, padded, nil), nil
}

// Decrypt decrypts a body with the private key and the auth secret of a subscription.
func Decrypt(body []byte, key *ecdh.PrivateKey, auth []byte) ([]byte, error) {
	if len(body) < Overhead || body[saltLength+4] != keyLength {
		return nil, errors.New("the body is no encrypted push")
	}
	public := body[header-keyLength : header]
	from, err := ecdh.P256().NewPublicKey(public)
	if err != nil {
		return nil, err
	}
	shared, err := key.ECDH(from)
	if err != nil {
		return nil, err
	}
	aead, nonce, err := keys(shared, auth, key.PublicKey().Bytes(), public, body[:saltLength])
	if err != nil {
		return nil, err
	}
	padded, err := aead.Open(nil, nonce, body[header:], nil)
	if err != nil {
		return nil, err
	}
	padded = bytes.TrimRight(padded, "\x00")
	if len(padded) == 0 || padded[len(padded)-1] != 2 {
		return nil, errors.New("the push is not a single record")
	}
	return padded[:len(padded)-1], nil
}

// keys derives the cipher and the nonce of a record.
func keys(shared, auth, receiver, sender, salt []byte) (cipher.AEAD, []byte, error) {
	ikm, err := hkdf.Key(sha256.New, shared, auth, "WebPush: info\x00"+string(receiver)+string(sender), 32)
	if err != nil {
		return nil, nil, err
	}
	pseudorandom, err := hkdf.Extract(sha256.New, ikm, salt)
	if err != nil {
		return nil, nil, err
	}
	key, err := hkdf.Expand(sha256.New, pseudorandom, "Content-Encoding: aes128gcm\x00", 16)
	if err != nil {
		return nil, nil, err
	}
	nonce, err := hkdf.Expand(sha256.New, pseudorandom, "Content-Encoding: nonce\x00", 12)
	if err != nil {
		return nil, nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, nil, err
	}
	aead, err := cipher.NewGCM(block)
	return aead, nonce, err
}
