package push

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/internal/devtest/vendors"
	"github.com/badged/badged/internal/notify/outbound"
)

func TestPhonesShowWhatIsPushed(t *testing.T) {
	for _, f := range fakes(t) {
		t.Run(string(f.platform), func(t *testing.T) {
			if got := f.send(t, f.push(7, 5)); got.Verdict != Sent {
				t.Fatalf("a silent push: %+v", got)
			}
			alert := f.push(8, 6)
			alert.Alert = &outbound.Alert{ConversationID: "lunch", Seq: 42, Title: "Ben", Body: "Pizza? <3 & \"more\"", Data: map[string]string{"url": "/lunch"}}
			for range 2 { // a repeat must not show twice
				if got := f.send(t, alert); got.Verdict != Sent {
					t.Fatalf("an alert: %+v", got)
				}
			}
			zero := f.push(9, 0)
			if got := f.send(t, zero); got.Verdict != Sent {
				t.Fatalf("a push of 0: %+v", got)
			}
			phone := f.Phone(f.phone)
			if n, ok := phone.Number(); !ok || n != 0 {
				t.Errorf("the phone shows %d, %t; want 0", n, ok)
			}
			alerts := phone.Alerts()
			if len(alerts) != 1 {
				t.Fatalf("the phone shows %d notifications, want 1", len(alerts))
			}
			want := vendors.Content{Epoch: "9a6c36fbe39f", Version: 8, Number: 6, ConversationID: "lunch", Seq: 42, Data: map[string]string{"url": "/lunch"}}
			if diff := cmp.Diff(want, alerts[0].Badged); diff != "" {
				t.Errorf("content (-want +got):\n%s", diff)
			}
			if alerts[0].Title != "Ben" || alerts[0].Body != alert.Alert.Body {
				t.Errorf("the notification is %q, %q", alerts[0].Title, alerts[0].Body)
			}
			pushes := f.Pushes()
			if a, b := pushes[0].Collapse, pushes[len(pushes)-1].Collapse; a != b {
				t.Errorf("silent pushes do not replace each other: %s, %s", a, b)
			}
			if pushes[0].Collapse == pushes[1].Collapse {
				t.Error("an alert replaces a silent push that waits")
			}
			sound(t, f.Vendor)
		})
	}
}

