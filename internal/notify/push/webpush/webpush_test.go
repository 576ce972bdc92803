package webpush

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"testing"
)

// The example of RFC 8291, section 5.
func TestEncryptionOfTheRFC(t *testing.T) {
	decode := func(text string) []byte {
		b, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	ephemeral, err := ecdh.P256().NewPrivateKey(decode("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"))
	if err != nil {
		t.Fatal(err)
	}
	to, err := ecdh.P256().NewPublicKey(decode("BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"))
	if err != nil {
		t.Fatal(err)
	}
	text := []byte("When I grow up, I want to be a watermelon")
	body, err := encrypt(text, to, decode("BTBZMqHH6r4Tts7J_aSIgg"), ephemeral, decode("DGv6ra1nlYgDCS1FRnbzlw"), 4096, len(text)+Overhead)
	if err != nil {
		t.Fatal(err)
	}
	const want = "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
	if got := base64.RawURLEncoding.EncodeToString(body); got != want {
		t.Errorf("encrypted:\n%s\nwant\n%s", got, want)
	}
	receiver, err := ecdh.P256().NewPrivateKey(decode("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"))
	if err != nil {
		t.Fatal(err)
	}
	auth := decode("BTBZMqHH6r4Tts7J_aSIgg")
	if got, err := Decrypt(body, receiver, auth); err != nil || string(got) != string(text) {
		t.Errorf("decrypted: %q, %v", got, err)
	}
	for i := range body {
		bad := bytes.Clone(body)
		bad[i] ^= 1
		isSize := i >= 16 && i < 20 // of the record, which is not needed
		if got, err := Decrypt(bad, receiver, auth); err == nil && !isSize {
			t.Fatalf("with another byte %d: %q", i, got)
		}
		if _, err := Decrypt(body[:i], receiver, auth); err == nil {
			t.Fatalf("%d bytes of it are decrypted", i)
		}
	}
}

// A body has the length that was asked for, whatever the text.
func TestBodiesArePadded(t *testing.T) {
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	auth := make([]byte, 16)
	for _, n := range []int{0, 1, 512 - Overhead} {
		text := bytes.Repeat([]byte("a"), n)
		body, err := Encrypt(text, key.PublicKey(), auth, 512)
		if err != nil || len(body) != 512 {
			t.Fatalf("%d bytes: a body of %d, %v", n, len(body), err)
		}
		if got, err := Decrypt(body, key, auth); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%d bytes: decrypted %q, %v", n, got, err)
		}
	}
	if _, err := Encrypt(make([]byte, 513-Overhead), key.PublicKey(), auth, 512); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one byte too many: %v", err)
	}
}
