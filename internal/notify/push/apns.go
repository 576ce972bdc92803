package push

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/tls"
	"encoding/asn1"
	"encoding/json"
	"io"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	apnsProduction = "https://api.push.apple.com"
	apnsSandbox    = "https://api.sandbox.push.apple.com"
)

// APNs refuses provider tokens that are older than an hour, so a new token is signed every
// providerTokenPeriod. APNs accepts at most one new token in providerTokenInterval for each key,
// even if several processes use the key.
const (
	providerTokenPeriod   = 30 * time.Minute
	providerTokenInterval = 20 * time.Minute
)

// apns sends pushes to the devices of an iOS app:
// https://developer.apple.com/documentation/usernotifications/sending-notification-requests-to-apns
type apns struct {
	client *http.Client
	// servers has the base URL of each environment.
	servers map[string]string
	topic   string
	now     func() time.Time
	// token is the provider token; nil if the sender authenticates with a certificate.
	token *providerToken
	// With background set, silent pushes do not set the number on the icon, but wake the app,
	// which can set it. zeroInBackground does this only for the number 0.
	background, zeroInBackground bool
}

// newAPNsTransport returns a transport with one connection to each server, as Apple's
// documentation requires. At first, Apple permits one HTTP/2 stream on the connection, and later
// a thousand; while all permitted streams are in use, pushes wait. The transport opens a new
// connection after GOAWAY, and detects a dead connection by pings.
func newAPNsTransport(config *tls.Config) http.RoundTripper {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	return newInTurn(&http.Transport{
		Proxy:           http.ProxyFromEnvironment,
		DialContext:     (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSClientConfig: config,
		Protocols:       protocols,
		HTTP2: &http.HTTP2Config{
			StrictMaxConcurrentRequests: true,
			SendPingTimeout:             30 * time.Second,
			PingTimeout:                 10 * time.Second,
		},
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     time.Hour,
	})
}

func (a *apns) route(p *Push) string { return p.Environment }

// aps is the part of the payload that iOS reads.
type aps struct {
	Alert            *apsAlert `json:"alert,omitempty"`
	Badge            *int64    `json:"badge,omitempty"`
	Sound            string    `json:"sound,omitempty"`
	ContentAvailable int       `json:"content-available,omitempty"`
	MutableContent   int       `json:"mutable-content,omitempty"`
}

type apsAlert struct {
	Title string `json:"title,omitempty"`
	Body  string `json:"body,omitempty"`
}

// send sends a push. If APNs refuses the provider token as expired, send renews the token and
// sends the push once more.
func (a *apns) send(ctx context.Context, p *Push) Outcome {
	outcome, expired := a.try(ctx, p)
	if expired {
		outcome, _ = a.try(ctx, p)
	}
	return outcome
}

// try sends a push once. expired is true if the provider token had expired and was renewed.
func (a *apns) try(ctx context.Context, p *Push) (_ Outcome, expired bool) {
	kind, priority := "alert", "5"
	payload := struct {
		APS    aps     `json:"aps"`
		Badged content `json:"badged"`
	}{aps{Badge: &p.Number}, p.content()}
	switch {
	case p.Alert != nil:
		priority = "10"
		payload.APS.Alert = &apsAlert{p.Alert.Title, p.Alert.Body}
		payload.APS.Sound, payload.APS.MutableContent = "default", 1
	case a.background || a.zeroInBackground && p.Number == 0:
		kind = "background" // for this kind Apple allows only content-available in aps
		payload.APS = aps{ContentAvailable: 1}
	case len(p.Retract) > 0:
		payload.APS.ContentAvailable = 1 // the push sets the icon, and wakes the app if iOS permits this
	}
	body, err := encode(payload)
	if err != nil {
		return failed(err), false
	}
	if len(body) > maxPayload {
		return Outcome{Verdict: TooLarge, Reason: "PayloadTooLarge"}, false
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.servers[p.Environment]+"/3/device/"+string(p.Token), bytes.NewReader(body))
	if err != nil {
		return failed(err), false
	}
	req.Header = http.Header{
		"Content-Type":     {"application/json"},
		"Apns-Topic":       {a.topic},
		"Apns-Push-Type":   {kind},
		"Apns-Priority":    {priority},
		"Apns-Expiration":  {strconv.FormatInt(a.now().Add(lifetime).Unix(), 10)},
		"Apns-Collapse-Id": {p.collapse()},
	}
	var signed string
	if a.token != nil {
		if signed, err = a.token.get(); err != nil {
			return fault("the provider token cannot be signed"), false
		}
		req.Header.Set("Authorization", "bearer "+signed)
	}
	res, err := a.client.Do(req)
	if err != nil {
		return failed(err), false
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK {
		return Outcome{Verdict: Sent}, false
	}
	return a.failure(res, signed)
}

// failure returns the outcome of a push that APNs did not accept. signed is the provider token of
// the push. expired is true if the token had expired and was renewed, so that the push can be sent
// again.
func (a *apns) failure(res *http.Response, signed string) (_ Outcome, expired bool) {
	var answer struct {
		Reason string `json:"reason"`
		// Timestamp is the time at which APNs found that the device token is not valid any more,
		// in milliseconds since 1970.
		Timestamp int64 `json:"timestamp"`
	}
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxPayload))
	_ = json.Unmarshal(text, &answer) // if the answer has no reason, the status decides
	reason := reasonOf(res.StatusCode, answer.Reason)
	switch {
	case res.StatusCode == http.StatusGone:
		gone := Outcome{Verdict: Gone, Reason: reason}
		if answer.Timestamp > 0 {
			gone.Since = time.UnixMilli(answer.Timestamp)
		}
		return gone, false
	case reason == "BadDeviceToken":
		return Outcome{Verdict: Gone, Reason: reason}, false
	case reason == "DeviceTokenNotForTopic":
		return Outcome{Verdict: Rejected, Reason: reason}, false
	case res.StatusCode == http.StatusRequestEntityTooLarge:
		return Outcome{Verdict: TooLarge, Reason: reason}, false
	case reason == "ExpiredProviderToken" && a.token != nil:
		wait, err := a.token.renew(signed)
		if err != nil {
			return fault("the provider token cannot be signed"), false
		}
		return Outcome{Verdict: Failed, Reason: reason, After: wait, Pause: wait > 0}, wait == 0
	case reason == "TooManyProviderTokenUpdates":
		return Outcome{Verdict: Failed, Reason: reason, After: providerTokenInterval, Pause: true}, false
	case res.StatusCode == http.StatusTooManyRequests, res.StatusCode >= 500:
		return busy(res, reason), false
	case isRedirect(res.StatusCode), res.StatusCode == http.StatusForbidden, res.StatusCode == http.StatusNotFound, strings.HasSuffix(reason, "Topic"), reason == "TopicDisallowed":
		return fault(reason), false
	}
	return Outcome{Verdict: Rejected, Reason: reason}, false
}

