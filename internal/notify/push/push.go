// Package push sends the numbers of badges, and notifications, to devices whose apps are closed.
// It reads the devices that are due from a queue, and sends pushes through APNs, FCM, Web Push
// and UnifiedPush.
//
// The package does not know the log or tables: package outbound determines which devices are due.
// ADR 66 has the reasons.
package push

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/badged/badged/internal/notify/egress"
	"github.com/badged/badged/internal/notify/outbound"
)

// Platform is a vendor or protocol that delivers pushes to devices.
type Platform string

// The platforms.
const (
	APNs        Platform = "apns"
	FCM         Platform = "fcm"
	WebPush     Platform = "webpush"
	UnifiedPush Platform = "unifiedpush"
)

// Push is one message to one device: the number to show, with or without a notification.
type Push struct {
	UserID, DeviceID string
	// App names an entry of the configuration.
	App string
	// Environment is "production" or, for APNs only, "sandbox".
	Environment string
	// Token is the device token of APNs or FCM, or a subscription as JSON. It is a secret.
	Token []byte
	// Epoch and Version are the epoch and version of the badge: see pubsub.Badge. With them an
	// app recognizes and ignores older numbers.
	Epoch   string
	Version int64
	// Number is the number to show on the icon.
	Number int64
	// Alert is the notification. It is nil for a silent push.
	Alert *outbound.Alert
	// Retract names the alerts that the device must remove because their messages were read or
	// recalled. It is only sent with silent pushes.
	Retract []outbound.AlertName
}

// Verdict is the result of a push.
type Verdict string

// The verdicts.
const (
	// Sent: the vendor accepted the push.
	Sent Verdict = "sent"
	// Gone: the vendor does not know the device any more.
	Gone Verdict = "gone"
	// Failed: a retry may succeed.
	Failed Verdict = "failed"
	// Rejected: the vendor refuses pushes to this device, until the device is registered again
	// or the configuration changes.
	Rejected Verdict = "rejected"
	// TooLarge: the push is too large because of its notification. A push with only the number is
	// small enough.
	TooLarge Verdict = "too_large"
)

// Outcome is the result of a push.
type Outcome struct {
	Verdict Verdict
	// Reason is the vendor's code for a failure. It contains no secrets.
	Reason string
	// After is the wait that the vendor requires before the next push, 0 if it requires none.
	After time.Duration
	// Pause is true if After applies to all pushes of the route (the vendor's server), and not only
	// to this device.
	Pause bool
	// Unreachable is true if the vendor did not answer.
	Unreachable bool
	// Err is the reason why there was no answer. Show it only to operators: users choose the
	// endpoints of subscriptions, so they could use the text of Err to explore the server's
	// network.
	Err error
	// Since is the time at which the vendor found that the device was gone. It is zero if the
	// vendor does not return this time.
	Since time.Time
}

// lifetime is how long vendors store a push for a device that is off. It is the longest time that
// all vendors accept. If a device is off for longer, it shows an old number when it is on again.
const lifetime = 28 * 24 * time.Hour

// maxPayload is the maximum size of a payload that APNs and FCM accept, in bytes.
const maxPayload = 4096

// content is the part of a push that the app reads. Its key in the payload is "badged".
type content struct {
	Epoch          string            `json:"epoch"`
	Version        int64             `json:"version"`
	Number         int64             `json:"number"`
	ConversationID string            `json:"conversation_id,omitempty"`
	Seq            int64             `json:"seq,omitempty"`
	Data           map[string]string `json:"data,omitempty"`
	Retract        []retraction      `json:"retract,omitempty"`
}

// retraction names an alert that the app must remove. Tag is the alert's identifier on iOS and
// its tag on Android.
type retraction struct {
	ConversationID string `json:"conversation_id"`
	Seq            int64  `json:"seq"`
	Tag            string `json:"tag"`
}

func (p *Push) content() content {
	c := content{Epoch: p.Epoch, Version: p.Version, Number: p.Number}
	if p.Alert != nil {
		c.ConversationID, c.Seq, c.Data = p.Alert.ConversationID, p.Alert.Seq, p.Alert.Data
		return c
	}
	for _, a := range p.Retract {
		shown := Push{UserID: p.UserID, Alert: &outbound.Alert{ConversationID: a.ConversationID, Seq: a.Seq}}
		c.Retract = append(c.Retract, retraction{a.ConversationID, a.Seq, shown.collapse()})
	}
	return c
}

// collapse returns the collapse key of a push: the vendor replaces a stored push by a new push with
// the same key. A user's silent pushes share one key, because only the newest number matters. Each
// alert has its own key, so that a repeated push is not shown twice. A push that retracts alerts
// also has its own key, because a push with a newer number must not replace it. Keys have 32
// characters, the maximum that all vendors accept.
func (p *Push) collapse() string {
	name := p.UserID
	if p.Alert != nil {
		name += "\x00" + p.Alert.ConversationID + "\x00" + strconv.FormatInt(p.Alert.Seq, 10)
	}
	for _, a := range p.Retract {
		name += "\x00retract\x00" + a.ConversationID + "\x00" + strconv.FormatInt(a.Seq, 10)
	}
	sum := sha256.Sum256([]byte(name))
	return base64.RawURLEncoding.EncodeToString(sum[:24])
}