func TestAnswersOfVendors(t *testing.T) {
	retryIn := func(s string) http.Header { return http.Header{"Retry-After": {s}} }
	gone := time.UnixMilli(1_790_000_000_123)
	all := map[Platform][]struct {
		name  string
		fault vendors.Fault
		want  Outcome
	}{
		APNs: {
			{"unregistered", vendors.Fault{Status: 410, Reason: "Unregistered", Timestamp: gone}, Outcome{Verdict: Gone, Reason: "Unregistered", Since: gone}},
			{"an expired token", vendors.Fault{Status: 410, Reason: "ExpiredToken"}, Outcome{Verdict: Gone, Reason: "ExpiredToken"}},
			{"a bad token", vendors.Fault{Status: 400, Reason: "BadDeviceToken"}, Outcome{Verdict: Gone, Reason: "BadDeviceToken"}},
			{"the token of another app", vendors.Fault{Status: 400, Reason: "DeviceTokenNotForTopic"}, Outcome{Verdict: Rejected, Reason: "DeviceTokenNotForTopic"}},
			{"a topic that is not ours", vendors.Fault{Status: 400, Reason: "TopicDisallowed"}, Outcome{Verdict: Failed, Reason: "TopicDisallowed", After: faultPause, Pause: true}},
			{"a revoked key", vendors.Fault{Status: 403, Reason: "InvalidProviderToken"}, Outcome{Verdict: Failed, Reason: "InvalidProviderToken", After: faultPause, Pause: true}},
			{"too many for a device", vendors.Fault{Status: 429, Reason: "TooManyRequests"}, Outcome{Verdict: Failed, Reason: "TooManyRequests"}},
			{"too many for all", vendors.Fault{Status: 429, Reason: "TooManyRequests", Header: retryIn("7")}, Outcome{Verdict: Failed, Reason: "TooManyRequests", After: 7 * time.Second, Pause: true}},
			{"too many provider tokens", vendors.Fault{Status: 429, Reason: "TooManyProviderTokenUpdates"}, Outcome{Verdict: Failed, Reason: "TooManyProviderTokenUpdates", After: 20 * time.Minute, Pause: true}},
			{"shutdown", vendors.Fault{Status: 503, Reason: "Shutdown", Header: retryIn("100000")}, Outcome{Verdict: Failed, Reason: "Shutdown", After: time.Hour, Pause: true}},
			{"an error inside", vendors.Fault{Status: 500, Reason: "InternalServerError"}, Outcome{Verdict: Failed, Reason: "InternalServerError"}},
			{"a reason that may be a secret", vendors.Fault{Status: 400, Reason: "token 0a1b2c3d4e5f is bad"}, Outcome{Verdict: Rejected, Reason: "HTTP 400"}},
		},
		FCM: {
			{"unregistered", vendors.Fault{Status: 404, Reason: "UNREGISTERED"}, Outcome{Verdict: Gone, Reason: "UNREGISTERED"}},
			{"an argument", vendors.Fault{Status: 400, Reason: "INVALID_ARGUMENT"}, Outcome{Verdict: Rejected, Reason: "INVALID_ARGUMENT"}},
			{"another sender", vendors.Fault{Status: 403, Reason: "SENDER_ID_MISMATCH"}, Outcome{Verdict: Rejected, Reason: "SENDER_ID_MISMATCH"}},
			{"a project without FCM", vendors.Fault{Status: 403, Reason: "PERMISSION_DENIED"}, Outcome{Verdict: Failed, Reason: "PERMISSION_DENIED", After: faultPause, Pause: true}},
			{"the quota", vendors.Fault{Status: 429, Reason: "QUOTA_EXCEEDED"}, Outcome{Verdict: Failed, Reason: "QUOTA_EXCEEDED", After: time.Minute}},
			{"the quota for all", vendors.Fault{Status: 429, Reason: "QUOTA_EXCEEDED", Header: retryIn("90")}, Outcome{Verdict: Failed, Reason: "QUOTA_EXCEEDED", After: 90 * time.Second, Pause: true}},
			{"overload", vendors.Fault{Status: 503, Reason: "UNAVAILABLE", Header: retryIn("3")}, Outcome{Verdict: Failed, Reason: "UNAVAILABLE", After: 3 * time.Second, Pause: true}},
		},
		WebPush: {
			{"gone", vendors.Fault{Status: 410}, Outcome{Verdict: Gone, Reason: "HTTP 410"}},
			{"not found", vendors.Fault{Status: 404}, Outcome{Verdict: Gone, Reason: "HTTP 404"}},
			{"another key", vendors.Fault{Status: 403}, Outcome{Verdict: Rejected, Reason: "HTTP 403"}},
			{"too large", vendors.Fault{Status: 413}, Outcome{Verdict: TooLarge, Reason: "HTTP 413"}},
			{"too many", vendors.Fault{Status: 429, Header: retryIn("30")}, Outcome{Verdict: Failed, Reason: "HTTP 429", After: 30 * time.Second, Pause: true}},
			{"a gateway's error", vendors.Fault{Status: 502}, Outcome{Verdict: Failed, Reason: "HTTP 502"}},
		},
	}
	for _, f := range fakes(t) {
		for _, tt := range all[f.platform] {
			t.Run(string(f.platform)+", "+tt.name, func(t *testing.T) {
				f.Script(vendors.Once(tt.fault))
				if diff := cmp.Diff(tt.want, f.send(t, f.push(1, 1))); diff != "" {
					t.Errorf("outcome (-want +got):\n%s", diff)
				}
			})
		}
		sound(t, f.Vendor)
	}
}

