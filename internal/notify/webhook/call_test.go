package webhook

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/badged/badged/internal/notify/outbound"
)

// tlsEndpoint is an endpoint over TLS.
func tlsEndpoint(t *testing.T, h http.HandlerFunc) (url string, client *http.Client) {
	t.Helper()
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	return server.URL, server.Client()
}

func newCaller(client *http.Client) *Caller { return &Caller{Client: client, Origin: "badged.example"} }

func TestHandshake(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		header []string // of the answer
		rate   int
		want   string // the error; "" for none
	}{
		{"grants without a limit", 200, []string{"WebHook-Allowed-Origin", "badged.example", "WebHook-Allowed-Rate", "*"}, 0, ""},
		{"grants all origins a rate", 200, []string{"WebHook-Allowed-Origin", "*", "WebHook-Allowed-Rate", "120"}, 120, ""},
		{"grants without a rate", 204, []string{"WebHook-Allowed-Origin", "*"}, 0, ""},
		{"grants with a bad rate", 200, []string{"WebHook-Allowed-Origin", "*", "WebHook-Allowed-Rate", "lots"}, 0, "neither * nor a number"},
		{"grants a great rate", 200, []string{"WebHook-Allowed-Origin", "*", "WebHook-Allowed-Rate", "2147483648"}, math.MaxInt32, ""},
		{"grants a rate beyond all numbers", 200, []string{"WebHook-Allowed-Origin", "*", "WebHook-Allowed-Rate", strings.Repeat("9", 30)}, math.MaxInt32, ""},
		{"grants less than nothing", 200, []string{"WebHook-Allowed-Origin", "*", "WebHook-Allowed-Rate", "-99999999999"}, 0, "neither * nor a number"},
		{"grants nothing", 200, []string{"WebHook-Allowed-Origin", "*", "WebHook-Allowed-Rate", "0"}, 0, "neither * nor a number"},
		{"allows another sender", 200, []string{"WebHook-Allowed-Origin", "other.example"}, 0, "it allows another origin than badged.example"},
		{"does not know OPTIONS", 405, nil, 0, ""},
		{"does not know the path for OPTIONS", 404, nil, 0, ""},
		{"does not implement OPTIONS", 501, nil, 0, ""},
		{"answers OPTIONS in general", 200, []string{"Allow", "OPTIONS, POST"}, 0, ""},
		{"redirects", 302, []string{"Location", "https://other.example/"}, 0, ""},
		{"forbids", 403, nil, 0, "it answered OPTIONS with 403 Forbidden"},
		{"wants a login", 401, nil, 0, "it answered OPTIONS with 401 Unauthorized"},
		{"is gone", 410, nil, 0, "it answered OPTIONS with 410 Gone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, client := tlsEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodOptions || r.Header.Get("WebHook-Request-Origin") != "badged.example" || r.URL.String() != "/hook?token=s3cret" {
					t.Errorf("the endpoint got %s %s of the origin %q", r.Method, r.URL, r.Header.Get("WebHook-Request-Origin"))
				}
				for i := 0; i < len(c.header); i += 2 {
					w.Header().Set(c.header[i], c.header[i+1])
				}
				w.WriteHeader(c.status)
			})
			client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			rate, err := newCaller(client).Handshake(t.Context(), url+"/hook?token=s3cret")
			_, isRefusal := errors.AsType[*RefusedError](err)
			if rate != c.rate || (err == nil) != (c.want == "") || err != nil && (!isRefusal || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("rate %d, %v, want %d, %q", rate, err, c.rate, c.want)
			}
		})
	}
}

func TestHandshakeNeedsAnAnswer(t *testing.T) {
	url, _ := tlsEndpoint(t, func(http.ResponseWriter, *http.Request) {})
	_, err := newCaller(&http.Client{}).Handshake(t.Context(), url+"/hook?token=s3cret")
	if err == nil || !strings.Contains(err.Error(), "certificate") || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("an endpoint with the certificate of a stranger: %v", err)
	}
}

