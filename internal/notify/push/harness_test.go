package push

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/badged/badged/internal/devtest/vendors"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client returns a client that trusts a vendor, in place of the one that
// refuses private networks.
func client(v *vendors.Vendor) func(bool) *http.Client {
	return func(bool) *http.Client { return v.Server.Client() }
}

// load returns the only app of a configuration.
func load(t testing.TB, v *vendors.Vendor, entry map[string]any) *App {
	t.Helper()
	apps, err := LoadApps(vendors.WriteConfig(t, map[string]map[string]any{"chat": entry}), client(v), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return apps["chat"]
}

// fake is a vendor of a test with one phone.
type fake struct {
	*vendors.Vendor
	platform Platform
	app      *App
	// token is what an app registers, and phone what the vendor calls it.
	token []byte
	phone string
}

// fakes starts every vendor.
func fakes(t testing.TB) []fake {
	t.Helper()
	a, f, w, u := vendors.NewAPNs(t), vendors.NewFCM(t), vendors.NewWebPush(t), vendors.NewWebPush(t)
	unified := u.Entry()
	unified["platform"] = "unifiedpush"
	return []fake{
		{&a.Vendor, APNs, load(t, &a.Vendor, a.Entry()), []byte("0a1b2c3d4e5f"), "0a1b2c3d4e5f"},
		{&f.Vendor, FCM, load(t, &f.Vendor, f.Entry()), []byte("token:of-a_phone"), "token:of-a_phone"},
		{&w.Vendor, WebPush, load(t, &w.Vendor, w.Entry()), subscriptionOf(t, w), "browser"},
		{&u.Vendor, UnifiedPush, load(t, &u.Vendor, unified), subscriptionOf(t, u), "browser"},
	}
}

func subscriptionOf(t testing.TB, w *vendors.WebPush) []byte {
	t.Helper()
	text, err := json.Marshal(w.Subscribe(t, "browser"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// push returns a silent push to the phone.
func (f *fake) push(version, number int64) *Push {
	return &Push{
		UserID: "ada", DeviceID: "phone", App: "chat", Environment: "production", Token: f.token,
		Epoch: "9a6c36fbe39f", Version: version, Number: number,
	}
}

// sound fails the test if the sender broke a rule of the vendor.
func sound(t *testing.T, v *vendors.Vendor) {
	t.Helper()
	for _, wrong := range v.Violations() {
		t.Errorf("the vendor complains: %s", wrong)
	}
}

// logBuffer is a log that tests read.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newLog returns a logger of everything. When the test ends, nothing in it may
// be one of the secrets.
func newLog(t *testing.T, secrets ...string) *slog.Logger {
	t.Helper()
	l := &logBuffer{}
	t.Cleanup(func() {
		text := l.String()
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("the log has the token %s:\n%s", secret, text)
			}
		}
	})
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug - 4}))
}

// send sends a push as the Sender does.
func (f *fake) send(t *testing.T, p *Push) Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), pushTimeout)
	defer cancel()
	return f.app.vendor.send(ctx, p)
}
