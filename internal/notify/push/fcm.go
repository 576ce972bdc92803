package push

import (
	"bytes"
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	fcmServer = "https://fcm.googleapis.com"
	fcmScope  = "https://www.googleapis.com/auth/firebase.messaging"
	// quotaPause is the minimum wait that Google requires after the error QUOTA_EXCEEDED.
	quotaPause = time.Minute
)

// fcm sends pushes to the devices of an Android app through FCM's HTTP v1 API:
// https://firebase.google.com/docs/reference/fcm/rest/v1/projects.messages
type fcm struct {
	client *http.Client
	server string
	token  *accessToken
}

func (f *fcm) route(*Push) string { return "" }

type fcmMessage struct {
	Token   string            `json:"token"`
	Data    map[string]string `json:"data"`
	Android fcmAndroid        `json:"android"`
}

type fcmAndroid struct {
	Priority     string           `json:"priority"`
	TTL          string           `json:"ttl"`
	CollapseKey  string           `json:"collapse_key,omitempty"`
	Notification *fcmNotification `json:"notification,omitempty"`
}

type fcmNotification struct {
	Title string `json:"title,omitempty"`
	Body  string `json:"body,omitempty"`
	// Tag makes a repeated push replace its notification instead of adding a second one.
	Tag string `json:"tag"`
	// Count is the number on the icon, if the launcher shows numbers.
	Count int64 `json:"notification_count"`
}

// fcmCollapse is the collapse key of silent pushes. FCM stores at most four keys per device.
const fcmCollapse = "badged"

// send sends a push. If FCM refuses the access token, send fetches a new token and sends the push
// once more.
func (f *fcm) send(ctx context.Context, p *Push) Outcome {
	body, err := fcmBody(p)
	if err != nil {
		return failed(err)
	}
	if len(body) > maxPayload+len(p.Token) {
		return Outcome{Verdict: TooLarge, Reason: "PayloadTooLarge"}
	}
	outcome, expired := f.try(ctx, body)
	if expired {
		outcome, _ = f.try(ctx, body)
	}
	return outcome
}

func fcmBody(p *Push) ([]byte, error) {
	inner, err := encode(p.content())
	if err != nil {
		return nil, err
	}
	m := fcmMessage{
		Token: string(p.Token),
		Data:  map[string]string{"badged": string(inner)},
		Android: fcmAndroid{
			Priority: "NORMAL", CollapseKey: fcmCollapse,
			TTL: strconv.Itoa(int(lifetime/time.Second)) + "s",
		},
	}
	if len(p.Retract) > 0 {
		m.Android.CollapseKey = "" // a newer number must not replace the retraction
	}
	if p.Alert != nil {
		m.Android.Priority, m.Android.CollapseKey = "HIGH", ""
		m.Android.Notification = &fcmNotification{p.Alert.Title, p.Alert.Body, p.collapse(), p.Number}
	}
	return encode(struct {
		Message fcmMessage `json:"message"`
	}{m})
}

// try sends a message once. expired is true if FCM refused the access token.
func (f *fcm) try(ctx context.Context, body []byte) (_ Outcome, expired bool) {
	token, err := f.token.get(ctx)
	var refused *tokenError
	switch {
	case errors.As(err, &refused):
		return refused.outcome, false
	case err != nil:
		return failed(err), false
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.server+"/v1/projects/"+f.token.account.ProjectID+"/messages:send", bytes.NewReader(body))
	if err != nil {
		return failed(err), false
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := f.client.Do(req)
	if err != nil {
		return failed(err), false
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK {
		_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxPayload)) // so that the connection can be reused
		return Outcome{Verdict: Sent}, false
	}
	return f.failure(res, token)
}

// failure returns the outcome of a message that FCM did not accept. token is the access token of
// the request. expired is true if FCM refused this token; failure then removes it from the cache.
func (f *fcm) failure(res *http.Response, token string) (_ Outcome, expired bool) {
	var answer struct {
		Error struct {
			Status  string `json:"status"`
			Details []struct {
				Type string `json:"@type"`
				Code string `json:"errorCode"`
			} `json:"details"`
		} `json:"error"`
	}
	text, _ := io.ReadAll(io.LimitReader(res.Body, 16<<10))
	_ = json.Unmarshal(text, &answer) // if the answer has no code, the status decides
	word := answer.Error.Status
	for _, d := range answer.Error.Details {
		if strings.HasSuffix(d.Type, "FcmError") && d.Code != "" {
			word = d.Code
		}
	}
	reason := reasonOf(res.StatusCode, word)
	switch {
	case reason == "UNREGISTERED":
		return Outcome{Verdict: Gone, Reason: reason}, false
	case reason == "INVALID_ARGUMENT", reason == "SENDER_ID_MISMATCH", reason == "THIRD_PARTY_AUTH_ERROR":
		return Outcome{Verdict: Rejected, Reason: reason}, false
	case res.StatusCode == http.StatusUnauthorized:
		f.token.drop(token)
		return fault(reason), true
	case res.StatusCode == http.StatusTooManyRequests:
		wait := busy(res, reason)
		wait.After = max(wait.After, quotaPause)
		return wait, false
	case res.StatusCode >= 500:
		return busy(res, reason), false
	case isRedirect(res.StatusCode), res.StatusCode == http.StatusForbidden, res.StatusCode == http.StatusNotFound:
		return fault(reason), false
	}
	return Outcome{Verdict: Rejected, Reason: reason}, false
}

