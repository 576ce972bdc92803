package httpapi_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/internal/notify/outbound"
	"github.com/badged/badged/internal/server/httpapi"
)

// fakeDevices is an httpapi.Devices with one device of ada's.
type fakeDevices struct {
	put []outbound.Registration
	err error
}

func (f *fakeDevices) Put(_ context.Context, r outbound.Registration) (bool, error) {
	f.put = append(f.put, r)
	return len(f.put) == 1, f.err
}

func (f *fakeDevices) Device(_ context.Context, userID, deviceID string) (httpapi.Device, error) {
	if userID != "ada" || deviceID != "phone" {
		return httpapi.Device{}, outbound.ErrNotFound
	}
	return httpapi.Device{
		DeviceID: "phone", Platform: "apns", App: "ios", Environment: "production", Shows: "total", Token: "…e8f0",
		RegisteredAt: time.Date(2026, 3, 2, 9, 30, 0, 0, time.UTC), Number: new(int64(3)),
	}, nil
}

func (f *fakeDevices) Devices(ctx context.Context, userID string) ([]httpapi.Device, error) {
	d, err := f.Device(ctx, userID, "phone")
	if err != nil {
		return nil, nil //nolint:nilerr // another user has none
	}
	return []httpapi.Device{d}, nil
}

func (f *fakeDevices) Delete(ctx context.Context, userID, deviceID string) error {
	_, err := f.Device(ctx, userID, deviceID)
	return err
}

func deviceAPI(t *testing.T) (*httpapi.API, *fakeDevices) {
	t.Helper()
	f := &fakeDevices{}
	return build(t, httpapi.Config{Devices: f}), f
}

func askDevices(t *testing.T, api http.Handler, method, path, auth, body string) answer {
	t.Helper()
	if method != http.MethodPut { // the other routes have no body
		body = ""
	}
	return ask(t, api, auth, method, path, "", body)
}

func TestDevicesBelongToTheirUser(t *testing.T) {
	api, _ := deviceAPI(t)
	const body = `{"platform":"apns","app":"ios","token":"0a1b2c3d"}`
	for _, route := range []struct {
		method, path string
		ok           int
	}{
		{"PUT", "/v1/users/ada/devices/phone", 201},
		{"GET", "/v1/users/ada/devices/phone", 200},
		{"GET", "/v1/users/ada/devices", 200},
		{"DELETE", "/v1/users/ada/devices/phone", 204},
	} {
		for _, tt := range []struct {
			auth   string
			status int
		}{
			{adaToken, route.ok},
			{publisherKey, 0},
			{adminKey, 0},
			{benToken, 403},
			{chatToken, 403},
			{oldToken, 401},
			{"a-wrong-key", 401},
		} {
			got := askDevices(t, api, route.method, route.path, tt.auth, body)
			if tt.status == 0 && got.status >= 300 || tt.status != 0 && got.status != tt.status {
				t.Errorf("%s %s with %s: status %d, want %d: %s", route.method, route.path, tt.auth, got.status, tt.status, got.body)
			}
		}
	}
}

