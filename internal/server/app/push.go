package app

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/badged/badged/internal/notify/egress"
	"github.com/badged/badged/internal/notify/outbound"
	"github.com/badged/badged/internal/notify/push"
	"github.com/badged/badged/internal/notify/seal"
	"github.com/badged/badged/internal/server/httpapi"
)

// pushClient returns the HTTP client for the endpoints that devices name. It permits many
// connections to one host, since the endpoints of all Chrome browsers are on the same host.
func pushClient(allowPrivate bool) *http.Client {
	return egress.NewClient(egress.Config{AllowPrivate: allowPrivate, MaxConnsPerHost: 256})
}

// openPush adds the sender of pushes.
func (a *App) openPush(d *database, n *outbound.Notifier, apps push.Apps, box *seal.Box) error {
	sender, err := push.NewSender(push.Config{
		Apps: apps, Queue: pushQueue{n, box}, Logger: d.log, Metrics: push.NewMetrics(d.registry),
	})
	if err != nil {
		return err
	}
	a.stageOf(d, "push", sender.Run)
	return nil
}

// tokenPlace identifies the row that stores a device token. The encryption of the token
// authenticates this text, so that a token that was copied to another row cannot be decrypted.
func tokenPlace(userID, deviceID string) string { return "device\x00" + userID + "\x00" + deviceID }

// sealedRetry is the delay of the next attempt to push to a device whose token cannot be decrypted.
// In the meantime an operator may restore the encryption key, or the app may register the device
// again.
const sealedRetry = time.Hour

// pushQueue implements push.Queue with the notifier. It decrypts the device tokens.
type pushQueue struct {
	notifier *outbound.Notifier
	box      *seal.Box
}

// Next implements push.Queue.
func (q pushQueue) Next(ctx context.Context, app string, platform push.Platform, limit int) ([]push.Due, error) {
	for {
		taken, err := q.notifier.NextDevices(ctx, app, string(platform), limit)
		if err != nil {
			return nil, err
		}
		all := make([]push.Due, 0, len(taken))
		for _, p := range taken {
			token, err := q.box.Open(p.Token, tokenPlace(p.UserID, p.DeviceID))
			if err != nil {
				q.notifier.DeviceRetry(p, 0, sealedRetry, "--outbound-keys: "+err.Error())
				continue
			}
			all = append(all, dueOf(p, token))
		}
		if len(all) > 0 {
			return all, nil
		}
	}
}

func dueOf(p outbound.DevicePush, token []byte) push.Due {
	due := push.Due{
		Push: push.Push{
			UserID: p.UserID, DeviceID: p.DeviceID, App: p.App, Environment: p.Environment, Token: token,
			Epoch: p.Badge.Epoch, Version: p.Badge.Version, Number: p.Number,
		},
		DueAt: p.DueAt, RegisteredAt: p.RegisteredAt, Attempts: p.Attempts, Row: p,
	}
	for _, a := range p.Alerts {
		due.Alerts = append(due.Alerts, push.Alert{ConversationID: a.ConversationID, Seq: a.Seq, Title: a.Title, Body: a.Body, Data: a.Data})
	}
	for _, a := range p.Retract {
		due.Retract = append(due.Retract, push.AlertName{ConversationID: a.ConversationID, Seq: a.Seq})
	}
	return due
}

func rowOf(d push.Due) outbound.DevicePush {
	p, _ := d.Row.(outbound.DevicePush)
	p.Alerts = p.Alerts[:len(d.Alerts)]
	if len(d.Retract) == 0 {
		return p.KeepRetract()
	}
	return p
}

// Told implements push.Queue.
func (q pushQueue) Told(d push.Due, quiet time.Duration) { q.notifier.DeviceTold(rowOf(d), quiet) }

// Retry implements push.Queue.
func (q pushQueue) Retry(d push.Due, sent int, after time.Duration, reason string) {
	q.notifier.DeviceRetry(rowOf(d), sent, after, reason)
}

// Hold implements push.Queue.
func (q pushQueue) Hold(d push.Due, after time.Duration) { q.notifier.DeviceHold(rowOf(d), after) }

// Gone implements push.Queue.
func (q pushQueue) Gone(d push.Due, _ string) { q.notifier.DeviceGone(rowOf(d)) }

// devices implements httpapi.Devices for the configured apps.
type devices struct {
	// targets returns access to the devices in the database of a user.
	targets func(userID string) (*outbound.Targets, error)
	apps    push.Apps
	box     *seal.Box
}

