package push

import (
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/vendors"
)

// A vendor whose clock is some seconds behind accepts tokens for it.
func TestVendorsWhoseClockIsBehind(t *testing.T) {
	const behind = 5 * time.Second
	v := vendors.NewFCM(t)
	app := load(t, &v.Vendor, v.Entry())
	app.vendor.(*fcm).token.now = func() time.Time { return time.Now().Add(behind) }
	f := fake{&v.Vendor, FCM, app, []byte("token-of-a-phone"), ""}
	if got := f.send(t, f.push(1, 1)); got.Verdict != Sent {
		t.Errorf("FCM: %+v", got)
	}
	sound(t, &v.Vendor)

	a := vendors.NewAPNs(t)
	app = load(t, &a.Vendor, a.Entry())
	half := time.Date(2026, 3, 2, 9, 30, 0, 0, time.UTC)
	a.Now = func() time.Time { return half.Add(-behind) }
	app.vendor.(*apns).token.now = func() time.Time { return half }
	f = fake{&a.Vendor, APNs, app, []byte("0a1b2c3d"), "0a1b2c3d"}
	if got := f.send(t, f.push(1, 1)); got.Verdict != Sent {
		t.Errorf("APNs: %+v", got)
	}
	sound(t, &a.Vendor)
}
