package push

import (
	"crypto/ecdh"
	"encoding/base64"
	"net/http"
	"sync"
	"testing"
	"time"
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
	body, err := encrypt(text, to, decode("BTBZMqHH6r4Tts7J_aSIgg"), ephemeral, decode("DGv6ra1nlYgDCS1FRnbzlw"), 4096, len(text)+recordOverhead)
	if err != nil {
		t.Fatal(err)
	}
	const want = "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
	if got := base64.RawURLEncoding.EncodeToString(body); got != want {
		t.Errorf("encrypted:\n%s\nwant\n%s", got, want)
	}
}

// A token is signed for each push service, and used for an hour.
func TestVAPIDTokensAreReused(t *testing.T) {
	f := fakes(t)[2]
	v := f.app.vendor.(*webPush).vapid
	now := time.Now()
	v.now = func() time.Time { return now }
	header := func(origin string) string {
		h, err := v.header(origin)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	first := header(f.URL)
	now = now.Add(59 * time.Minute)
	if header(f.URL) != first {
		t.Error("another token within the hour")
	}
	if header("https://push.example") == first {
		t.Error("two push services got the same token")
	}
	now = now.Add(2 * time.Minute)
	if header(f.URL) == first {
		t.Error("the same token after an hour")
	}
	for range 2 {
		if got := f.send(t, f.push(1, 1)); got.Verdict != Sent {
			t.Fatalf("a push: %+v", got)
		}
	}
	sound(t, f.Vendor)
}

// Pushes that wait for the first connection to a vendor share it.
func TestVendorsAreDialledOnce(t *testing.T) {
	for _, f := range fakes(t) {
		t.Run(string(f.platform), func(t *testing.T) {
			var mu sync.Mutex
			connections := map[string]bool{}
			inner := f.Server.Config.Handler
			f.Server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				connections[r.RemoteAddr] = true
				mu.Unlock()
				inner.ServeHTTP(w, r)
			})
			var all sync.WaitGroup
			for i := range int64(100) {
				all.Go(func() {
					if got := f.send(t, f.push(i, i)); got.Verdict != Sent {
						t.Errorf("push %d: %+v", i, got)
					}
				})
			}
			all.Wait()
			if len(connections) != 1 {
				t.Errorf("%d connections, want 1", len(connections))
			}
			sound(t, f.Vendor)
		})
	}
}