// A redirect would carry tokens to whatever address it names, and another server's 200 is
// no acceptance.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var asked atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(elsewhere.Close)
	want := map[Platform]Outcome{
		APNs:        {Verdict: Failed, Reason: "HTTP 307", After: faultPause, Pause: true},
		FCM:         {Verdict: Failed, Reason: "HTTP 307", After: faultPause, Pause: true},
		WebPush:     {Verdict: Rejected, Reason: "HTTP 307"},
		UnifiedPush: {Verdict: Rejected, Reason: "HTTP 307"},
	}
	redirect := vendors.Fault{Status: http.StatusTemporaryRedirect, Header: http.Header{"Location": {elsewhere.URL + "/"}}}
	for _, f := range fakes(t) {
		f.Script(vendors.Once(redirect))
		if diff := cmp.Diff(want[f.platform], f.send(t, f.push(1, 1))); diff != "" {
			t.Errorf("%s: outcome (-want +got):\n%s", f.platform, diff)
		}
	}
	server := vendors.NewFCM(t)
	server.ScriptTokens(func() *vendors.Fault { return &redirect })
	f := fake{&server.Vendor, FCM, load(t, &server.Vendor, server.Entry()), []byte("token:of-a_phone"), "token:of-a_phone"}
	if got := f.send(t, f.push(1, 1)); got.Reason != "token: HTTP 307" || !got.Pause {
		t.Errorf("a redirect instead of an access token: %+v", got)
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

func TestBrokenConnectionsAreFailures(t *testing.T) {
	for _, f := range fakes(t) {
		t.Run(string(f.platform), func(t *testing.T) {
			// Twice: net/http itself repeats what the server cannot have seen.
			f.Script(func(string) *vendors.Fault { return &vendors.Fault{Reset: true, Deliver: true} })
			got := f.send(t, f.push(1, 1))
			if got.Verdict != Failed || !got.Unreachable || strings.Contains(got.Reason, f.phone) {
				t.Errorf("outcome %+v, want a failure without the token", got)
			}
			f.Script(nil)
			if got := f.send(t, f.push(1, 1)); got.Verdict != Sent {
				t.Errorf("the next push: %+v", got)
			}
			f.Server.Close()
			got = f.send(t, f.push(1, 1))
			if got.Verdict != Failed || !got.Unreachable || strings.Contains(got.Reason, f.phone) {
				t.Errorf("without a server: outcome %+v, want a failure without the token", got)
			}
		})
	}
}

// A phone has one address, however an app writes its token: the user who registers it last
// gets the pushes, and no other.
func TestAddressOfAToken(t *testing.T) {
	for _, tt := range []struct {
		platform Platform
		a, b     string
		same     bool
	}{
		{APNs, "00FCab12", "00fcAB12", true},
		{APNs, "00fcab12", "00fcab13", false},
		{FCM, "dEf:Abc12", "dEf:abc12", false},
		{WebPush, `{"endpoint":"https://push.example/1","expirationTime":null,"keys":{"p256dh":"a","auth":"b"}}`, `{"keys":{"auth":"b","p256dh":"a"},"endpoint":"https://push.example/1"}`, true},
		{WebPush, `{"endpoint":"HTTPS://Push.Example:443/1"}`, `{"endpoint":"https://push.example/1"}`, true},
		{WebPush, `{"endpoint":"https://push.example./1"}`, `{"endpoint":"https://push.example/1"}`, true},
		{WebPush, `{"endpoint":"https://push.example/A"}`, `{"endpoint":"https://push.example/a"}`, false},
		{WebPush, `{"endpoint":"https://push.example:8443/1"}`, `{"endpoint":"https://push.example/1"}`, false},
		{UnifiedPush, `{"endpoint":"http://[2A00::1]:80/1"}`, `{"endpoint":"http://[2a00::1]/1"}`, true},
		{UnifiedPush, `{"endpoint":"https://push.example/1"}`, `{"endpoint":"https://push.example/2"}`, false},
	} {
		if a, b := tt.platform.AddressOf([]byte(tt.a)), tt.platform.AddressOf([]byte(tt.b)); (a == b) != tt.same {
			t.Errorf("%s: the addresses of %s and %s are %q and %q", tt.platform, tt.a, tt.b, a, b)
		}
	}
}

func TestSlowVendorsTimeOut(t *testing.T) {
	for _, f := range fakes(t) {
		t.Run(string(f.platform), func(t *testing.T) {
			f.Script(func(string) *vendors.Fault { return &vendors.Fault{Hold: make(chan struct{})} })
			ctx, cancel := contextWithDeadline(t)
			defer cancel()
			if got := f.app.vendor.send(ctx, f.push(1, 1)); got.Verdict != Failed || !errors.Is(got.Err, context.DeadlineExceeded) {
				t.Errorf("outcome %+v, want a timeout", got)
			}
		})
	}
}

func TestAPNsMovesToAnotherConnectionAfterGOAWAY(t *testing.T) {
	f := fakes(t)[0]
	f.Script(func(string) *vendors.Fault { return &vendors.Fault{GoAway: true} })
	for i := range int64(5) {
		if got := f.send(t, f.push(i, i)); got.Verdict != Sent {
			t.Fatalf("push %d: %+v", i, got)
		}
	}
	if n, _ := f.Phone(f.phone).Number(); n != 4 {
		t.Errorf("the phone shows %d, want 4", n)
	}
}

// However many pushes wait, one connection is dialled: Apple takes many at once for an
// attack.
func TestAPNsKeepsOneConnection(t *testing.T) {
	a := vendors.NewAPNs(t)
	f := fake{&a.Vendor, APNs, load(t, &a.Vendor, a.Entry()), []byte("0a1b2c3d"), "0a1b2c3d"}
	var mu sync.Mutex
	connections := map[string]bool{}
	inner := a.Server.Config.Handler
	a.Server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		connections[r.RemoteAddr] = true
		mu.Unlock()
		inner.ServeHTTP(w, r)
	})
	var dialled atomic.Int64
	transport := f.app.vendor.(*apns).client.Transport.(*singleDialTransport).next.(*http.Transport)
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		dialled.Add(1)
		return dial(ctx, network, address)
	}
	version := int64(0)
	atOnce := func(n int, mayFail bool) {
		var all sync.WaitGroup
		for range n {
			version++
			p := f.push(version, version)
			all.Go(func() {
				if got := f.send(t, p); got.Verdict != Sent && !mayFail {
					t.Errorf("push %d: %+v", p.Version, got)
				}
			})
		}
		all.Wait()
	}
	for _, step := range []struct {
		name    string
		before  func()
		mayFail bool // as what is on a connection that breaks
	}{
		{"at the start", func() {}, false},
		{"after a GOAWAY", func() {
			f.Script(vendors.Once(vendors.Fault{GoAway: true}))
			atOnce(1, false)
		}, false},
		{"after a break", f.Server.CloseClientConnections, true},
	} {
		step.before()
		dialled.Store(0)
		clear(connections)
		atOnce(200, step.mayFail)
		// After a GOAWAY some may still be processed on the connection that ends.
		if d, n := dialled.Load(), len(connections); d > 1 || n < 1 || n > 2 {
			t.Errorf("%s: pushes used %d connections, and %d were dialled", step.name, n, d)
		}
	}
	if n := a.Credentials(); n != 1 {
		t.Errorf("%d provider tokens, want 1", n)
	}
}

