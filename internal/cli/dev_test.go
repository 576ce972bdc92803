//go:build unix

package cli

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// The server for tests of others begins with the seed, has keys that do not change, and
// says when everything that was published is in the badges. Commands use its database. A second one is empty.
func TestDev(t *testing.T) {
	seed := pgtest.OpenDir(t) + "/seed.ndjson"
	event := func(id, seq string) string {
		return `{"specversion":"1.0","id":"` + id + `","source":"test","type":"message.delivered","data":{"conversation_id":"tea","seq":` + seq + `,"user_ids":["ada"]}}`
	}
	if err := os.WriteFile(seed, []byte(event("1", "1")+"\n\n"+event("2", "2")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	total := func(dev *service) string {
		t.Helper()
		if status, _, body := fetch(t, http.MethodGet, dev.url+"/dev/folded", "", "", ""); status != http.StatusNoContent {
			t.Fatalf("folded: %d %s", status, body)
		}
		status, _, body := fetch(t, http.MethodGet, dev.url+"/v1/users/ada/badge", devPublisherKey, "", "")
		if status != http.StatusOK {
			t.Fatalf("badge: %d %s", status, body)
		}
		return totalOf(body)
	}
	dev := start(t, "dev", "--listen=127.0.0.1:0", "--log-level=error", "--seed="+seed)
	if n := total(dev); n != "2" {
		t.Errorf("with the seed the total is %s, want 2", n)
	}
	if status, _, body := fetch(t, http.MethodPost, dev.url+"/v1/events", devPublisherKey, "application/json", event("3", "3")); status != http.StatusAccepted {
		t.Errorf("publish: %d %s", status, body)
	}
	if n := total(dev); n != "3" {
		t.Errorf("after a message the total is %s, want 3", n)
	}
	token := strings.TrimSpace(badged(t, "token", "ada", "--jwt-keys=dev=HS256:"+devJWTSecret).out)
	if status, _, body := fetch(t, http.MethodGet, dev.url+"/v1/users/ada/badge", token, "", ""); status != http.StatusOK {
		t.Errorf("with a token: %d %s", status, body)
	}
	_, exported, _ := strings.Cut(dev.err.String(), "export BADGED_DATABASE_URL='")
	databaseURL, _, _ := strings.Cut(exported, "'\n")
	if r := badged(t, "user", "show", "ada", "--database-url="+databaseURL); r.code != exitDone {
		t.Errorf("with the exported database: exit code %d, stderr %s", r.code, r.err)
	}
	if code := dev.stop(); code != exitDone {
		t.Fatalf("interrupted, it exits with %d:\n%s", code, dev.err)
	}
	dev = start(t, "dev", "--listen=127.0.0.1:0", "--log-level=error")
	if n := total(dev); n != "0" {
		t.Errorf("another one has a total of %s, want 0", n)
	}
}

// A seed with a mistake ends it, and says where.
func TestDevSeedWithAMistake(t *testing.T) {
	seed := t.TempDir() + "/seed.ndjson"
	if err := os.WriteFile(seed, []byte("\n{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := badged(t, "dev", "--listen=127.0.0.1:0", "--log-level=error", "--seed="+seed)
	if r.code != exitFailed || !strings.Contains(r.err, "--seed: "+seed+":2: ") {
		t.Errorf("exit code %d, stderr:\n%s", r.code, r.err)
	}
}
