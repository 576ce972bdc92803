package demo

import (
	"context"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/badged/badged/internal/notify/push/webpush"
)

// device is the device id under which the phone of each person is registered.
const device = "phone"

// phone is the state of a person's phone in the demo's push service.
type phone struct {
	UserID string `json:"user_id"`
	// Closed is true while the phone's app is closed. The icon of the app then shows the number of
	// the last push.
	Closed bool `json:"closed"`
	// Pushes is the number of pushes received since the demo began.
	Pushes int `json:"pushes"`
	// Pushed is the content of the push with the newest version; nil before the first push.
	Pushed *pushed `json:"pushed,omitempty"`

	key  *ecdh.PrivateKey
	auth []byte
}

// pushed is the part of a push that is meant for the app.
type pushed struct {
	Epoch   string `json:"epoch"`
	Version int64  `json:"version"`
	Number  int64  `json:"number"`
}

// phones is a push service together with its phones. Outside the demo, they are separate: a push
// service accepts encrypted pushes, and a browser or an Android phone decrypts them.
type phones struct {
	// endpoint is the URL, without the user id at its end, at which the service accepts pushes.
	endpoint string
	show     func(phone)

	mu  sync.Mutex
	all map[string]*phone
}

// newPhones makes the phones of all people. It derives their keys from a secret, so that
// subscriptions remain valid after a restart of the demo.
func newPhones(endpoint, secret string, show func(phone)) (*phones, error) {
	ps := &phones{endpoint: endpoint, show: show, all: map[string]*phone{}}
	for _, p := range people() {
		raw, err := hkdf.Key(sha256.New, []byte(secret), nil, "phone of "+p.UserID, 32)
		if err != nil {
			return nil, err
		}
		key, err := ecdh.P256().NewPrivateKey(raw)
		if err != nil {
			return nil, fmt.Errorf("make the key of a phone: %w", err)
		}
		auth, err := hkdf.Key(sha256.New, []byte(secret), nil, "secret of "+p.UserID, 16)
		if err != nil {
			return nil, err
		}
		ps.all[p.UserID] = &phone{UserID: p.UserID, key: key, auth: auth}
	}
	return ps, nil
}

// subscription is a push subscription. A browser returns it when an app subscribes to pushes.
type subscription struct {
	Endpoint string            `json:"endpoint"`
	Keys     map[string]string `json:"keys"`
}

func (ps *phones) subscribe(p *phone) subscription {
	return subscription{ps.endpoint + p.UserID, map[string]string{
		"p256dh": base64.RawURLEncoding.EncodeToString(p.key.PublicKey().Bytes()),
		"auth":   base64.RawURLEncoding.EncodeToString(p.auth),
	}}
}

// set opens or closes the app on a person's phone. It returns false if there is no such phone.
func (ps *phones) set(userID string, closed bool) (phone, bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p, ok := ps.all[userID]
	if !ok {
		return phone{}, false
	}
	p.Closed = closed
	ps.show(*p)
	return *p, true
}

// take decrypts a push for a phone and stores its content, unless the phone already has a push with
// a newer version of the badge.
func (ps *phones) take(userID string, body []byte) error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p, ok := ps.all[userID]
	if !ok {
		return errNoPhone
	}
	text, err := webpush.Decrypt(body, p.key, p.auth)
	if err != nil {
		return err
	}
	var content struct {
		Badged pushed `json:"badged"`
	}
	if err := json.Unmarshal(text, &content); err != nil {
		return err
	}
	p.Pushes++
	if b := &content.Badged; p.Pushed == nil || p.Pushed.Epoch != b.Epoch || p.Pushed.Version < b.Version {
		p.Pushed = b
	}
	ps.show(*p)
	return nil
}

const errNoPhone = refusal("the demo has no such phone")

func (d *Demo) getPhones(w http.ResponseWriter, _ *http.Request) {
	type subscribed struct {
		phone
		Device       string       `json:"device"`
		App          string       `json:"app"`
		Subscription subscription `json:"subscription"`
	}
	var answer struct {
		Phones []subscribed `json:"phones"`
	}
	d.phones.mu.Lock()
	for _, p := range people() {
		of := d.phones.all[p.UserID]
		answer.Phones = append(answer.Phones, subscribed{*of, device, PushApp, d.phones.subscribe(of)})
	}
	d.phones.mu.Unlock()
	d.answer(w, http.StatusOK, answer)
}

const wantPhone = refusal(`want {"user_id": "ada", "closed": true}`)

type phoneBody struct {
	UserID string `json:"user_id"`
	Closed *bool  `json:"closed"`
}

func (d *Demo) postPhone(_ context.Context, body phoneBody) (any, error) {
	if body.Closed == nil {
		return nil, wantPhone
	}
	p, ok := d.phones.set(body.UserID, *body.Closed)
	if !ok {
		return nil, errNoPhone
	}
	return p, nil
}

// maxPush is the maximum size of a push in bytes. Every push service must accept this size.
const maxPush = 4096

// postPush implements the endpoint of a push service, as in RFC 8030.
func (d *Demo) postPush(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPush))
	if err != nil {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	user := r.PathValue("user")
	if !slices.ContainsFunc(people(), func(p person) bool { return p.UserID == user }) {
		w.WriteHeader(http.StatusGone)
		return
	}
	if err := d.phones.take(user, body); err != nil {
		// The phone was registered with other keys. The status 410 makes the app register the phone
		// again.
		w.WriteHeader(http.StatusGone)
		return
	}
	w.WriteHeader(http.StatusCreated)
}