func TestRegistrations(t *testing.T) {
	const subscription = `{"endpoint":"https://push.example/1","keys":{"p256dh":"x","auth":"y"}}`
	for _, tt := range []struct {
		name, body, want string
	}{
		{"a token", `{"platform":"apns","app":"ios","token":"0a1b"}`, "apns ios production total 0a1b"},
		{"all fields", `{"platform":"apns","app":"ios","token":"0a1b","environment":"sandbox","shows":"category:likes"}`, "apns ios sandbox category:likes 0a1b"},
		{"a subscription", `{"platform":"webpush","app":"web","subscription": ` + strings.ReplaceAll(subscription, ":", ": ") + `,"shows":"mentions"}`, "webpush web production mentions " + strings.ReplaceAll(subscription, "https:", "https: ")},
		{"nothing", ``, "400 the body is empty"},
		{"a field too many", `{"platform":"apns","app":"ios","token":"0a1b","badge":1}`, `400 unknown field "badge"`},
		{"a field given twice", `{"platform":"apns","app":"ios","token":"0a1b","app":"ipad"}`, `400 app is given twice`},
		{"a field in two cases", `{"platform":"apns","app":"ios","token":"0a1b","APP":"ipad"}`, `400 unknown field "APP"`},
		{"a subscription with a key given twice", `{"platform":"webpush","app":"web","subscription":{"endpoint":"https://push.example/1","keys":{"auth":"x","auth":"y"}}}`, `400 subscription.keys.auth is given twice`},
		{"no subscription", `{"platform":"apns","app":"ios","token":"0a1b","subscription":null,"shows":null}`, "apns ios production total 0a1b"},
		{"no token", `{"platform":"apns","app":"ios"}`, "400 give token (apns, fcm) or subscription (webpush, unifiedpush)"},
		{"both", `{"platform":"webpush","app":"web","token":"0a1b","subscription":` + subscription + `}`, "400 give token (apns, fcm) or subscription (webpush, unifiedpush)"},
		{"a subscription for APNs", `{"platform":"apns","app":"ios","subscription":` + subscription + `}`, "400 apns and fcm have a token, webpush and unifiedpush have a subscription"},
		{"an unknown number", `{"platform":"apns","app":"ios","token":"0a1b","shows":"unread"}`, "400 shows must be total, mentions, category:NAME, conversations, or conversations:NAME"},
		{"conversations", `{"platform":"apns","app":"ios","token":"0a1b","shows":"conversations"}`, "apns ios production conversations 0a1b"},
		{"conversations of a category", `{"platform":"apns","app":"ios","token":"0a1b","shows":"conversations:likes"}`, "apns ios production conversations:likes 0a1b"},
		{"conversations of no category", `{"platform":"apns","app":"ios","token":"0a1b","shows":"conversations:"}`, "400 shows names a category that must not be empty"},
		{"a category without a name", `{"platform":"apns","app":"ios","token":"0a1b","shows":"category:"}`, "400 shows names a category that must not be empty"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api, f := deviceAPI(t)
			a := askDevices(t, api, "PUT", "/v1/users/ada/devices/phone", adaToken, tt.body)
			var got string
			if len(f.put) == 1 {
				p := f.put[0]
				got = strings.Join([]string{p.Platform, p.App, p.Environment, p.Shows, string(p.Token)}, " ")
			} else {
				got = a.story(t)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefusedRegistrations(t *testing.T) {
	api, f := deviceAPI(t)
	const body = `{"platform":"hms","app":"ios","token":"0a1b"}`
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&httpapi.DeviceError{Field: "platform", Message: "must be apns, as that of the app"}, "400 platform must be apns, as that of the app"},
		{outbound.ErrTooManyDevices, "409 the user has 100 devices already: delete those that are not in use"},
	} {
		f.err = tt.err
		if got := askDevices(t, api, "PUT", "/v1/users/ada/devices/phone", adaToken, body).story(t); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// An id of nothing but white space is what a client sends that has none.
func TestBlankDeviceIDs(t *testing.T) {
	api, f := deviceAPI(t)
	for _, method := range []string{"PUT", "GET", "DELETE"} {
		for _, id := range []string{"%20", "%20%20", "%C2%A0"} {
			if got := askDevices(t, api, method, "/v1/users/ada/devices/"+id, adaToken, `{"platform":"apns","app":"ios","token":"0a1b"}`).story(t); got != "400 device id must not be blank" {
				t.Errorf("%s %s: %q", method, id, got)
			}
		}
	}
	if len(f.put) > 0 {
		t.Errorf("registered %v", f.put)
	}
}

// An app in a loop is slowed, and neither the publisher nor another user is.
func TestUsersAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, _ := deviceAPI(t)
		const body = `{"platform":"apns","app":"ios","token":"0a1b2c3d"}`
		put := func(auth, user string) answer {
			return askDevices(t, api, "PUT", "/v1/users/"+user+"/devices/phone", auth, body)
		}
		n := 0
		for n < 100 && put(adaToken, "ada").status < 300 {
			n++
		}
		if n != 20 {
			t.Errorf("%d registrations at once, want 20", n)
		}
		for _, method := range []string{"PUT", "GET", "DELETE"} {
			got := askDevices(t, api, method, "/v1/users/ada/devices/phone", adaToken, body)
			if want := "429 too many requests with this user's token; repeat the request after Retry-After"; got.story(t) != want || got.header.Get("Retry-After") != "1" {
				t.Errorf("%s: %q after %q", method, got.story(t), got.header.Get("Retry-After"))
			}
		}
		if got := put(publisherKey, "ada").status; got != 200 {
			t.Errorf("the publisher gets %d", got)
		}
		if got := askDevices(t, api, "GET", "/v1/users/ben/devices", benToken, "").status; got != 200 {
			t.Errorf("another user gets %d", got)
		}
		if got := askDevices(t, api, "GET", "/v1/users/ada/badge", adaToken, "").status; got != 200 {
			t.Errorf("the same user gets %d for the badge", got)
		}
		time.Sleep(time.Second) // of the bubble
		for range 2 {
			if got := put(adaToken, "ada").status; got != 200 {
				t.Errorf("a second later the status is %d", got)
			}
		}
		if got := put(adaToken, "ada").status; got != 429 {
			t.Errorf("and one more gets %d", got)
		}
	})
}

func TestUnknownDevices(t *testing.T) {
	api, _ := deviceAPI(t)
	for _, method := range []string{"GET", "DELETE"} {
		if got := askDevices(t, api, method, "/v1/users/ada/devices/watch", adaToken, "").story(t); got != "404 the user has no such device" {
			t.Errorf("%s: %q", method, got)
		}
	}
	if got := askDevices(t, api, "GET", "/v1/users/ben/devices", benToken, ""); strings.TrimSpace(got.body) != `{"devices":[]}` {
		t.Errorf("a user without devices: %s", got.body)
	}
}