func TestProviderTokensAreRenewed(t *testing.T) {
	a := vendors.NewAPNs(t)
	app := load(t, &a.Vendor, a.Entry())
	f := fake{&a.Vendor, APNs, app, []byte("0a1b2c3d"), "0a1b2c3d"}
	now := time.Date(2026, 3, 2, 9, 10, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	a.Now, app.vendor.(*apns).token.now = clock, clock
	for _, step := range []struct {
		at     string
		name   string
		expire bool
		want   Verdict
		tokens int
	}{
		{"09:10", "the first push", false, Sent, 1},
		{"09:29", "within the half hour", false, Sent, 1},
		{"09:30", "after the half hour", false, Sent, 2},
		{"09:40", "expired at the vendor, but too young to renew", true, Failed, 2},
		{"09:50", "20 minutes after the last", false, Sent, 3},
		{"10:00", "too soon for the next", false, Sent, 3},
		{"10:30", "after the next half hour", false, Sent, 4},
		{"10:55", "expired at the vendor, and old enough", true, Sent, 5},
	} {
		at, err := time.Parse("15:04", step.at)
		if err != nil {
			t.Fatal(err)
		}
		now = time.Date(2026, 3, 2, at.Hour(), at.Minute(), 0, 0, time.UTC).Add(signedEarly)
		if step.expire {
			a.Expire()
		}
		got := f.send(t, f.push(1, 1))
		if got.Verdict != step.want || a.Credentials() != step.tokens {
			t.Errorf("%s, %s: %+v with %d tokens, want %s with %d", step.at, step.name, got, a.Credentials(), step.want, step.tokens)
		}
		if step.want == Failed && (!got.Pause || got.After != 10*time.Minute-signedEarly) {
			t.Errorf("%s: %+v, want a pause of almost 10m", step.name, got)
		}
	}
	sound(t, &a.Vendor)
}

// APNs refuses more than one new token in 20 minutes.
func TestProcessesShareProviderTokens(t *testing.T) {
	a := vendors.NewAPNs(t)
	now := time.Now() // one half hour, also if the test runs into the next
	for range 3 {
		f := fake{&a.Vendor, APNs, load(t, &a.Vendor, a.Entry()), []byte("0a1b2c3d"), "0a1b2c3d"}
		f.app.vendor.(*apns).token.now = func() time.Time { return now }
		if got := f.send(t, f.push(1, 1)); got.Verdict != Sent {
			t.Errorf("%+v", got)
		}
	}
	if n := a.Credentials(); n != 1 {
		t.Errorf("%d provider tokens, want 1", n)
	}
	sound(t, &a.Vendor)
}

func TestAccessTokensAreShared(t *testing.T) {
	v := vendors.NewFCM(t)
	f := fake{&v.Vendor, FCM, load(t, &v.Vendor, v.Entry()), []byte("token-of-a-phone"), ""}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if got := f.send(t, f.push(1, 1)); got.Verdict != Sent {
				t.Errorf("%+v", got)
			}
		})
	}
	all.Wait()
	if n := v.Credentials(); n != 1 {
		t.Errorf("%d access tokens, want 1", n)
	}
	v.Revoke()
	if got := f.send(t, f.push(2, 2)); got.Verdict != Sent || v.Credentials() != 2 {
		t.Errorf("after a token was revoked: %+v with %d tokens", got, v.Credentials())
	}
	token := f.app.vendor.(*fcm).token
	token.renew = time.Now()
	if got := f.send(t, f.push(3, 3)); got.Verdict != Sent || v.Credentials() != 3 {
		t.Errorf("before a token ends: %+v with %d tokens", got, v.Credentials())
	}
	sound(t, &v.Vendor)
}

