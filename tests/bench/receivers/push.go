package receivers

import (
	"context"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/badged/badged/internal/devtest/vendors"
)

// APNs opens the vendor of iOS.
func APNs(ctx context.Context) (*Receiver, error) {
	return open(ctx, func(l *life, r *Receiver) {
		v := vendors.NewAPNs(l)
		r.pushes(l, &v.Vendor, v.Entry(), func(token string) string {
			user, _ := hex.DecodeString(token) // the vendor has checked it
			return string(user)
		}, func(user string) map[string]any {
			return map[string]any{"platform": "apns", "app": "chat", "token": hex.EncodeToString([]byte(user))}
		})
	})
}

// FCM opens the vendor of Android.
func FCM(ctx context.Context) (*Receiver, error) {
	const prefix = "token:of-"
	return open(ctx, func(l *life, r *Receiver) {
		v := vendors.NewFCM(l)
		r.pushes(l, &v.Vendor, v.Entry(), func(token string) string { return strings.TrimPrefix(token, prefix) },
			func(user string) map[string]any {
				return map[string]any{"platform": "fcm", "app": "chat", "token": prefix + user}
			})
	})
}

// WebPush opens the push service of a browser.
func WebPush(ctx context.Context) (*Receiver, error) {
	return open(ctx, func(l *life, r *Receiver) {
		v := vendors.NewWebPush(l)
		r.pushes(l, &v.Vendor, v.Entry(), func(token string) string { return token },
			func(user string) map[string]any {
				return map[string]any{"platform": "webpush", "app": "chat", "subscription": v.Subscribe(l, user)}
			})
	})
}

// pushes sets up a receiver of pushes.
func (r *Receiver) pushes(l *life, v *vendors.Vendor, app map[string]any, userOf func(token string) string, registration func(user string) map[string]any) {
	r.Args = []string{"--push-config=" + vendors.WriteConfig(l, map[string]map[string]any{"chat": app})}
	r.Env = []string{"SSL_CERT_FILE=" + v.CAFile}
	r.Register = func(ctx context.Context, call Call, user string) error {
		return call(ctx, http.MethodPut, "/v1/users/"+user+"/devices/phone", text(registration(user)))
	}
	r.Take = func() []Told {
		pushes := v.Take()
		told := make([]Told, len(pushes))
		for i, p := range pushes {
			told[i] = Told{User: userOf(p.Token), Number: p.Badged.Number, Version: p.Badged.Version, At: p.At}
		}
		return told
	}
	r.Violations = v.Violations
}
