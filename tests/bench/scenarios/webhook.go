package scenarios

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
	"os"
	"slices"
	"sync"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/badged/badged/tests/bench/contest"
)

// endpoint receives webhooks over TLS, and verifies each call. It answers calls to the path failing with
// an error.
type endpoint struct {
	server   *httptest.Server
	caFile   string
	secret   string
	verifier *standardwebhooks.Webhook

	mu    sync.Mutex
	told  []string // users of calls since the last take
	wrong error
}

const failing = "/fails"

// newEndpoint starts an endpoint until the end of the run.
func newEndpoint(run *contest.Run) *endpoint {
	e := &endpoint{secret: "whsec_" + base64.StdEncoding.EncodeToString([]byte(rand.Text()))}
	e.verifier = contest.Must(standardwebhooks.NewWebhook(e.secret))
	file := contest.Must(os.CreateTemp("", "endpoint-*.pem"))
	e.caFile = file.Name()
	e.server = httptest.NewUnstartedServer(e)
	e.server.EnableHTTP2 = true
	e.server.StartTLS()
	run.Cleanup(func(context.Context) error {
		e.server.CloseClientConnections()
		e.server.Close()
		return os.Remove(e.caFile)
	})
	contest.Check(pem.Encode(file, &pem.Block{Type: "CERTIFICATE", Bytes: e.server.Certificate().Raw}))
	contest.Check(file.Close())
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
	var all []struct{ Type, Subject string }
	if err = e.verifier.Verify(body, r.Header); err == nil {
		if body[0] != '[' { // not a batch
			body = slices.Concat([]byte("["), body, []byte("]"))
		}
		err = json.Unmarshal(body, &all)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range all {
		if event.Type != "badge.changed" && event.Type != "room.changed" {
			err = fmt.Errorf("an event of the type %q", event.Type)
		}
		e.told = append(e.told, event.Subject)
	}
	if err != nil {
		e.wrong = fmt.Errorf("the endpoint was called: %w: %w", err, contest.ErrWrong)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// take returns the users of the calls since the last take.
func (e *endpoint) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	told := e.told
	e.told = nil
	return told
}

// violation returns an error if the server has made an invalid call.
func (e *endpoint) violation() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.wrong
}
