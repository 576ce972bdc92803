package push

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
)

// errTooLarge says that a text does not fit into a record.
var errTooLarge = errors.New("the text does not fit into a record")

// encryptionHeader is the length of what precedes the text: salt, size of the record,
// and key. recordOverhead is what encryption adds in all, with delimiter and tag.
const (
	saltLength       = 16
	encryptionHeader = saltLength + 4 + 1 + 65
	recordOverhead   = encryptionHeader + 1 + 16
)

// encrypt encrypts a text for a subscription, padded to a length of the whole body. It
// is one record of RFC 8188, with the keys of RFC 8291. ephemeral and salt are for this
// push alone.
func encrypt(text []byte, to *ecdh.PublicKey, auth []byte, ephemeral *ecdh.PrivateKey, salt []byte, recordSize uint32, length int) ([]byte, error) {
	if len(text)+recordOverhead > length {
		return nil, errTooLarge
	}
	shared, err := ephemeral.ECDH(to)
	if err != nil {
		return nil, err
	}
	public := ephemeral.PublicKey().Bytes()
	ikm, err := hkdf.Key(sha256.New, shared, auth, "WebPush: info\x00"+string(to.Bytes())+string(public), 32)
	if err != nil {
		return nil, err
	}
	pseudorandom, err := hkdf.Extract(sha256.New, ikm, salt)
	if err != nil {
		return nil, err
	}
	key, err := hkdf.Expand(sha256.New, pseudorandom, "Content-Encoding: aes128gcm\x00", 16)
	if err != nil {
		return nil, err
	}
	nonce, err := hkdf.Expand(sha256.New, pseudorandom, "Content-Encoding: nonce\x00", 12)
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
	body := make([]byte, 0, length)
	body = append(body, salt...)
	body = binary.BigEndian.AppendUint32(body, recordSize)
	body = append(body, byte(len(public)))
	body = append(body, public...)
	padded := make([]byte, length-encryptionHeader-aead.Overhead())
	padded[copy(padded, text)] = 2 // the delimiter of the last record; zeros follow
	return aead.Seal(body, nonce, padded, nil), nil
}
