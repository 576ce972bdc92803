package tests

import (
	"crypto/tls"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/certtest"
)

// A server with a certificate uses TLS with apps. It uses a renewed certificate for new connections
// without a restart, and existing connections continue.
func TestListenerWithTLS(t *testing.T) {
	t.Parallel()
	ca, dir := certtest.NewAuthority(t), t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write := func(cert, key []byte) {
		for path, text := range map[string][]byte{certFile: cert, keyFile: key} {
			writeFile(t, path, text)
		}
	}
	database, files := newDatabase(t), []string{"--tls-cert=" + certFile, "--tls-key=" + keyFile}

	write(ca.Issue(t, 2, time.Now().Add(-time.Minute)))
	for _, args := range [][]string{{"serve", "--listen=127.0.0.1:0"}, {"config", "check"}} {
		args = append(append(args, "--database-url="+database, "--publisher-keys=chat="+publisherKey), files...)
		if stdout, stderr, code := command(t, args...); code == 0 || !strings.Contains(stdout+stderr, "--tls-cert: the certificate "+certFile+" has expired at ") {
			t.Errorf("%v with an expired certificate exits with %d:\n%s%s", args[0], code, stdout, stderr)
		}
	}

	write(ca.Issue(t, 3, time.Now().Add(time.Hour)))
	p := serve(t, database, files...)
	if !strings.HasPrefix(p.url, "https://127.0.0.1:") {
		t.Errorf("it is ready on %s", p.url)
	}
	plain := strings.Replace(p.url, "https://", "http://", 1)
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions} {
		if status, _, answer := request(t, method, plain+"/v1/events", "", ""); status != http.StatusBadRequest || !strings.Contains(answer, "use https://") {
			t.Errorf("%s without TLS is answered with %d %q", method, status, answer)
		}
	}
	// serial returns the serial number of the certificate that a new connection gets.
	serial := func() int64 {
		conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: ca.Pool}}).DialContext(t.Context(), "tcp", strings.TrimPrefix(p.url, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		secure, _ := conn.(*tls.Conn)
		return secure.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	app, err := dial(t, p.url, token(t, "ann"), &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool}, ForceAttemptHTTP2: true}})
	if err == nil {
		err = app.hello()
	}
	if err != nil {
		t.Fatal(err)
	}
	app.awaitTotal(0)

	write(ca.Issue(t, 4, time.Now().Add(2*time.Hour)))
	await(t, "the renewed certificate", func() bool { return serial() == 4 })
	write([]byte("half a certif"), nil)
	p.awaitSays("the new certificate cannot be used")
	if got := serial(); got != 4 {
		t.Errorf("with broken files a connection gets certificate %d", got)
	}
	app.say(`{"t":"read_all","id":1}`)
	app.await("an answer on the earlier connection", func() bool { return app.answers[1] == "ok" })
}
