package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/snippets"
)

func TestReady(t *testing.T) {
	server := startServer(t, pgtest.NewDB(t, migrated()))
	if out := mustDo(t, "ready", "--url="+server.url+"/"); out != snippets.Output(t, "docs/cli.md", "badged ready") {
		t.Errorf("it prints %q", out)
	}
	server.stop()
	if r := badged(t, "ready", "--url="+server.url); r.code != exitFailed || r.out != "" || !strings.HasPrefix(r.err, "badged: read /readyz: ") {
		t.Errorf("a server that is down: exit code %d, stdout %q, stderr %q", r.code, r.out, r.err)
	}
	draining := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"status":"draining"}`))
	}))
	defer draining.Close()
	if r, want := badged(t, "ready", "--url="+draining.URL), "badged: "+draining.URL+` answers 503 Service Unavailable: {"status":"draining"}`+"\n"; r.code != exitFailed || r.err != want {
		t.Errorf("a draining server: exit code %d, stderr %q, want %q", r.code, r.err, want)
	}
	if r := badged(t, "ready", "--url=::"); r.code != exitFailed || !strings.HasPrefix(r.err, "badged: --url: ") {
		t.Errorf("an invalid URL: exit code %d, stderr %q", r.code, r.err)
	}
}
