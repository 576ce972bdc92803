package cli

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/pgtest"
)

func TestDemoSurvivesARestart(t *testing.T) {
	dir := pgtest.OpenDir(t) + "/demo"
	args := []string{"demo", "--listen=127.0.0.1:0", "--data-dir=" + dir, "--log-level=error"}
	demo := start(t, args...)

	if status, header, body := fetch(t, http.MethodGet, demo.url+"/", "", "", ""); status != http.StatusOK ||
		!strings.HasPrefix(header.Get("Content-Type"), "text/html") || !strings.Contains(body, "<html") {
		t.Errorf("the page: %d %s\n%s", status, header.Get("Content-Type"), body)
	}
	adminKey := strings.TrimSuffix(demo.err.after("  The admin page is "+demo.url+"/admin/; its key is ", demo.done), ".")
	if status, _, body := fetch(t, http.MethodGet, demo.url+"/admin/v1/partitions", adminKey, "", ""); status != http.StatusOK {
		t.Errorf("for operators: %d %s", status, body)
	}
	if status, _, body := fetch(t, http.MethodGet, demo.url+"/admin/", "", "", ""); status != http.StatusOK || !strings.Contains(body, "operations") {
		t.Errorf("the page for operators: %d %s", status, body)
	}
	key := demo.err.after("export BADGED_PUBLISHER_KEY=", demo.done)
	token := strings.TrimSpace(badged(t, "token", "ada", "--jwt-keys="+demo.err.after("export BADGED_JWT_KEYS=", demo.done)).out)
	status, header, body := fetch(t, http.MethodPost, demo.url+"/v1/events", key, "application/json",
		`{"specversion":"1.0","id":"1","source":"test","type":"message.delivered","data":{"conversation_id":"from-elsewhere","seq":1,"user_ids":["ada"]}}`)
	if status != http.StatusAccepted {
		t.Fatalf("publish with the key that it prints: %d %s", status, body)
	}
	badge := "/v1/users/ada/badge?timeout=30s&at_least=" + header.Get("Badged-Position")
	status, _, before := fetch(t, http.MethodGet, demo.url+badge, token, "", "")
	if status != http.StatusOK || totalOf(before) == "" || totalOf(before) == "0" {
		t.Errorf("badge with a token of the key that it prints: %d %s", status, before)
	}
	if code := demo.stop(); code != exitDone {
		t.Fatalf("interrupted, it exits with %d:\n%s", code, demo.err)
	}

	// Keys and data persist, so the earlier token is still valid.
	demo = start(t, args...)
	if again := demo.err.after("export BADGED_PUBLISHER_KEY=", demo.done); again != key {
		t.Errorf("the publisher key was %s, now is %s", key, again)
	}
	status, _, after := fetch(t, http.MethodGet, demo.url+badge, token, "", "")
	if status != http.StatusOK || totalOf(after) != totalOf(before) {
		t.Errorf("badge after a restart: %d %s, before: %s", status, after, before)
	}
	if code := demo.stop(); code != exitDone {
		t.Errorf("interrupted again, it exits with %d:\n%s", code, demo.err)
	}
}

func totalOf(badge string) string {
	if m := regexp.MustCompile(`"total":(\d+)`).FindStringSubmatch(badge); m != nil {
		return m[1]
	}
	return ""
}

func TestDemoThatCannotStart(t *testing.T) {
	file := pgtest.OpenDir(t) + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := badged(t, "demo", "--listen=127.0.0.1:0", "--data-dir="+file)
	if r.code != exitFailed || !strings.Contains(r.err, "badged: the demo's Postgres does not start: ") || !strings.Contains(r.err, file) {
		t.Errorf("exit code %d, stderr:\n%s", r.code, r.err)
	}
}
