// Package vendors has fakes of the push vendors APNs, FCM and Web Push for tests. They use TLS and
// HTTP/2, check requests like the real vendors, and have phones that apply the pushes.
package vendors

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Push is a push that a vendor has delivered to a phone.
type Push struct {
	Token string
	// Collapse is the collapse key: the push replaces an older push with the same key that was not
	// delivered yet.
	Collapse string
	Alert    bool
	// Title and Body are the texts of an alert.
	Title, Body string
	// Badged is the content that the app reads.
	Badged Content
	Header http.Header
}

// Content is the part of a push that the app reads.
type Content struct {
	Epoch          string            `json:"epoch"`
	Version        int64             `json:"version"`
	Number         int64             `json:"number"`
	ConversationID string            `json:"conversation_id"`
	Seq            int64             `json:"seq"`
	Data           map[string]string `json:"data"`
	Retract        []struct {
		ConversationID string `json:"conversation_id"`
		Seq            int64  `json:"seq"`
		Tag            string `json:"tag"`
	} `json:"retract"`
}

// Fault says how a vendor answers a push instead of accepting it.
type Fault struct {
	// Status and Reason are in the answer. Status 0 accepts the push.
	Status int
	Reason string
	Header http.Header
	// Timestamp is the timestamp in an answer 410 of APNs.
	Timestamp time.Time
	// Deliver delivers the push to the phone although the answer is an error.
	Deliver bool
	// Reset resets the stream instead of answering.
	Reset bool
	// GoAway makes the vendor send GOAWAY, so that the client opens another connection.
	GoAway bool
	// Hold delays the answer until the channel is closed.
	Hold <-chan struct{}
}

// Vendor is the part that all vendors have in common. Its methods are safe for concurrent use.
type Vendor struct {
	URL    string
	Server *httptest.Server
	// CAFile is a file with the certificate of the server.
	CAFile string
	dir    string

	mu         sync.Mutex
	script     func(token string) *Fault
	phones     map[string]*Phone
	pushes     []Push
	violations []string
	came       chan struct{}
	// credentials is the number of provider tokens (APNs) or access tokens (FCM) that were used.
	credentials int
}

// start starts the vendor's server, which ends with the test.
func (v *Vendor) start(t testing.TB, h http.Handler) {
	t.Helper()
	v.phones, v.came, v.dir = map[string]*Phone{}, make(chan struct{}), t.TempDir()
	v.Server = httptest.NewUnstartedServer(h)
	v.Server.EnableHTTP2 = true
	v.Server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	v.Server.StartTLS()
	t.Cleanup(v.Kill)
	v.URL = v.Server.URL
	v.CAFile = v.write(t, "ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: v.Server.Certificate().Raw}))
}

// Kill closes all connections, even while requests are handled, and refuses new connections.
func (v *Vendor) Kill() {
	_ = v.Server.Listener.Close() // the listener may be closed already
	v.Server.CloseClientConnections()
	v.Server.Close()
}

// Restart starts the server again at the same address, after Kill.
func (v *Vendor) Restart(t testing.TB) {
	t.Helper()
	was := v.Server
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", was.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	v.Server = httptest.NewUnstartedServer(was.Config.Handler)
	_ = v.Server.Listener.Close() // its own listener is not used
	v.Server.Listener, v.Server.EnableHTTP2, v.Server.Config.ErrorLog = l, true, was.Config.ErrorLog
	v.Server.StartTLS()
}

// write writes a file into the vendor's directory and returns its path.
func (v *Vendor) write(t testing.TB, name string, text []byte) string {
	t.Helper()
	file := filepath.Join(v.dir, name)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// newECKey makes a key. It also writes the key to a file in PEM, and returns the path of the file.
func (v *Vendor) newECKey(t testing.TB, name string) (*ecdsa.PrivateKey, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key, v.write(t, name, pemKey(t, key))
}

func pemKey(t testing.TB, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// Script sets a function that decides how the vendor answers from now on; nil accepts every push.
// It is called with the token of each push that has passed the vendor's checks.
func (v *Vendor) Script(answer func(token string) *Fault) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.script = answer
}

// Once returns a script that answers with the given faults, one after the other, and then accepts
// every push.
func Once(faults ...Fault) func(string) *Fault {
	var mu sync.Mutex
	return func(string) *Fault {
		mu.Lock()
		defer mu.Unlock()
		if len(faults) == 0 {
			return nil
		}
		next := faults[0]
		faults = faults[1:]
		return &next
	}
}

// Pushes returns the pushes that were delivered to phones, oldest first.
func (v *Vendor) Pushes() []Push {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]Push(nil), v.pushes...)
}

