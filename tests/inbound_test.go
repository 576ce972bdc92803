package tests

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

// withFiles runs the program with a limit on open files.
func withFiles(t *testing.T, files int, args ...string) *process {
	t.Helper()
	return launch(t, func(cmd *exec.Cmd) {
		shell, err := exec.LookPath("sh")
		if err != nil {
			t.Fatal(err)
		}
		cmd.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, files), cmd.Path}, cmd.Args[1:]...)
		cmd.Path = shell
	}, args...)
}

// A server with a low limit on open files serves authenticated clients while unauthenticated
// clients hold as many connections as they can get.
func TestUnauthenticatedConnections(t *testing.T) {
	t.Parallel()
	const files, strangers = 300, 400
	for name, says := range map[string]string{
		"nothing":                   "",
		"a wrong key":               "POST /v1/badges/query HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong\r\nContent-Length: 100000\r\n\r\n",
		"one request after another": strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n", 100),
		"a WebSocket without hello": handshake(wsKey, wsVersion, wsProtocol),
	} {
		t.Run(name, func(t *testing.T) {
			p := withFiles(t, files, "serve", "--listen=127.0.0.1:0", "--migrate", "--database-url="+newDatabase(t), "--max-connections=2")
			here := connect(t, p.url, "ann")
			publish(t, p, delivered("c", 1, `"ann","bob"`)) // an address that has sent a valid key is not slowed down for wrong keys
			here.awaitTotal(1)
			for range strangers {
				conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(p.url, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = conn.Close() })
				_, _ = io.WriteString(conn, says) // the connection may have ended
			}
			http.DefaultClient.CloseIdleConnections()
			wantStatus(t, publisherKey, http.MethodGet, p.url+"/readyz", "", "", http.StatusOK)
			publish(t, p, delivered("c", 2, `"ann","bob"`))
			here.awaitTotal(2)
			connect(t, p.url, "bob").awaitTotal(2) // the second of two connections
			page := metricsOf(t, p)
			if n := metric(t, page, `badged_http_connections{state="unauthenticated"}`); n > files/3 {
				t.Errorf("%v connections are unauthenticated", n)
			}
			if strings.Contains(p.out.String(), "too many open files") {
				t.Error("the process ran out of open files")
			}
		})
	}
}

// The server does not wait long for a body that does not arrive: it answers unauthenticated requests
// at once, and other requests with 408.
func TestBodyThatNeverComes(t *testing.T) {
	t.Parallel()
	p := serve(t, newDatabase(t), "--admin-keys=op=admin-secret")
	for _, test := range []struct {
		name, route, key, more string
		want                   int
	}{
		{"events", "POST /v1/events", publisherKey, "Content-Type: application/json", http.StatusRequestTimeout},
		{"events in chunks", "POST /v1/events", publisherKey, "Content-Type: application/json\r\nTransfer-Encoding: chunked", http.StatusRequestTimeout},
		{"a query", "POST /v1/badges/query", publisherKey, "", http.StatusRequestTimeout},
		{"a command", "POST /v1/commands", token(t, "ann"), "", http.StatusRequestTimeout},
		{"an operation", "POST /admin/v1/verifications", "admin-secret", "", http.StatusRequestTimeout},
		{"events without a key", "POST /v1/events", "", "", http.StatusUnauthorized},
		{"a command without a token", "POST /v1/commands", "", "", http.StatusUnauthorized},
		{"an operation without a key", "POST /admin/v1/verifications", "", "", http.StatusUnauthorized},
		{"no route", "POST /v1/nothing", publisherKey, "", http.StatusNotFound},
		{"a probe", "GET /livez", "", "", http.StatusOK},
		{"a page", "GET /admin/", "", "", http.StatusOK},
		{"an upgrade", "GET /v1/ws", "", "", http.StatusBadRequest},
		{"an erasure, which has no body", "POST /admin/v1/users/ann/erase", "admin-secret", "", http.StatusBadRequest},
		{"an erasure in chunks", "POST /admin/v1/users/ann/erase", "admin-secret", "Transfer-Encoding: chunked", http.StatusBadRequest},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := dialRaw(t, p)
			head := test.route + " HTTP/1.1\r\nHost: localhost\r\n"
			if test.key != "" {
				head += "Authorization: Bearer " + test.key + "\r\n"
			}
			if test.more != "" {
				head += test.more + "\r\n"
			}
			if !strings.Contains(test.more, "chunked") {
				head += "Content-Length: 100000\r\n"
			}
			c.send([]byte(head + "\r\n"))
			res := c.answer()
			defer res.Body.Close()
			if res.StatusCode != test.want {
				t.Errorf("the answer is %d, want %d", res.StatusCode, test.want)
			}
			if _, err := io.Copy(io.Discard, c.in); err != nil { // until the server ends the connection
				t.Errorf("the connection does not end: %v", err)
			}
		})
	}
}

// A request with a compressed body is refused with this reason, and nothing is stored.
func TestCompressedBodies(t *testing.T) {
	t.Parallel()
	p := serve(t, newDatabase(t))
	var body bytes.Buffer
	z := gzip.NewWriter(&body)
	if _, err := z.Write([]byte(delivered("c", 1, `"ann"`))); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	for path, key := range map[string]string{"/v1/events": publisherKey, "/v1/commands": token(t, "ann")} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+path, bytes.NewReader(body.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Content-Encoding", "gzip")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != http.StatusUnsupportedMediaType || !strings.Contains(string(answer), "Content-Encoding") {
			t.Errorf("%s: %d %s, %v", path, res.StatusCode, answer, err)
		}
	}
	wantTotal(t, p, "ann", publish(t, p, delivered("d", 1, `"ann"`)), 1)
}
