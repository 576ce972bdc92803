package tests

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// A command whose body arrives after the token has expired is refused.
func TestCommandAfterItsTokenExpires(t *testing.T) {
	t.Parallel()
	p := serve(t, newDatabase(t))
	jwt := strings.TrimSpace(must(t, "token", "--ttl=2s", "ann"))
	command := holdBack(t, p, jwt, http.MethodPost, "/v1/commands", "application/json", `{"t":"read_all"}`)
	if code := connectWith(t, p.url, jwt).awaitEnd(); code != 4202 { // the connection ends once the token has expired
		t.Fatalf("the connection ended with %d", code)
	}
	if status, answer := command.finish(); status != http.StatusUnauthorized {
		t.Errorf("the command is answered with %d %s", status, answer)
	}
}

// A key set with an https URL is never fetched over http.
func TestKeySetStaysWithHTTPS(t *testing.T) {
	t.Parallel()
	const keys = `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"e","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`
	var asked atomic.Int32
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		fmt.Fprint(w, keys)
	}))
	defer plain.Close()
	mux := http.NewServeMux()
	secure := httptest.NewTLSServer(mux)
	defer secure.Close()
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, keys) })
	mux.Handle("/moved", http.RedirectHandler(secure.URL+"/keys", http.StatusFound))
	mux.Handle("/down", http.RedirectHandler(plain.URL, http.StatusFound))
	mux.Handle("/moved-down", http.RedirectHandler(secure.URL+"/down", http.StatusFound))
	roots := filepath.Join(t.TempDir(), "roots.pem")
	writeFile(t, roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))
	for path, want := range map[string]string{
		"/moved":      `"jwks":"ok"`,
		"/down":       `redirects from https to http`,
		"/moved-down": `redirects from https to http`,
	} {
		t.Run(path, func(t *testing.T) {
			p := launch(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "SSL_CERT_FILE="+roots) },
				"serve", "--listen=127.0.0.1:0", "--migrate", "--database-url="+newDatabase(t), "--jwks-url="+secure.URL+path)
			for range polls(t, want) {
				_, _, ready := request(t, http.MethodGet, p.url+"/readyz", "", "")
				if strings.Contains(ready, want) {
					break
				}
				if !strings.Contains(ready, "not fetched yet") {
					t.Fatalf("it prints %s", ready)
				}
			}
		})
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("keys were requested %d times over http", n)
	}
}
