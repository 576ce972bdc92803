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
// authenticates this text as additional data. So a token that was copied to another row cannot be
// decrypted.
func tokenPlace(userID, deviceID string) string { return "device\x00" + userID + "\x00" + deviceID }

// sealedRetry is the delay of the next attempt to push to a device whose token cannot be decrypted.
// In the meantime an operator may restore the encryption key, or the app may register the device
// again.
const sealedRetry = time.Hour

// pushQueue is a push.Queue that decrypts the device tokens.
type pushQueue struct {
	*outbound.Notifier
	box *seal.Box
}

// NextDevices implements push.Queue.
func (q pushQueue) NextDevices(ctx context.Context, app, platform string, limit int) ([]outbound.DevicePush, error) {
	for {
		due, err := q.Notifier.NextDevices(ctx, app, platform, limit)
		if err != nil {
			return nil, err
		}
		var opened []outbound.DevicePush
		for _, d := range due {
			if d.Token, err = q.box.Open(d.Token, tokenPlace(d.UserID, d.DeviceID)); err != nil {
				q.DeviceRetry(d, 0, sealedRetry, "--outbound-keys: "+err.Error())
				continue
			}
			opened = append(opened, d)
		}
		if len(opened) > 0 {
			return opened, nil
		}
	}
}

// devices implements httpapi.Devices for the configured apps.
type devices struct {
	// targets returns access to the devices in the database of a user.
	targets func(userID string) (*outbound.Targets, error)
	apps    push.Apps
	box     *seal.Box
}

// Put implements httpapi.Devices.
func (d devices) Put(ctx context.Context, r outbound.Registration) (created bool, err error) {
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
	r.Token, r.Fingerprint = d.box.Seal(r.Token, tokenPlace(r.UserID, r.DeviceID)), fingerprint[:]
	return targets.PutDevice(ctx, r)
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

// masked returns the part of a device token that may be shown, so that people recognize the token:
// its last characters, or the host of a push subscription.
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
