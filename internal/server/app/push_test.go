package app

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/vendors"
	"github.com/badged/badged/internal/notify/outbound"
	"github.com/badged/badged/internal/notify/push"
	"github.com/badged/badged/internal/notify/seal"
	"github.com/badged/badged/internal/server/config"
	"github.com/badged/badged/internal/server/httpapi"
)

func TestBadSettingsOfPushesAreRefused(t *testing.T) {
	var cfg config.Server
	cfg.PushConfig = vendors.WriteConfig(t, map[string]map[string]any{"phones": {"platform": "hms"}})
	cfg.OutboundKeys = []string{"2026=short"}
	var all []string
	for _, err := range Check(cfg) {
		all = append(all, err.Error())
	}
	for _, want := range []string{
		"--push-config: " + cfg.PushConfig + `: app "phones": platform: "hms" is none of apns, fcm, webpush, unifiedpush`,
		"--outbound-keys: key 1 (2026): want 32 bytes in base64; `openssl rand -base64 32` makes them",
	} {
		if !strings.Contains(strings.Join(all, "\n"), want) {
			t.Errorf("no error says %s; they are %q", want, all)
		}
	}
}

func TestBadDevicesAreRefused(t *testing.T) {
	web := vendors.NewWebPush(t)
	public := web.Entry()
	delete(public, "allow_private")
	apps, err := push.LoadApps(vendors.WriteConfig(t, map[string]map[string]any{
		"ios": vendors.NewAPNs(t).Entry(), "web": public,
	}), pushClient, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	subscription := func(endpoint string) string {
		return `{"endpoint":"` + endpoint + `","keys":{"p256dh":"BIPUL12DLfytvTajnryr2PRdAgXS3HGKiLqndGcJGabyhHheJYlNGCeXl1dn18gSJ1WAkAPIxr4gK0_dQds4yiI","auth":"FPssNDTKnInHVndSTdbKFw"}}`
	}
	const token = "0a1b2c3d4e5f"
	for _, tt := range []struct {
		app, platform, environment, token, want string
	}{
		{"ipad", "apns", "production", token, `app "ipad" is not in the push configuration of the server`},
		{"ios", "fcm", "production", token, "platform must be apns, as that of the app"},
		{"ios", "apns", "test", token, "environment must be production or sandbox"},
		{"web", "webpush", "sandbox", subscription("https://push.example/1"), "environment must be production"},
		{"ios", "apns", "production", "no-hex", "token must have 8 to 200 hexadecimal digits"},
		{"web", "webpush", "production", `{"endpoint":"https://push.example/1"}`, "subscription keys.p256dh must be a point of P-256 in base64"},
		{"web", "webpush", "production", subscription("https://10.0.0.7/1"), "subscription.endpoint belongs to a private network"},
		{"web", "webpush", "production", subscription("http://push.example/1"), "subscription.endpoint must begin with https://"},
	} {
		_, err := devices{apps: apps, box: &seal.Box{}}.Put(t.Context(), outbound.Registration{
			UserID: "ada", DeviceID: "phone", App: tt.app, Platform: tt.platform, Environment: tt.environment, Token: []byte(tt.token),
		})
		var wrong *httpapi.DeviceError
		if !errors.As(err, &wrong) || wrong.Error() != tt.want {
			t.Errorf("%s %s: %v, want %s", tt.app, tt.environment, err, tt.want)
		}
	}
}

func TestTokensAreMasked(t *testing.T) {
	box := &seal.Box{}
	d := devices{box: box}
	for token, want := range map[string]string{
		"00fc13adff785122": "…5122",
		`{"endpoint":"https://push.example/a-secret"}`: "push.example/…",
	} {
		device := outbound.Device{Registration: outbound.Registration{UserID: "ada", DeviceID: "phone", Token: box.Seal([]byte(token), tokenPlace("ada", "phone"))}}
		if got := d.masked(&device); got != want {
			t.Errorf("%s is shown as %s, want %s", token, got, want)
		}
	}
}
