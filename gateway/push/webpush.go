package push

import (
	"context"
	"crypto/ecdh"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/SherClockHolmes/webpush-go"
)

// webPush sends to browsers, and to the distributors of UnifiedPush, which
// speak the same protocol: RFC 8030, 8291 and 8292.
type webPush struct {
	client                *http.Client
	subject               string
	publicKey, privateKey string
}

// subscription is a PushSubscription as a browser's toJSON gives it.
type subscription struct {
	Endpoint string `json:"endpoint"`
	// ExpirationTime is null in all browsers; answers decide.
	ExpirationTime json.RawMessage  `json:"expirationTime,omitempty"`
	Keys           subscriptionKeys `json:"keys"`
}

type subscriptionKeys struct {
	P256DH string `json:"p256dh"`
	Auth   string `json:"auth"`
}

const maxEndpoint = 2048

// check returns what is wrong with a subscription, or "".
func (s *subscription) check() string {
	u, err := url.Parse(s.Endpoint)
	if err != nil || len(s.Endpoint) > maxEndpoint || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return "endpoint must be an http or https URL of at most 2048 characters"
	}
	point, err := decodeKey(s.Keys.P256DH)
	if err == nil {
		_, err = ecdh.P256().NewPublicKey(point)
	}
	if err != nil {
		return "keys.p256dh must be a point of P-256 in base64"
	}
	if secret, err := decodeKey(s.Keys.Auth); err != nil || len(secret) != 16 {
		return "keys.auth must be 16 bytes in base64"
	}
	return ""
}

// decodeKey decodes base64 in the alphabets that clients use, with or without
// padding.
func decodeKey(text string) ([]byte, error) {
	text = strings.NewReplacer("+", "-", "/", "_").Replace(strings.TrimRight(text, "="))
	return base64.RawURLEncoding.DecodeString(text)
}

// route names the push service: each has its own limits.
func (w *webPush) route(p *Push) string {
	var s subscription
	if json.Unmarshal(p.Token, &s) != nil {
		return ""
	}
	u, err := url.Parse(s.Endpoint)
	if err != nil {
		return ""
	}
	return u.Host
}

// recordOverhead is what encryption adds: salt, sizes, key, delimiter and tag.
const recordOverhead = 16 + 4 + 1 + 65 + 1 + 16

// recordSizes are the lengths of encrypted pushes. Padding to few lengths hides
// that of the text; all services accept 4096 bytes, and the smaller ones save
// traffic of silent pushes.
var recordSizes = []uint32{512, 1024, 2048, 3072, 4096}

func (w *webPush) send(ctx context.Context, p *Push) Outcome {
	var s subscription
	if err := json.Unmarshal(p.Token, &s); err != nil {
		return Outcome{Verdict: Rejected, Reason: "the subscription is not JSON"}
	}
	body := struct {
		Badged content `json:"badged"`
		Title  string  `json:"title,omitempty"`
		Body   string  `json:"body,omitempty"`
	}{Badged: p.content()}
	urgency := webpush.UrgencyNormal
	if p.Alert != nil {
		body.Title, body.Body, urgency = p.Alert.Title, p.Alert.Body, webpush.UrgencyHigh
	}
	text, err := encode(body)
	if err != nil {
		return failed(err)
	}
	size := uint32(0)
	for _, size = range recordSizes {
		if len(text)+recordOverhead <= int(size) {
			break
		}
	}
	res, err := webpush.SendNotificationWithContext(ctx, text, &webpush.Subscription{
		Endpoint: s.Endpoint, Keys: webpush.Keys{Auth: s.Keys.Auth, P256dh: s.Keys.P256DH},
	}, &webpush.Options{
		HTTPClient: w.client, RecordSize: size,
		Subscriber: w.subject, VAPIDPublicKey: w.publicKey, VAPIDPrivateKey: w.privateKey,
		TTL: int(lifetime / time.Second), Topic: p.collapse(), Urgency: urgency,
	})
	if errors.Is(err, webpush.ErrMaxPadExceeded) {
		return Outcome{Verdict: TooLarge, Reason: "PayloadTooLarge"}
	}
	if err != nil {
		return failed(err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxPayload)) // so that the connection is used again
	reason := reasonOf(res.StatusCode, "")
	switch code := res.StatusCode; {
	case code >= 200 && code < 300:
		return Outcome{Verdict: Sent}
	case code == http.StatusNotFound, code == http.StatusGone:
		return Outcome{Verdict: Gone, Reason: reason}
	case code == http.StatusRequestEntityTooLarge:
		return Outcome{Verdict: TooLarge, Reason: reason}
	case code == http.StatusTooManyRequests, code >= 500:
		return busy(res, reason)
	}
	return Outcome{Verdict: Rejected, Reason: reason}
}