// Came returns a channel that is closed when the next push is delivered.
func (v *Vendor) Came() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.came
}

// Violations returns descriptions of the requests that the real vendor would not allow.
func (v *Vendor) Violations() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]string(nil), v.violations...)
}

// Credentials returns how many provider tokens or access tokens senders have used.
func (v *Vendor) Credentials() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.credentials
}

func (v *Vendor) violate(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.violations = append(v.violations, fmt.Sprintf(format, args...))
}

// Phone returns the phone with a token. It makes the phone if necessary.
func (v *Vendor) Phone(token string) *Phone {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.phones[token]
	if p == nil {
		p = &Phone{Token: token, alerts: map[string]Push{}}
		v.phones[token] = p
	}
	return p
}

// accept answers a push that has passed the vendor's checks, as the script says. ok writes the
// answer if the push is accepted, fail if it is not.
func (v *Vendor) accept(w http.ResponseWriter, r *http.Request, p Push, ok func(), fail func(Fault)) {
	v.mu.Lock()
	script := v.script
	v.mu.Unlock()
	var f *Fault
	if script != nil {
		f = script(p.Token)
	}
	if f == nil {
		f = &Fault{}
	}
	if f.Hold != nil {
		select {
		case <-f.Hold:
		case <-r.Context().Done():
			return
		}
	}
	if f.Status == 0 && !f.Reset || f.Deliver {
		v.deliver(p)
	}
	if f.Reset {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), f.Header)
	if f.GoAway {
		w.Header().Set("Connection", "close") // net/http then sends GOAWAY
	}
	if f.Status == 0 {
		ok()
	} else {
		fail(*f)
	}
}

func (v *Vendor) deliver(p Push) {
	phone := v.Phone(p.Token)
	if wrong := phone.apply(p); wrong != "" {
		v.violate("phone %s: %s", p.Token, wrong)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pushes = append(v.pushes, p)
	close(v.came)
	v.came = make(chan struct{})
}

// Phone is a device that applies pushes in the order of their versions, as the documentation of
// badged demands. Its methods are safe for concurrent use.
type Phone struct {
	Token string

	mu      sync.Mutex
	epoch   string
	version int64
	number  int64
	applied int
	repeats int
	// alerts has the alerts on the screen, by collapse key.
	alerts map[string]Push
}

// apply applies a push. It returns a description of what is wrong with the push, "" if nothing is.
func (p *Phone) apply(push Push) (wrong string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := push.Badged
	same := p.applied > 0 && b.Epoch == p.epoch
	switch {
	case b.Epoch == "":
		return "a push without an epoch"
	case same && b.Version < p.version:
		// The push is older than the phone's state.
	case same && b.Version == p.version && b.Number != p.number:
		wrong = fmt.Sprintf("version %d of epoch %s is %d and %d", b.Version, b.Epoch, p.number, b.Number)
	case same && b.Version == p.version && !push.Alert:
		p.repeats++
	}
	if !same || b.Version >= p.version {
		p.epoch, p.version, p.number = b.Epoch, b.Version, b.Number
	}
	p.applied++
	for _, r := range b.Retract {
		delete(p.alerts, r.Tag)
	}
	if push.Alert {
		p.alerts[push.Collapse] = push
	}
	return wrong
}

// Number returns the number on the app's icon. It returns false if no push was applied yet.
func (p *Phone) Number() (int64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.number, p.applied > 0
}

// Repeats returns the number of silent pushes with a version that the phone already had.
func (p *Phone) Repeats() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.repeats
}

// Alerts returns the alerts on the screen.
func (p *Phone) Alerts() []Push {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]Push, 0, len(p.alerts))
	for _, a := range p.alerts {
		all = append(all, a)
	}
	return all
}

// WriteConfig writes a push configuration with the given apps to a file, and returns its path.
func WriteConfig(t testing.TB, apps map[string]map[string]any) string {
	t.Helper()
	text, err := json.MarshalIndent(apps, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "push.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// writeJSON writes an answer with a JSON body.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