// serviceAccount has the fields of Google's key file that are needed to send messages.
type serviceAccount struct {
	Type         string `json:"type"`
	ProjectID    string `json:"project_id"`
	PrivateKeyID string `json:"private_key_id"`
	PrivateKey   string `json:"private_key"`
	ClientEmail  string `json:"client_email"`
	TokenURI     string `json:"token_uri"`
}

// accessToken is the token that authenticates the sender to FCM.
type accessToken struct {
	client  *http.Client
	account serviceAccount
	key     *rsa.PrivateKey
	now     func() time.Time

	// fetching contains a value while a goroutine fetches a token. Other goroutines that need a
	// token wait, so that one request serves all of them.
	fetching chan struct{}
	mu       sync.Mutex
	token    string
	renew    time.Time
}

// tokenError means that Google did not grant an access token.
type tokenError struct{ outcome Outcome }

func (e *tokenError) Error() string { return e.outcome.Reason }

// renewEarly is how long before its expiry a token is renewed, unless the lifetime of the token
// is too short for this.
const renewEarly = 5 * time.Minute

func (t *accessToken) cached() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now().Before(t.renew) {
		return t.token
	}
	return ""
}

// drop removes a token that FCM has refused from the cache.
func (t *accessToken) drop(token string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token == token {
		t.token, t.renew = "", time.Time{}
	}
}

// get returns the cached token. If no token is cached, or if the cached token expires soon, get
// fetches a new token.
func (t *accessToken) get(ctx context.Context) (string, error) {
	if token := t.cached(); token != "" {
		return token, nil
	}
	select {
	case t.fetching <- struct{}{}:
		defer func() { <-t.fetching }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if token := t.cached(); token != "" { // another goroutine has fetched a token meanwhile
		return token, nil
	}
	token, lasts, err := t.fetch(ctx)
	if err != nil {
		return "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// If a fifth of the lifetime is longer than the lifetime minus renewEarly, use the token for
	// a fifth of its lifetime.
	t.token, t.renew = token, t.now().Add(max(lasts-renewEarly, lasts/5))
	return token, nil
}

// fetch requests a token from Google, as a service account does:
// https://developers.google.com/identity/protocols/oauth2/service-account
func (t *accessToken) fetch(ctx context.Context) (string, time.Duration, error) {
	issued := t.now().Add(-signedEarly)
	assertion := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{
		"iss": t.account.ClientEmail, "scope": fcmScope, "aud": t.account.TokenURI,
		"iat": issued.Unix(), "exp": issued.Add(time.Hour).Unix(),
	})
	assertion.Header["kid"] = t.account.PrivateKeyID
	signed, err := assertion.SignedString(t.key)
	if err != nil {
		return "", 0, &tokenError{fault("the assertion cannot be signed")}
	}
	form := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {signed}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.account.TokenURI, strings.NewReader(form.Encode()))
	if err != nil {
		return "", 0, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := t.client.Do(req)
	if err != nil {
		return "", 0, err
	}
	defer res.Body.Close()
	var answer struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int    `json:"expires_in"`
		Error       string `json:"error"`
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err != nil {
		return "", 0, err
	}
	err = json.Unmarshal(text, &answer)
	switch {
	case res.StatusCode == http.StatusTooManyRequests, res.StatusCode >= 500:
		return "", 0, &tokenError{busy(res, fmt.Sprintf("token: HTTP %d", res.StatusCode))}
	case res.StatusCode != http.StatusOK:
		return "", 0, &tokenError{fault("token: " + reasonOf(res.StatusCode, answer.Error))}
	case err != nil, answer.AccessToken == "", answer.ExpiresIn <= 0:
		return "", 0, &tokenError{fault("token: the answer has no token")}
	}
	return answer.AccessToken, time.Duration(answer.ExpiresIn) * time.Second, nil
}
