package receivers

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Webhook opens an endpoint, which verifies each call.
func Webhook(ctx context.Context) (*Receiver, error) {
	return open(ctx, func(l *life, r *Receiver) {
		e := newEndpoint(l)
		r.Args = []string{"--webhooks-allow-private"}
		r.Env = []string{
			"BADGED_ADMIN_KEYS=ops=" + AdminKey,
			"SSL_CERT_FILE=" + l.write("ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: e.server.Certificate().Raw})),
		}
		r.AtOnce = true
		r.Put = func(ctx context.Context, call Call, h Hook) error {
			url := e.server.URL
			if h.Fails {
				url += failing
			}
			return call(ctx, http.MethodPut, "/admin/v1/webhooks/"+h.Name, text(map[string]any{
				"url": url, "events": []string{"badge.changed"}, "secrets": []string{e.secret}, "batch": h.Batch, "state": h.State,
			}))
		}
		r.Register = func(ctx context.Context, call Call, _ string) error {
			return r.Put(ctx, call, Hook{Name: "bench", State: "active", Batch: 1})
		}
		r.Take, r.Violations = e.take, e.violations
	})
}

// failing is the path of calls that fail.
const failing = "/fails"

// endpoint is the receiver of a webhook.
type endpoint struct {
	server   *httptest.Server
	secret   string
	verifier *standardwebhooks.Webhook

	mu    sync.Mutex
	told  []Told
	wrong []string
}

func newEndpoint(l *life) *endpoint {
	key := make([]byte, 24)
	_, _ = rand.Read(key)
	e := &endpoint{secret: "whsec_" + base64.StdEncoding.EncodeToString(key)}
	var err error
	if e.verifier, err = standardwebhooks.NewWebhook(e.secret); err != nil {
		l.Fatal(err)
	}
	e.server = httptest.NewUnstartedServer(e)
	e.server.EnableHTTP2 = true
	e.server.StartTLS()
	l.Cleanup(func() {
		e.server.CloseClientConnections()
		e.server.Close()
	})
	return e
}

// ServeHTTP implements http.Handler.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodOptions { // the handshake
		w.Header().Set("WebHook-Allowed-Origin", r.Header.Get("WebHook-Request-Origin"))
		return
	}
	if r.URL.Path == failing {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the server has ended
	}
	var all []struct {
		Type, Subject string
		Data          struct{ Version, Total int64 }
	}
	if err = e.verifier.Verify(body, r.Header); err == nil {
		if body[0] != '[' { // not a batch
			body = slices.Concat([]byte("["), body, []byte("]"))
		}
		err = json.Unmarshal(body, &all)
	}
	for _, event := range all {
		if event.Type != "badge.changed" && event.Type != "room.changed" {
			err = fmt.Errorf("an event of the type %q", event.Type)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.wrong = append(e.wrong, err.Error())
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	for _, event := range all {
		e.told = append(e.told, Told{event.Subject, event.Data.Total, event.Data.Version, time.Now()})
	}
	w.WriteHeader(http.StatusNoContent)
}

func (e *endpoint) take() []Told {
	e.mu.Lock()
	defer e.mu.Unlock()
	told := e.told
	e.told = nil
	return told
}

func (e *endpoint) violations() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.wrong...)
}
