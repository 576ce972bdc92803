package vendors

import (
	"crypto/ecdsa"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// The account at the fake APNs.
const (
	apnsTopic  = "com.example.chat"
	apnsKeyID  = "ABC123DEFG"
	apnsTeamID = "DEF123GHIJ"
)

// APNs is a fake of Apple's vendor.
type APNs struct {
	Vendor
	key     *ecdsa.PrivateKey
	keyFile string

	tokens sync.Mutex
	// Now is the clock that decides whether provider tokens have expired. It may be set before the
	// first push.
	Now func() time.Time
	// newest is the newest provider token, issued the time when it was made. expire is true if the
	// vendor must refuse it as expired.
	newest string
	issued time.Time
	expire bool
}

// NewAPNs starts a fake that ends with the test.
func NewAPNs(t testing.TB) *APNs {
	a := &APNs{Now: time.Now}
	a.start(t, a)
	a.key, a.keyFile = a.newECKey(t, "AuthKey_"+apnsKeyID+".p8")
	return a
}

// Entry returns the configuration of an app that uses this vendor.
func (a *APNs) Entry() map[string]any {
	return map[string]any{
		"platform": "apns", "topic": apnsTopic, "key_file": a.keyFile, "key_id": apnsKeyID, "team_id": apnsTeamID,
		"url": a.URL, "ca_file": a.CAFile,
	}
}

// Expire makes the vendor answer that the current provider token has expired.
func (a *APNs) Expire() {
	a.tokens.Lock()
	defer a.tokens.Unlock()
	a.expire = true
}

func apnsFail(w http.ResponseWriter, status int, reason string) {
	writeJSON(w, status, map[string]any{"reason": reason})
}

var apnsPath = regexp.MustCompile(`^/3/device/([0-9a-f]+)$`)

// ServeHTTP implements http.Handler.
func (a *APNs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 2 {
		a.violate("HTTP/%d", r.ProtoMajor)
		return
	}
	path := apnsPath.FindStringSubmatch(r.URL.Path)
	if r.Method != http.MethodPost || path == nil {
		a.violate("%s %s", r.Method, r.URL.Path)
		apnsFail(w, http.StatusNotFound, "BadPath")
		return
	}
	if status, reason := a.checkToken(r.Header.Get("Authorization")); reason != "" {
		apnsFail(w, status, reason)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if len(body) > 4096 {
		a.violate("a payload of %d bytes", len(body))
		apnsFail(w, http.StatusRequestEntityTooLarge, "PayloadTooLarge")
		return
	}
	p := Push{Token: path[1], Collapse: r.Header.Get("Apns-Collapse-Id"), Header: r.Header}
	if reason := a.read(&p, body); reason != "" {
		a.violate("%s: %v %s", reason, r.Header, body)
		apnsFail(w, http.StatusBadRequest, reason)
		return
	}
	a.accept(w, r, p, func() { w.WriteHeader(http.StatusOK) }, func(f Fault) {
		answer := map[string]any{"reason": f.Reason}
		if !f.Timestamp.IsZero() {
			answer["timestamp"] = f.Timestamp.UnixMilli()
		}
		writeJSON(w, f.Status, answer)
	})
}

// checkToken checks the provider token of a request, and that tokens do not change too often.
func (a *APNs) checkToken(header string) (status int, reason string) {
	text, ok := strings.CutPrefix(header, "bearer ")
	if !ok {
		return http.StatusForbidden, "MissingProviderToken"
	}
	issued, reason := a.verify(text)
	if reason != "" {
		return http.StatusForbidden, reason
	}
	a.tokens.Lock()
	defer a.tokens.Unlock()
	if text != a.newest {
		if issued.Sub(a.issued) < 20*time.Minute && a.newest != "" {
			a.violate("provider tokens %s apart", issued.Sub(a.issued))
			return http.StatusTooManyRequests, "TooManyProviderTokenUpdates"
		}
		a.newest, a.issued, a.expire = text, issued, false
		a.mu.Lock()
		a.credentials++
		a.mu.Unlock()
	}
	if a.expire || a.Now().Sub(issued) > time.Hour {
		return http.StatusForbidden, "ExpiredProviderToken"
	}
	return 0, ""
}

// verify verifies the signature of a provider token. It returns the time when the token was issued.
func (a *APNs) verify(text string) (issued time.Time, reason string) {
	token, err := jwt.Parse(text, func(token *jwt.Token) (any, error) { return &a.key.PublicKey, nil },
		jwt.WithValidMethods([]string{"ES256"}), jwt.WithIssuer(apnsTeamID), jwt.WithTimeFunc(a.Now), jwt.WithIssuedAt())
	if err != nil || token.Header["kid"] != apnsKeyID {
		a.violate("provider token: %v, header %v", err, token.Header)
		return issued, "InvalidProviderToken"
	}
	claimed, err := token.Claims.GetIssuedAt()
	if err != nil || claimed == nil {
		a.violate("a provider token without iat")
		return issued, "InvalidProviderToken"
	}
	return claimed.Time, ""
}

// read checks the headers and the payload by the rules of APNs and of Apple's documentation. It
// returns the reason to refuse them, "" if there is none.
func (a *APNs) read(p *Push, body []byte) (reason string) {
	h := p.Header
	var payload struct {
		APS    map[string]json.RawMessage `json:"aps"`
		Badged Content                    `json:"badged"`
	}
	if json.Unmarshal(body, &payload) != nil || payload.APS == nil {
		return "PayloadEmpty"
	}
	p.Badged = payload.Badged
	priority, kind := h.Get("Apns-Priority"), h.Get("Apns-Push-Type")
	_, hasAlert := payload.APS["alert"]
	expires, err := strconv.ParseInt(h.Get("Apns-Expiration"), 10, 64)
	until := time.Until(time.Unix(expires, 0))
	switch {
	case h.Get("Apns-Topic") != apnsTopic:
		return "BadTopic"
	case len(p.Collapse) == 0 || len(p.Collapse) > 64:
		return "BadCollapseId"
	case err != nil, until <= 0, until > 30*24*time.Hour:
		return "BadExpirationDate"
	case kind == "background":
		if priority != "5" {
			return "BadPriority"
		}
		if len(payload.APS) != 1 || string(payload.APS["content-available"]) != "1" {
			return "InvalidPushType"
		}
		return ""
	case kind != "alert":
		return "InvalidPushType"
	case hasAlert && priority != "10", !hasAlert && priority != "5":
		return "BadPriority"
	}
	if string(payload.APS["badge"]) != strconv.FormatInt(p.Badged.Number, 10) {
		return "the icon would not show the number"
	}
	if hasAlert {
		var text struct{ Title, Body string }
		if json.Unmarshal(payload.APS["alert"], &text) != nil {
			return "PayloadEmpty"
		}
		p.Alert, p.Title, p.Body = true, text.Title, text.Body
	}
	return ""
}
