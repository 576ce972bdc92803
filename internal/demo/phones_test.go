package demo

import (
	"crypto/ecdh"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/badged/badged/internal/notify/push/webpush"
)

// encrypted returns a push to a subscription.
func encrypted(t *testing.T, s subscription, text string) string {
	t.Helper()
	decode := func(name string) []byte {
		b, err := base64.RawURLEncoding.DecodeString(s.Keys[name])
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	key, err := ecdh.P256().NewPublicKey(decode("p256dh"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := webpush.Encrypt([]byte(text), key, decode("auth"), 512)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// A phone shows the newest of the pushes that it can decrypt.
func TestPhonesTakePushes(t *testing.T) {
	f := newFixture(t)
	page, _ := f.feed.open()
	defer f.feed.leave(page)
	call := func(method, path, body string, want int) string {
		t.Helper()
		w := httptest.NewRecorder()
		f.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
		if w.Code != want {
			t.Fatalf("%s %s: %d %s, want %d", method, path, w.Code, w.Body, want)
		}
		return w.Body.String()
	}
	var answer struct {
		Phones []struct {
			UserID       string       `json:"user_id"`
			Subscription subscription `json:"subscription"`
		}
	}
	if err := json.Unmarshal([]byte(call(http.MethodGet, "/demo/phones", "", http.StatusOK)), &answer); err != nil || len(answer.Phones) != len(people()) {
		t.Fatalf("the phones are %+v, %v", answer, err)
	}
	ada, ben := answer.Phones[0], answer.Phones[1]
	if want := "http://127.0.0.1:1/demo/push/ada"; ada.Subscription.Endpoint != want {
		t.Errorf("the endpoint is %s, want %s", ada.Subscription.Endpoint, want)
	}
	call(http.MethodPost, "/demo/phones", `{"user_id":"ada","closed":true}`, http.StatusOK)
	push := func(version, number int) string {
		return encrypted(t, ada.Subscription, fmt.Sprintf(`{"badged":{"epoch":"e","version":%d,"number":%d}}`, version, number))
	}
	call(http.MethodPost, "/demo/push/ada", push(7, 3), http.StatusCreated)
	call(http.MethodPost, "/demo/push/ada", push(6, 9), http.StatusCreated) // late
	if got := f.phones.all["ada"]; !got.Closed || got.Pushes != 2 || got.Pushed.Number != 3 {
		t.Errorf("Ada's phone is %+v with %+v", got, got.Pushed)
	}
	for _, want := range []string{`"pushes":0`, `"pushes":1,"pushed":{"epoch":"e","version":7,"number":3}`, `"pushes":2,"pushed":{"epoch":"e","version":7,"number":3}`} {
		if frame := string(<-page); !strings.Contains(frame, "event: phone") || !strings.Contains(frame, want) {
			t.Errorf("the page got %s, want %s", frame, want)
		}
	}
	// A push for another phone, text that is no push, and a push for an unknown user.
	call(http.MethodPost, "/demo/push/ada", encrypted(t, ben.Subscription, `{}`), http.StatusGone)
	call(http.MethodPost, "/demo/push/ada", "text", http.StatusGone)
	call(http.MethodPost, "/demo/push/eve", push(8, 1), http.StatusGone)
	call(http.MethodPost, "/demo/push/ada", strings.Repeat("a", maxPush+1), http.StatusRequestEntityTooLarge)
	for _, wrong := range []string{`{"user_id":"eve","closed":true}`, `{"user_id":"ada"}`, `[]`} {
		call(http.MethodPost, "/demo/phones", wrong, http.StatusBadRequest)
	}
}

// After a restart of the demo its phones have the same keys, with which they are registered.
func TestPhonesKeepTheirKeys(t *testing.T) {
	one, err := newPhones("http://a/", "secret", nil)
	if err != nil {
		t.Fatal(err)
	}
	two, err := newPhones("http://a/", "secret", nil)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := one.subscribe(one.all["ada"]), two.subscribe(two.all["ada"]); a.Keys["p256dh"] != b.Keys["p256dh"] || a.Keys["auth"] != b.Keys["auth"] {
		t.Errorf("the keys were %v and are %v", a, b)
	}
	dir := t.TempDir()
	file, err := WritePushConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(dir + "/vapid.pem")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := WritePushConfig(dir); err != nil || again != file {
		t.Errorf("the second start writes %s, %v", again, err)
	}
	if now, err := os.ReadFile(dir + "/vapid.pem"); err != nil || string(now) != string(key) {
		t.Errorf("the second start has another key, %v", err)
	}
}

func TestPushEndpoint(t *testing.T) {
	for listening, want := range map[string]string{
		"127.0.0.1:8080": "http://127.0.0.1:8080/demo/push/",
		"0.0.0.0:8080":   "http://127.0.0.1:8080/demo/push/",
		"[::]:8080":      "http://[::1]:8080/demo/push/",
		"10.1.2.3:80":    "http://10.1.2.3:80/demo/push/",
	} {
		addr, err := net.ResolveTCPAddr("tcp", listening)
		if err != nil {
			t.Fatal(err)
		}
		if got := PushEndpoint(addr); got != want {
			t.Errorf("at %s: %s, want %s", listening, got, want)
		}
	}
}