// Put implements httpapi.Devices.
func (d devices) Put(ctx context.Context, r httpapi.DeviceRegistration) (created bool, err error) {
	app := d.apps[r.App]
	switch {
	case len(d.apps) == 0:
		return false, &httpapi.DeviceError{Field: "app", Message: "cannot be served: the server has no push configuration (--push-config)"}
	case app == nil:
		return false, &httpapi.DeviceError{Field: "app", Message: fmt.Sprintf("%q is not in the push configuration of the server", r.App)}
	case r.Platform != string(app.Platform):
		return false, &httpapi.DeviceError{Field: "platform", Message: fmt.Sprintf("must be %s, as that of the app", app.Platform)}
	case !slices.Contains(app.Environments(), r.Environment):
		return false, &httpapi.DeviceError{Field: "environment", Message: "must be " + strings.Join(app.Environments(), " or ")}
	}
	field := "token"
	if app.Platform == push.WebPush || app.Platform == push.UnifiedPush {
		field = "subscription"
	}
	if wrong := app.Platform.CheckToken(r.Token); wrong != "" {
		return false, &httpapi.DeviceError{Field: field, Message: wrong}
	}
	if field == "subscription" {
		if wrong := egress.CheckURL(app.Platform.AddressOf(r.Token), app.AllowPrivate); wrong != "" {
			return false, &httpapi.DeviceError{Field: "subscription.endpoint", Message: wrong}
		}
	}
	fingerprint := sha256.Sum256([]byte(app.Platform.AddressOf(r.Token)))
	targets, err := d.targets(r.UserID)
	if err != nil {
		return false, err
	}
	return targets.PutDevice(ctx, outbound.Registration{
		UserID: r.UserID, DeviceID: r.DeviceID, App: r.App, Platform: r.Platform, Environment: r.Environment, Shows: r.Shows,
		Token: d.box.Seal(r.Token, tokenPlace(r.UserID, r.DeviceID)), Fingerprint: fingerprint[:],
	})
}

// endpointOf returns the endpoint of a Web Push subscription, or "" if token is not a
// subscription.
func endpointOf(token []byte) string {
	var s struct {
		Endpoint string `json:"endpoint"`
	}
	if json.Unmarshal(token, &s) != nil {
		return ""
	}
	return s.Endpoint
}

// Device implements httpapi.Devices.
func (d devices) Device(ctx context.Context, userID, deviceID string) (httpapi.Device, error) {
	targets, err := d.targets(userID)
	if err != nil {
		return httpapi.Device{}, err
	}
	device, err := targets.Device(ctx, userID, deviceID)
	if err != nil {
		return httpapi.Device{}, err
	}
	return d.shown(&device), nil
}

// Devices implements httpapi.Devices.
func (d devices) Devices(ctx context.Context, userID string) ([]httpapi.Device, error) {
	targets, err := d.targets(userID)
	if err != nil {
		return nil, err
	}
	all, err := targets.Devices(ctx, userID)
	if err != nil {
		return nil, err
	}
	shown := make([]httpapi.Device, len(all))
	for i := range all {
		shown[i] = d.shown(&all[i])
	}
	return shown, nil
}

// Delete implements httpapi.Devices.
func (d devices) Delete(ctx context.Context, userID, deviceID string) error {
	targets, err := d.targets(userID)
	if err != nil {
		return err
	}
	return targets.DeleteDevice(ctx, userID, deviceID)
}

func (d devices) shown(o *outbound.Device) httpapi.Device {
	return httpapi.Device{
		DeviceID: o.DeviceID, Platform: o.Platform, App: o.App, Environment: o.Environment, Shows: o.Shows, Token: d.masked(o),
		RegisteredAt: o.RegisteredAt.UTC(), Number: o.Told, ToldAt: utc(o.ToldAt), DueAt: utc(o.Due),
		Failures: o.Attempts, LastError: o.LastError, LastErrorAt: utc(o.LastErrorAt),
	}
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

// shownTokenEnd is the number of characters at the end of a token that are shown.
const shownTokenEnd = 4

// masked returns the part of a device token that may be shown, by which people can recognize the
// token: its last characters, or the host of a push subscription.
func (d devices) masked(o *outbound.Device) string {
	token, err := d.box.Open(o.Token, tokenPlace(o.UserID, o.DeviceID))
	if err != nil {
		return "…"
	}
	if endpoint := endpointOf(token); endpoint != "" {
		u, err := url.Parse(endpoint)
		if err != nil {
			return "…"
		}
		return u.Host + "/…"
	}
	return "…" + string(token[max(0, len(token)-shownTokenEnd):])
}
