package vendors

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// The account at the fake FCM.
const (
	fcmProject = "example-chat"
	fcmEmail   = "badged@example-chat.iam.gserviceaccount.com"
	fcmKeyID   = "0123456789abcdef"
)

// FCM is a fake of Google's vendor.
type FCM struct {
	Vendor
	key         *rsa.PrivateKey
	accountFile string
	// Lifetime is the lifetime of access tokens. It may be set before the first push.
	Lifetime time.Duration

	tokens sync.Mutex
	token  string
	// tokenFault decides how requests for access tokens are answered; nil grants a token.
	tokenFault func() *Fault
}

// NewFCM starts a fake that ends with the test.
func NewFCM(t testing.TB) *FCM {
	f := &FCM{Lifetime: time.Hour}
	var err error
	if f.key, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		t.Fatal(err)
	}
	f.start(t, f)
	account, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": fcmProject, "private_key_id": fcmKeyID,
		"private_key": string(pemKey(t, f.key)), "client_email": fcmEmail, "token_uri": f.URL + "/token",
		"universe_domain": "googleapis.com",
	})
	if err != nil {
		t.Fatal(err)
	}
	f.accountFile = f.write(t, "service-account.json", account)
	return f
}

// Entry returns the configuration of an app that uses this vendor.
func (f *FCM) Entry() map[string]any {
	return map[string]any{"platform": "fcm", "service_account_file": f.accountFile, "url": f.URL, "ca_file": f.CAFile}
}

// ScriptTokens sets a function that decides how requests for access tokens are answered.
func (f *FCM) ScriptTokens(answer func() *Fault) {
	f.tokens.Lock()
	defer f.tokens.Unlock()
	f.tokenFault = answer
}

// Revoke makes the vendor refuse the current access token.
func (f *FCM) Revoke() {
	f.tokens.Lock()
	defer f.tokens.Unlock()
	f.token = ""
}

// fcmFail answers with an error in the JSON format of FCM.
func fcmFail(w http.ResponseWriter, status int, canonical, code string) {
	details := []any{}
	if code != "" {
		details = append(details, map[string]string{"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": code})
	}
	writeJSON(w, status, map[string]any{"error": map[string]any{"code": status, "message": "made up", "status": canonical, "details": details}})
}

// ServeHTTP implements http.Handler.
func (f *FCM) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/token":
		f.grant(w, r)
	case "/v1/projects/" + fcmProject + "/messages:send":
		f.send(w, r)
	default:
		f.violate("%s %s", r.Method, r.URL.Path)
		fcmFail(w, http.StatusNotFound, "NOT_FOUND", "")
	}
}

// grant checks the assertion of a service account, and answers with an access token.
func (f *FCM) grant(w http.ResponseWriter, r *http.Request) {
	f.tokens.Lock()
	defer f.tokens.Unlock()
	if f.tokenFault != nil {
		if fault := f.tokenFault(); fault != nil {
			for name, values := range fault.Header {
				w.Header()[name] = values
			}
			writeJSON(w, fault.Status, map[string]string{"error": fault.Reason})
			return
		}
	}
	claims := jwt.MapClaims{}
	token, err := jwt.ParseWithClaims(r.FormValue("assertion"), claims, func(*jwt.Token) (any, error) { return &f.key.PublicKey, nil },
		jwt.WithValidMethods([]string{"RS256"}), jwt.WithIssuer(fcmEmail), jwt.WithAudience(f.URL+"/token"), jwt.WithIssuedAt(), jwt.WithExpirationRequired())
	if err != nil || token.Header["kid"] != fcmKeyID || r.FormValue("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" ||
		claims["scope"] != "https://www.googleapis.com/auth/firebase.messaging" || claims["exp"].(float64)-claims["iat"].(float64) > 3600 {
		f.violate("assertion: %v, claims %v", err, claims)
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	f.mu.Lock()
	f.credentials++
	f.token = fmt.Sprintf("ya29.%d", f.credentials)
	f.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]any{"access_token": f.token, "expires_in": int(f.Lifetime / time.Second), "token_type": "Bearer"})
}

type fcmMessage struct {
	Token   string            `json:"token"`
	Data    map[string]string `json:"data"`
	Android struct {
		Priority     string `json:"priority"`
		TTL          string `json:"ttl"`
		CollapseKey  string `json:"collapse_key"`
		Notification *struct {
			Title string `json:"title"`
			Body  string `json:"body"`
			Tag   string `json:"tag"`
			Count *int64 `json:"notification_count"`
		} `json:"notification"`
	} `json:"android"`
}

func (f *FCM) send(w http.ResponseWriter, r *http.Request) {
	f.tokens.Lock()
	token := f.token
	f.tokens.Unlock()
	if token == "" || r.Header.Get("Authorization") != "Bearer "+token {
		fcmFail(w, http.StatusUnauthorized, "UNAUTHENTICATED", "")
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var m struct {
		Message fcmMessage `json:"message"`
	}
	dec := json.NewDecoder(strings.NewReader(string(body)))
	dec.DisallowUnknownFields()
	p := Push{Header: r.Header}
	if err := dec.Decode(&m); err != nil {
		f.violate("%v: %s", err, body)
		fcmFail(w, http.StatusBadRequest, "INVALID_ARGUMENT", "INVALID_ARGUMENT")
		return
	}
	if wrong := readFCM(&p, &m.Message); wrong != "" {
		f.violate("%s: %s", wrong, body)
		fcmFail(w, http.StatusBadRequest, "INVALID_ARGUMENT", "INVALID_ARGUMENT")
		return
	}
	f.accept(w, r, p, func() {
		writeJSON(w, http.StatusOK, map[string]string{"name": "projects/" + fcmProject + "/messages/1"})
	}, func(fault Fault) {
		canonical := map[string]string{"UNREGISTERED": "NOT_FOUND", "QUOTA_EXCEEDED": "RESOURCE_EXHAUSTED"}[fault.Reason]
		if canonical == "" {
			canonical = fault.Reason
		}
		fcmFail(w, fault.Status, canonical, fault.Reason)
	})
}

// readFCM checks a message by the rules of FCM. It returns what is wrong with the message, "" if
// nothing is.
func readFCM(p *Push, m *fcmMessage) string {
	p.Token, p.Collapse = m.Token, m.Android.CollapseKey
	ttl, err := time.ParseDuration(m.Android.TTL)
	size := 0
	for name, value := range m.Data {
		size += len(name) + len(value)
	}
	switch {
	case m.Token == "":
		return "no token"
	case err != nil, ttl <= 0, ttl > 28*24*time.Hour:
		return "ttl"
	case size > 4096:
		return "too large"
	case json.Unmarshal([]byte(m.Data["badged"]), &p.Badged) != nil:
		return "data.badged is not JSON"
	case m.Android.Notification == nil:
		if m.Android.Priority != "NORMAL" || (p.Collapse == "") != (len(p.Badged.Retract) > 0) {
			return "a silent push must not wake the device, and collapses unless it retracts alerts"
		}
	default:
		n := m.Android.Notification
		if m.Android.Priority != "HIGH" || n.Count == nil || *n.Count != p.Badged.Number || n.Tag == "" {
			return "an alert must show now, with its number"
		}
		p.Alert, p.Title, p.Body, p.Collapse = true, n.Title, n.Body, n.Tag
	}
	return ""
}