// Each secret signs, so that a receiver verifies with the old or the new one.
func TestSecretsRotate(t *testing.T) {
	older, newer := make([]byte, 24), make([]byte, 64)
	_, _ = rand.Read(older)
	_, _ = rand.Read(newer)
	calls := 0
	url, client := tlsEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
		calls++
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		verify(t, older, body, r.Header)
		verify(t, newer, body, r.Header)
		if n := len(strings.Fields(r.Header.Get("webhook-signature"))); n != 2 {
			t.Errorf("%d signatures, want 2", n)
		}
		w.WriteHeader(http.StatusAccepted)
	})
	for _, batch := range []int{1, 100} {
		w := outbound.Webhook{Name: "crm", URL: url, Secrets: [][]byte{newer, older}, Batch: batch}
		if a := newCaller(client).Test(t.Context(), w); a.Err != nil || a.Status != http.StatusAccepted || a.Duration <= 0 {
			t.Errorf("the test returned %+v", a)
		}
	}
	if calls != 2 {
		t.Errorf("%d calls arrived, want 2", calls)
	}
}

func TestTestsReportFailures(t *testing.T) {
	url, client := tlsEndpoint(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	w := outbound.Webhook{Name: "crm", URL: url, Secrets: [][]byte{make([]byte, 24)}, Batch: 1}
	if a := newCaller(client).Test(t.Context(), w); a.Status != http.StatusTeapot || a.Err == nil || a.Err.Error() != "the endpoint answered 418 I'm a teapot" {
		t.Errorf("the test returned %+v", a)
	}
	w.URL = "https://127.0.0.1:1/hook?token=s3cret"
	if a := newCaller(client).Test(t.Context(), w); a.Status != 0 || a.Err == nil || strings.Contains(a.Err.Error(), "s3cret") {
		t.Errorf("the test of an endpoint that is down returned %+v", a)
	}
}

// What an endpoint answers in place of HTTP is quoted in part, without characters that
// cannot be stored or shown.
func TestErrorsQuoteLittle(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	answers := make(chan string, 3)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(conn).ReadString('\n')
			_, _ = io.WriteString(conn, <-answers)
			_ = conn.Close()
		}
	}()
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\nbad header " + strings.Repeat("x", 60_000) + "\r\n\r\n",
		strings.Repeat("\x00\xff\x1b", 1000) + "\r\n\r\n",
		"HTTP/1.1 200 OK\r\n\x00\xff: " + strings.Repeat("\u0301", 1000) + "\r\n\r\n",
	} {
		answers <- answer
		caller := newCaller(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
		a := caller.Test(t.Context(), outbound.Webhook{Name: "crm", URL: "http://" + listener.Addr().String(), Secrets: [][]byte{make([]byte, 24)}, Batch: 1})
		if a.Err == nil || len(a.Err.Error()) > 510 || !utf8.ValidString(a.Err.Error()) || strings.ContainsAny(a.Err.Error(), "\x00\x1b\r\n") {
			t.Errorf("the error is %q", a.Err)
		}
	}
}

// Logs say which webhook fails and why, without its URL and its secrets.
func TestLogsHaveNoSecrets(t *testing.T) {
	var log bytes.Buffer
	q := newQueue(outbound.Webhook{Name: "crm", URL: "https://127.0.0.1:1/hook?token=s3cret"})
	stop := start(t, q, http.DefaultTransport, func(cfg *Config) {
		cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	q.badge("crm", "ada", 1, 1)
	q.await(t, "the failure is recorded", func() bool { return q.webhooks["crm"].LastError != "" })
	stop()
	text := log.String() + q.webhook("crm").LastError
	if !strings.Contains(text, "crm") || !strings.Contains(text, "connection refused") {
		t.Errorf("the log does not say what failed: %s", text)
	}
	if strings.Contains(text, "s3cret") || strings.Contains(text, "whsec") || strings.Contains(text, "twenty-four") {
		t.Errorf("the log has a secret: %s", text)
	}
}

// A call that panics is a failure of that call.
func TestPanicIsAFailure(t *testing.T) {
	q := newQueue(outbound.Webhook{Name: "crm", URL: "https://crm.example/hook"})
	stop := start(t, q, panicking{})
	q.badge("crm", "ada", 1, 1)
	q.await(t, "the failure is recorded", func() bool { return q.webhooks["crm"].LastError != "" })
	stop()
	if w := q.webhook("crm"); !strings.Contains(w.LastError, "its log says why") {
		t.Errorf("the webhook is %+v", w)
	}
	if r := q.rows["crm"]["ada"]; r.taken || !r.due.After(time.Now()) {
		t.Errorf("the change is not tried again: %+v", r)
	}
}

type panicking struct{}

func (panicking) RoundTrip(*http.Request) (*http.Response, error) { panic("a bug") }