func TestAccessTokensThatAreNotGranted(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault vendors.Fault
		want  Outcome
	}{
		{"a revoked key", vendors.Fault{Status: 400, Reason: "invalid_grant"}, Outcome{Verdict: Failed, Reason: "token: invalid_grant", After: faultPause, Pause: true}},
		{"overload", vendors.Fault{Status: 503, Header: http.Header{"Retry-After": {"9"}}}, Outcome{Verdict: Failed, Reason: "token: HTTP 503", After: 9 * time.Second, Pause: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := vendors.NewFCM(t)
			f := fake{&v.Vendor, FCM, load(t, &v.Vendor, v.Entry()), []byte("token-of-a-phone"), ""}
			v.ScriptTokens(func() *vendors.Fault { return &tt.fault })
			if diff := cmp.Diff(tt.want, f.send(t, f.push(1, 1))); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLargeAlertsAreNotSent(t *testing.T) {
	for _, f := range fakes(t) {
		t.Run(string(f.platform), func(t *testing.T) {
			p := f.push(1, 1)
			p.Alert = &outbound.Alert{ConversationID: "lunch", Seq: 1, Body: strings.Repeat("\x01", 1000)} // six bytes each in JSON
			if got := f.send(t, p); got.Verdict != TooLarge {
				t.Errorf("outcome %+v, want too_large", got)
			}
			p.Alert.Body = strings.Repeat("ü", 1024) // what an event may carry
			if got := f.send(t, p); got.Verdict != Sent {
				t.Errorf("outcome %+v, want sent", got)
			}
			sound(t, f.Vendor)
		})
	}
}

func TestSilentPushesOfIOS(t *testing.T) {
	for _, tt := range []struct {
		name     string
		settings map[string]any
		number   int64
		want     string
	}{
		{"the system sets the icon", nil, 5, "alert"},
		{"0 clears the notification centre too", nil, 0, "alert"},
		{"the app decides what 0 does", map[string]any{"zero": "background"}, 0, "background"},
		{"that is about 0 only", map[string]any{"zero": "background"}, 5, "alert"},
		{"the app is woken", map[string]any{"background": true}, 5, "background"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := vendors.NewAPNs(t)
			entry := a.Entry()
			for k, v := range tt.settings {
				entry[k] = v
			}
			f := fake{&a.Vendor, APNs, load(t, &a.Vendor, entry), []byte("0a1b2c3d"), "0a1b2c3d"}
			if got := f.send(t, f.push(1, tt.number)); got.Verdict != Sent {
				t.Fatalf("%+v", got)
			}
			if got := a.Pushes()[0].Header.Get("Apns-Push-Type"); got != tt.want {
				t.Errorf("push type %s, want %s", got, tt.want)
			}
			if n, ok := a.Phone(f.phone).Number(); !ok || n != tt.number {
				t.Errorf("the phone shows %d, want %d", n, tt.number)
			}
			sound(t, &a.Vendor)
		})
	}
}

func TestTokens(t *testing.T) {
	w := vendors.NewWebPush(t)
	good := string(subscriptionOf(t, w))
	for _, tt := range []struct {
		name     string
		platform Platform
		token    string
		ok       bool
	}{
		{"APNs", APNs, strings.Repeat("0aF", 20), true},
		{"APNs with a path", APNs, "../0a1b2c3d4e5f", false},
		{"half a byte", APNs, "0a1b2c3d4", false},
		{"FCM", FCM, "cX1:APA91bH_-x", true},
		{"FCM with a space", FCM, "cX1 APA91bHabc", false},
		{"a subscription", WebPush, good, true},
		{"one with the time that browsers add", WebPush, strings.Replace(good, "{", `{"expirationTime":null,`, 1), true},
		{"UnifiedPush", UnifiedPush, good, true},
		{"one that is padded", WebPush, strings.Replace(good, "{", `{"expirationTime":"`+strings.Repeat("0", 4096)+`",`, 1), false},
		{"a field too many", WebPush, strings.Replace(good, "{", `{"x":1,`, 1), false},
		{"no keys", WebPush, `{"endpoint":"https://push.example/1"}`, false},
		{"a point beside the curve", WebPush, strings.Replace(good, `"p256dh":"B`, `"p256dh":"A`, 1), false},
		{"a short secret", WebPush, `{"endpoint":"https://push.example/1","keys":{"p256dh":"x","auth":"AAAA"}}`, false},
		{"no URL", WebPush, strings.Replace(good, "https://", "", 1), false},
		{"not JSON", WebPush, "0a1b2c3d4e5f", false},
		{"an unknown platform", "hms", "0a1b2c3d4e5f", false},
		{"keys that are padded", WebPush, strings.Replace(good, `"auth":"`, `"auth":"`+strings.Repeat(`\n`, 4096), 1), false},
	} {
		if wrong := tt.platform.CheckToken([]byte(tt.token)); (wrong == "") != tt.ok {
			t.Errorf("%s: %q", tt.name, wrong)
		}
	}
}

// certificate writes a certificate for an app with its key, and returns the
// file.
func certificate(t *testing.T, app string, ends time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, certificateOf(app, ends), certificateOf(app, ends), &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "certificate.pem")
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