// encode returns v as JSON. It does not escape characters such as "<" for HTML, because each escape
// takes six bytes of the limited payload.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// failed returns the outcome of a push that got no answer. It removes the URL from a *url.Error,
// because the URL contains a token.
func failed(err error) Outcome {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return Outcome{Verdict: Failed, Reason: "Unreachable", Unreachable: true, Err: err}
}

// faultPause is how long a route (a vendor's server) gets no pushes after the vendor has refused a
// push because of the app's settings.
const faultPause = 5 * time.Minute

// fault returns the outcome of a push that the vendor refused because of the app's settings.
func fault(reason string) Outcome {
	return Outcome{Verdict: Failed, Reason: reason, After: faultPause, Pause: true}
}

// isRedirect reports whether a status is a redirect. Vendors do not redirect, so such an answer
// comes from another system between this server and the vendor.
func isRedirect(status int) bool { return status >= 300 && status < 400 }

// busy returns the outcome of a push that the vendor may accept later. If the answer has a
// Retry-After header, all pushes of the route pause for this time.
func busy(res *http.Response, reason string) Outcome {
	after := egress.RetryAfter(res.Header, time.Now(), maxRetryAfter)
	return Outcome{Verdict: Failed, Reason: reason, After: after, Pause: after > 0}
}

// maxRetryAfter limits the wait that a vendor can require.
const maxRetryAfter = time.Hour

var reasonPattern = regexp.MustCompile(`^[A-Za-z_]{1,64}$`)

// reasonOf returns `word`, the vendor's code for a failure. If `word` does not have the form of a
// code, reasonOf returns the HTTP status instead, because any other text may contain a token.
func reasonOf(status int, word string) string {
	if reasonPattern.MatchString(word) {
		return word
	}
	return fmt.Sprintf("HTTP %d", status)
}

// CheckToken returns what is wrong with the token of a device, or "". For Web Push and
// UnifiedPush the token is a subscription as JSON.
func (p Platform) CheckToken(token []byte) string {
	switch p {
	case APNs:
		if !apnsToken.Match(token) {
			return "must have 8 to 200 hexadecimal digits"
		}
	case FCM:
		if len(token) < 8 || len(token) > 4096 || !fcmToken.Match(token) {
			return "must have 8 to 4096 letters, digits, colons, dashes and underscores"
		}
	case WebPush, UnifiedPush:
		var s subscription
		if len(token) > maxSubscription {
			return fmt.Sprintf("must have at most %d bytes", maxSubscription)
		}
		if strict(token, &s) != nil {
			return "must be an object with endpoint and keys, as a browser's toJSON gives it"
		}
		return s.check()
	default:
		return "is of an unknown platform"
	}
	return ""
}

// AddressOf returns a normalized form of a token: it is the same for all spellings of the token.
// For a subscription it is the endpoint. Call AddressOf only with tokens that CheckToken accepts.
func (p Platform) AddressOf(token []byte) string {
	switch p {
	case APNs:
		return strings.ToLower(string(token))
	case WebPush, UnifiedPush:
		var s subscription
		if json.Unmarshal(token, &s) == nil {
			return s.address()
		}
	case FCM:
	}
	return string(token)
}

var (
	apnsToken = regexp.MustCompile(`^([0-9a-fA-F]{2}){4,100}$`)
	fcmToken  = regexp.MustCompile(`^[A-Za-z0-9:_-]+$`)
)

// strict decodes a JSON object. It rejects unknown and repeated fields. Names of fields are
// case-sensitive. Its errors name the fields of the object.
func strict(text []byte, v any) error {
	return decode(text, v, jsonv2.RejectUnknownMembers(true))
}

// decode decodes JSON with options. It replaces the errors of the JSON package by errors that
// operators and authors of apps understand.
func decode(text []byte, v any, options ...jsonv2.Options) error {
	err := jsonv2.Unmarshal(text, v, options...)
	wrong, ok := errors.AsType[*jsonv2.SemanticError](err)
	if !ok {
		return err // an error of syntax
	}
	kind, field := kinds[wrong.JSONKind], wrong.JSONPointer.LastToken()
	switch {
	case errors.Is(wrong, jsonv2.ErrUnknownName):
		return fmt.Errorf("unknown field %q", field)
	case field == "":
		return errors.New("must be a JSON object, is " + kind)
	}
	return fmt.Errorf("%s: must not be %s", field, kind)
}

// kinds are the names of JSON values in errors.
var kinds = map[jsontext.Kind]string{
	jsontext.KindNull: "null", jsontext.KindFalse: "false", jsontext.KindTrue: "true", jsontext.KindString: "a string",
	jsontext.KindNumber: "a number", jsontext.KindBeginObject: "an object", jsontext.KindBeginArray: "a list",
}
