package inbound

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/certtest"
)

// files are a certificate and its key.
type files struct{ cert, key string }

func newFiles(t *testing.T) files {
	dir := t.TempDir()
	return files{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
}

func (f files) write(t *testing.T, cert, key []byte) {
	t.Helper()
	for path, text := range map[string][]byte{f.cert: cert, f.key: key} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCertificatesThatCannotBeUsed(t *testing.T) {
	ca := certtest.NewAuthority(t)
	day := 24 * time.Hour
	good, goodKey := ca.Issue(t, 2, time.Now().Add(day/2))
	_, otherKey := ca.Issue(t, 3, time.Now().Add(day/2))
	old, oldKey := ca.Issue(t, 4, time.Now().Add(-time.Minute))
	early, earlyKey := ca.Issue(t, 5, time.Now().Add(2*day))
	for name, tt := range map[string]struct {
		cert, key []byte
		want      string
	}{
		"good":            {good, goodKey, ""},
		"another key":     {good, otherKey, "private key does not match public key"},
		"expired":         {old, oldKey, "has expired at "},
		"not yet valid":   {early, earlyKey, "is not valid before "},
		"no PEM":          {[]byte("hello"), goodKey, "failed to find any PEM data in certificate input"},
		"exchanged files": {goodKey, good, "failed to find"},
	} {
		f := newFiles(t)
		f.write(t, tt.cert, tt.key)
		_, err := LoadCertificate(f.cert, f.key)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), f.cert)):
			t.Errorf("%s: the error is %v, want %q and the name of the file", name, err, tt.want)
		}
		if err := os.Remove(f.key); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadCertificate(f.cert, f.key); err == nil || !strings.Contains(err.Error(), f.key) {
			t.Errorf("%s, without the key: %v", name, err)
		}
	}
}

func TestRenewal(t *testing.T) {
	ca, f := certtest.NewAuthority(t), newFiles(t)
	soon := time.Now().Add(time.Hour)
	cert, key := ca.Issue(t, 2, soon)
	f.write(t, cert, key)
	c, err := LoadCertificate(f.cert, f.key)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := NewListener(tls.NewListener(plain, c.TLS()), Limits{}, slog.New(slog.DiscardHandler), nil)
	server := &http.Server{ReadHeaderTimeout: Grace, ConnContext: ConnContext, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { Vouch(r.Context(), Holder{}) })}
	go func() { _ = server.Serve(l) }() // until it is closed
	t.Cleanup(func() { _ = server.Close() })

	// served returns the serial of the certificate that a client gets.
	served := func(client *http.Client) int64 {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+plain.Addr().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body) // it is empty
		if res.ProtoMajor != 1 || res.TLS.Version < tls.VersionTLS12 {
			t.Errorf("the answer comes over %s, %s", res.Proto, tls.VersionName(res.TLS.Version))
		}
		return res.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	newClient := func() *http.Client {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool}, ForceAttemptHTTP2: true}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	early := newClient()
	if got := served(early); got != 2 {
		t.Errorf("the certificate is %d", got)
	}
	if l.mu.Lock(); l.known != 1 {
		t.Errorf("%d connections are authenticated", l.known)
	}
	l.mu.Unlock()
	outdated := &tls.Dialer{Config: &tls.Config{RootCAs: ca.Pool, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}}
	if conn, err := outdated.DialContext(t.Context(), "tcp", plain.Addr().String()); err == nil {
		_ = conn.Close() // the test has failed
		t.Error("TLS 1.1 is accepted")
	}

	next, nextKey := ca.Issue(t, 3, soon.Add(time.Hour))
	old, oldKey := ca.Issue(t, 4, time.Now().Add(-time.Minute))
	for _, step := range []struct {
		what      string
		cert, key []byte
		fails     bool
		want      int64
	}{
		{"half of the new files", next, key, true, 2},
		{"the other half", next, nextKey, false, 3},
		{"an expired certificate", old, oldKey, true, 3},
		{"an empty file", nil, nextKey, true, 3},
		{"the former files", cert, key, false, 2},
	} {
		f.write(t, step.cert, step.key)
		if err := c.use(c.files.Read()); (err != nil) != step.fails {
			t.Errorf("%s: error %v", step.what, err)
		}
		if got := served(newClient()); got != step.want {
			t.Errorf("%s: a new connection gets certificate %d, want %d", step.what, got, step.want)
		}
		if got := served(early); got != 2 {
			t.Errorf("%s: the earlier connection has certificate %d", step.what, got)
		}
	}
}
