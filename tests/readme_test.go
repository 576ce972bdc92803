package tests

import (
	"bufio"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// The README's command that follows a badge works without a terminal. It prints the state, and then
// every change.
func TestReadmeFollowsABadge(t *testing.T) {
	t.Parallel()
	page := readFile(t, "../README.md")
	found := regexp.MustCompile("(?m)^```sh\n(.*/v1/(?:sse|ws)[^`]*)\n```$").FindSubmatch(page)
	if found == nil {
		t.Fatal("the README has no command that follows a badge")
	}
	p := serve(t, newDatabase(t))
	line := strings.NewReplacer("http://127.0.0.1:8080", p.url, "go run ./cmd/badged", binary).Replace(string(found[1]))
	follow := exec.CommandContext(t.Context(), "sh", "-c", "exec "+line) // its standard input is empty
	follow.Env = environment("BADGED_JWT_KEYS=" + jwtKeys)
	out, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = follow.Process.Kill()
		_ = follow.Wait()
	})
	lines := bufio.NewScanner(out)
	await := func(want string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), want) {
				return
			}
		}
		t.Fatalf("the command ended without printing %s", want)
	}
	await(`"t":"snapshot"`)
	publish(t, p, delivered("lunch", 1, `"eve"`))
	await(`"total":1`)
}

// The answers that the README shows are the real answers to its commands.
func TestReadmeReadsABadge(t *testing.T) {
	t.Parallel()
	page := readFile(t, "../README.md")
	found := regexp.MustCompile("(?s) -d '([^']*)'\n```\n\n```json\n([^`]*)\n```\n.*?/v1/users/eve/badge.*?```json\n([^`]*)\n```").FindSubmatch(page)
	if found == nil {
		t.Fatal("the README does not publish an event and read a badge")
	}
	p := serve(t, newDatabase(t))
	status, header, answer := request(t, http.MethodPost, p.url+"/v1/events", "application/json", string(found[1]))
	if status != http.StatusAccepted || strings.TrimSpace(answer) != string(found[2]) {
		t.Errorf("publishing is answered %d %s, the README says %s", status, answer, found[2])
	}
	_, _, badge := request(t, http.MethodGet, p.url+"/v1/users/eve/badge?timeout=30s&at_least="+header.Get("Badged-Position"), "", "")
	epoch := regexp.MustCompile(`"epoch":"[0-9a-f]*"`)
	if got, want := epoch.ReplaceAllString(strings.TrimSpace(badge), ""), epoch.ReplaceAllString(string(found[3]), ""); got != want {
		t.Errorf("the badge is %s, the README says %s", got, want)
	}
}
