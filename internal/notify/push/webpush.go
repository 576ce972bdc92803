package push

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/badged/badged/internal/notify/push/webpush"
)

// webPush sends pushes to browsers (Web Push) and to distributors of UnifiedPush. Web Push and
// UnifiedPush use the same protocol: RFC 8030, RFC 8291 and RFC 8292.
type webPush struct {
	client *http.Client
	vapid  *vapid
}

// subscription is a PushSubscription as a browser's toJSON returns it.
type subscription struct {
	Endpoint string `json:"endpoint"`
	// ExpirationTime is ignored: all browsers set it to null, and the answer of a push service
	// shows if a subscription has expired.
	ExpirationTime json.RawMessage  `json:"expirationTime,omitempty"`
	Keys           subscriptionKeys `json:"keys"`
}

type subscriptionKeys struct {
	P256DH string `json:"p256dh"`
	Auth   string `json:"auth"`
}

const (
	maxEndpoint = 2048
	// maxSubscription is the maximum length of a subscription as JSON. It leaves room for the
	// keys, and for JSON escapes in the endpoint.
	maxSubscription = 2 * maxEndpoint
)

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

// address returns the endpoint with a normalized origin, so that the result is the same for all
// spellings of the host.
func (s *subscription) address() string {
	u, err := url.Parse(s.Endpoint)
	if err != nil || u.Host == "" {
		return s.Endpoint
	}
	_, rest, _ := strings.Cut(s.Endpoint, "//")
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		return originOf(u) + rest[end:]
	}
	return originOf(u)
}

// originOf returns the origin of a URL in the form of RFC 6454, which VAPID requires: the host is
// in lower case, and the default port of the scheme is omitted.
func originOf(u *url.URL) string { return u.Scheme + "://" + hostOf(u) }

// hostOf returns the host and port of a URL in the form of originOf.
func hostOf(u *url.URL) string {
	host, port := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), u.Port()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port == "" || u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80" {
		return host
	}
	return host + ":" + port
}

// decodeKey decodes base64 in the standard or the URL alphabet, with or without padding.
func decodeKey(text string) ([]byte, error) {
	text = strings.NewReplacer("+", "-", "/", "_").Replace(strings.TrimRight(text, "="))
	return base64.RawURLEncoding.DecodeString(text)
}

// route returns the host and port of the push service, because each service has its own limits.
func (w *webPush) route(p *Push) string {
	var s subscription
	if json.Unmarshal(p.Token, &s) != nil {
		return ""
	}
	u, err := url.Parse(s.Endpoint)
	if err != nil {
		return ""
	}
	return hostOf(u)
}

// recordSizes are the possible lengths of encrypted pushes. A push is padded to the next greater
// length, which hides the length of the text. All services accept 4096 bytes; the smaller lengths
// save traffic for silent pushes.
var recordSizes = []int{512, 1024, 2048, 3072, 4096}

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
	urgency := "normal"
	if p.Alert != nil {
		body.Title, body.Body, urgency = p.Alert.Title, p.Alert.Body, "high"
	}
	text, err := encode(body)
	if err != nil {
		return failed(err)
	}
	req, err := w.request(ctx, &s, text)
	if errors.Is(err, webpush.ErrTooLarge) {
		return Outcome{Verdict: TooLarge, Reason: "PayloadTooLarge"}
	}
	if err != nil {
		return Outcome{Verdict: Rejected, Reason: "the subscription cannot be used"}
	}
	req.Header.Set("TTL", strconv.Itoa(int(lifetime/time.Second)))
	req.Header.Set("Topic", p.collapse())
	req.Header.Set("Urgency", urgency)
	res, err := w.client.Do(req)
	if err != nil {
		return failed(err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxPayload)) // so that the connection can be reused
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

// request encrypts a text for a subscription, and returns the request that sends it.
func (w *webPush) request(ctx context.Context, to *subscription, text []byte) (*http.Request, error) {
	point, err := decodeKey(to.Keys.P256DH)
	if err != nil {
		return nil, err
	}
	key, err := ecdh.P256().NewPublicKey(point)
	if err != nil {
		return nil, err
	}
	auth, err := decodeKey(to.Keys.Auth)
	if err != nil {
		return nil, err
	}
	size := 0
	for _, size = range recordSizes {
		if len(text)+webpush.Overhead <= size {
			break
		}
	}
	body, err := webpush.Encrypt(text, key, auth, size)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.Endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	authorization, err := w.vapid.header(originOf(req.URL))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", authorization)
	req.Header.Set("Content-Type", "application/octet-stream")
	req.Header.Set("Content-Encoding", "aes128gcm")
	return req, nil
}
