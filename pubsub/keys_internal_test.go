package pubsub

import (
	"strings"
	"testing"
)

func BenchmarkSignature(b *testing.B) {
	k := newKeys([]string{strings.Repeat("k", 32)})
	const channel = "badged:{p03}:u:alice"
	body := []byte(strings.Repeat("x", 400))
	signed := string(k.sign(channel, body))
	b.Run("sign", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			k.sign(channel, body)
		}
	})
	b.Run("open", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			k.open(channel, signed)
		}
	})
}