// providerToken is the token that authenticates the sender to APNs. APNs refuses senders that use
// many new tokens, so all processes with the same key must compute the same token, even after a
// restart. Therefore the time of issue is the last full or half hour, and the signature is
// deterministic.
type providerToken struct {
	key           *ecdsa.PrivateKey
	keyID, teamID string
	now           func() time.Time

	mu     sync.Mutex
	signed string
	issued time.Time
}

// get returns the token of the current half hour.
func (t *providerToken) get() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// If renew signed the present token less than providerTokenInterval before the start of this
	// half hour, the token stays in use until the half hour ends.
	if period := t.now().Add(-signedEarly).Truncate(providerTokenPeriod); t.signed == "" || period.Sub(t.issued) >= providerTokenInterval {
		return t.sign(period)
	}
	return t.signed, nil
}

// sign creates and stores a token. The caller holds mu.
func (t *providerToken) sign(issued time.Time) (string, error) {
	token := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{"iss": t.teamID, "iat": issued.Unix()})
	token.Header["kid"] = t.keyID
	text, err := token.SigningString()
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256([]byte(text))
	der, err := t.key.Sign(nil, digest[:], crypto.SHA256) // without a source of randomness the signature is deterministic, by RFC 6979
	if err != nil {
		return "", err
	}
	var signature struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(der, &signature); err != nil {
		return "", err
	}
	raw := make([]byte, 64) // the format of JWS
	signature.R.FillBytes(raw[:32])
	signature.S.FillBytes(raw[32:])
	t.signed, t.issued = text+"."+token.EncodeSegment(raw), issued
	return t.signed, nil
}

// renew replaces the token `signed`, which APNs has refused as expired. If it is too early for a
// new token, renew returns how long to wait instead.
func (t *providerToken) renew(signed string) (wait time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.signed != signed {
		return 0, nil // another push has renewed the token meanwhile
	}
	if wait := providerTokenInterval - t.now().Sub(t.issued); wait > 0 {
		return wait, nil
	}
	_, err = t.sign(t.now().Add(-signedEarly))
	return 0, err
}
