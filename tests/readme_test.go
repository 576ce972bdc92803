package tests

import (
	"bufio"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// The command of the README that follows a badge works without a terminal: it prints the
// state, then every change.
func TestReadmeFollowsABadge(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
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
