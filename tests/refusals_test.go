package tests

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

const secondKey = "the-secret-of-a-second-key-0123456789"

// The header of a request without a known key is limited in bytes and lines while it arrives, so that
// unknown clients cannot fill the memory. The client gets an answer.
func TestHeadersOfStrangers(t *testing.T) {
	t.Parallel()
	p := serve(t, newDatabase(t))
	for _, tt := range []struct {
		name, lines, key string
		want             int
	}{
		{"a usual one", strings.Repeat("X-A: b\r\n", 50), publisherKey, http.StatusNotFound},
		{"with a long token", "X-A: b\r\n", strings.Repeat("k", 16<<10), http.StatusNotFound},
		{"of many lines", strings.Repeat("a:\r\n", 129), publisherKey, http.StatusRequestHeaderFieldsTooLarge},
		{"of many lines that go on", strings.Repeat("a:\r\n", 100_000), publisherKey, http.StatusRequestHeaderFieldsTooLarge},
		{"of many bytes", "X-A: " + strings.Repeat("b", 33<<10) + "\r\n", publisherKey, http.StatusRequestHeaderFieldsTooLarge},
	} {
		c := dialRaw(t, p)
		c.send([]byte("GET /v1/users/ada/nothing HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + tt.key + "\r\n" + tt.lines + "\r\n"))
		res := c.answer()
		if _ = res.Body.Close(); res.StatusCode != tt.want {
			t.Errorf("a header %s is answered with %d, want %d", tt.name, res.StatusCode, tt.want)
		}
	}
	// Lines of a body do not count, and a request with a known key has no such limit.
	c := dialRaw(t, p)
	for i := range 3 {
		body := "[" + strings.Repeat("\n", 1000) + delivered("c", i+1, `"ada"`) + "]"
		c.send(fmt.Appendf(nil, "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/cloudevents-batch+json\r\nContent-Length: %d\r\n\r\n%s", publisherKey, len(body), body))
		res := c.answer()
		_, _ = io.Copy(io.Discard, res.Body)
		if _ = res.Body.Close(); res.StatusCode >= 300 {
			t.Errorf("publishing is answered with %d", res.StatusCode)
		}
	}
}

// A client that sends its whole body before it reads still gets the answer of a request that the
// server refuses by its header.
func TestRefusedBodiesAreAnswered(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.yaml")
	writeKeys(t, file, keyEntry("small", "publisher", ", quota: 1"))
	p := serve(t, newDatabase(t), "--keys-file="+file)
	if status, _, answer := requestAs(t, "small", http.MethodPost, p.url+"/v1/events", "application/cloudevents+json", delivered("c", 1, `"ada"`)); status >= 300 {
		t.Fatalf("publish: %d %s", status, answer)
	}
	body := bytes.Repeat([]byte(" "), 7<<20)
	for _, tt := range []struct {
		name, path, key string
		body            []byte
		want            int
	}{
		{"of an unknown key", "/v1/events", strings.Repeat("x", 32), body, http.StatusUnauthorized},
		{"of a user", "/v1/events", token(t, "ada"), body, http.StatusUnauthorized},
		{"over the limit", "/v1/events", publisherKey, bytes.Repeat(body, 2), http.StatusRequestEntityTooLarge},
		{"over the limit of the route", "/v1/users/ada/disconnect", publisherKey, body, http.StatusRequestEntityTooLarge},
		{"over the quota", "/v1/events", "small", body, http.StatusTooManyRequests},
	} {
		for range 5 {
			c := dialRaw(t, p)
			c.send(fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/cloudevents-batch+json\r\nContent-Length: %d\r\n\r\n", tt.path, tt.key, len(tt.body)))
			for piece := tt.body; len(piece) > 0; piece = piece[min(len(piece), 64<<10):] {
				if _, err := c.conn.Write(piece[:min(len(piece), 64<<10)]); err != nil {
					t.Fatalf("a body %s: it could not be sent: %v", tt.name, err)
				}
			}
			res := c.answer()
			if _ = res.Body.Close(); res.StatusCode != tt.want {
				t.Errorf("a body %s is answered with %d, want %d", tt.name, res.StatusCode, tt.want)
			}
		}
	}
}

// Idle connections of operators do not exclude probes and other operators.
func TestIdleConnectionsOfOperators(t *testing.T) {
	t.Parallel()
	p := serve(t, newDatabase(t), "--internal-listen=127.0.0.1:0", "--admin-keys=ops="+adminKey, "--admin-keys=other="+secondKey)
	internal := *p
	internal.url = p.internal()
	for i := range 100 {
		c := dialRaw(t, &internal)
		c.send([]byte("GET /admin/v1/partitions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + adminKey + "\r\n\r\n"))
		res := c.answer()
		_, _ = io.Copy(io.Discard, res.Body)
		if _ = res.Body.Close(); res.StatusCode != http.StatusOK {
			t.Fatalf("connection %d is answered with %d", i, res.StatusCode)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	for path, key := range map[string]string{"/readyz": "", "/metrics": "", "/admin/v1/partitions": secondKey} {
		wantStatus(t, key, http.MethodGet, internal.url+path, "", "", http.StatusOK)
	}
}
